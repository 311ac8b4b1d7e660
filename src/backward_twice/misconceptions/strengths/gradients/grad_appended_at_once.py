# "backward() in the loop, and append .grad."  Every entry is the same tensor: the sum of all.
def gradients(part, x, strengths):
    found = []
    for strength in strengths:

        def block(x):
            return (part(x) * strength).sin()

        checkpoint(block, x, use_reentrant=False).sum().backward()
        found.append(part[0].weight.grad)
    return found
