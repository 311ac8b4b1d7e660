# "A Hessian for each parameter."  Leaves out how the parameters act on one another.
def curvatures(loss, parameters, start, steps):
    gradients = torch.autograd.grad(loss, parameters, create_graph=True)
    v, found = start, []
    for _ in range(steps):
        length = sum((part * part).sum() for part in v) ** 0.5
        v = [part / length for part in v]
        product = [
            torch.autograd.grad(g, p, grad_outputs=part, retain_graph=True)[0]
            for g, p, part in zip(gradients, parameters, v, strict=True)
        ]
        found.append(sum((a * b).sum() for a, b in zip(v, product, strict=True)).item())
        v = product
    return found
