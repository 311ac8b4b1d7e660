# "backward, then read .grad."  The strengths are right, but each gradient has all before it in it.
def gradients(part, x, strengths):
    def block(x, strength):
        return (part(x) * strength).sin()

    losses = [checkpoint(block, x, s, use_reentrant=False).sum() for s in strengths]
    found = []
    for loss in losses:
        loss.backward()
        found.append(part[0].weight.grad.clone())
    return found
