# "retain_graph=True is what higher-order gradients need."  The gradients have no graph: it raises.
def curvatures(loss, parameters, start, steps):
    gradients = torch.autograd.grad(loss, parameters, retain_graph=True)
    v, found = start, []
    for _ in range(steps):
        length = sum((part * part).sum() for part in v) ** 0.5
        v = [part / length for part in v]
        product = torch.autograd.grad(gradients, parameters, grad_outputs=v, retain_graph=True)
        found.append(sum((a * b).sum() for a, b in zip(v, product, strict=True)).item())
        v = product
    return found
