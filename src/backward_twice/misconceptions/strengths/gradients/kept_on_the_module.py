# "Then the module keeps it."  An attribute is read anew, too, and has changed.
def gradients(part, x, strengths):
    def block(x):
        return (part(x) * part.strength).sin()

    losses = []
    for part.strength in strengths:
        losses.append(checkpoint(block, x, use_reentrant=False).sum())
    return [torch.autograd.grad(loss, part[0].weight)[0] for loss in losses]
