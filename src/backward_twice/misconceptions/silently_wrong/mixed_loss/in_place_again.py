# "Without .data, then."  The change is refused, and rightly so.
def mixed_loss(logits, target, share):
    p = logits.softmax(-1)
    p.mul_(1 - share).add_(share / p.shape[-1])
    return -p[torch.arange(len(target)), target].log().mean()
