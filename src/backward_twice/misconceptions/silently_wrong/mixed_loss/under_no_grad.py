# "no_grad is the clean form of .data."  The change counts, so backward refuses it.
def mixed_loss(logits, target, share):
    p = logits.softmax(-1)
    with torch.no_grad():
        p.mul_(1 - share).add_(share / p.shape[-1])
    return -p[torch.arange(len(target)), target].log().mean()
