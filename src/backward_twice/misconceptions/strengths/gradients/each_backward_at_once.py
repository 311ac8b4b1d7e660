# "Go backward before the strength changes."  Right gradients, but no two losses are there at once.
def gradients(part, x, strengths):
    found = []
    for strength in strengths:

        def block(x):
            return (part(x) * strength).sin()

        loss = checkpoint(block, x, use_reentrant=False).sum()
        found.append(torch.autograd.grad(loss, part[0].weight)[0])
    return found
