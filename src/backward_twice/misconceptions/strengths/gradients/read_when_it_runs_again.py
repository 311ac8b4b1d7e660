# "block keeps its strength."  It reads the name when it runs: by then that is the last one.
def gradients(part, x, strengths):
    losses = []
    for strength in strengths:

        def block(x):
            return (part(x) * strength).sin()

        losses.append(checkpoint(block, x, use_reentrant=False).sum())
    return [torch.autograd.grad(loss, part[0].weight)[0] for loss in losses]
