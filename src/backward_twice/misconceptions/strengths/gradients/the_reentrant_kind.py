# "use_reentrant=True is the safe default."  It does not go with torch.autograd.grad.
def gradients(part, x, strengths):
    def block(x, strength):
        return (part(x) * strength).sin()

    x = x.requires_grad_()
    losses = [checkpoint(block, x, s, use_reentrant=True).sum() for s in strengths]
    return [torch.autograd.grad(loss, part[0].weight)[0] for loss in losses]
