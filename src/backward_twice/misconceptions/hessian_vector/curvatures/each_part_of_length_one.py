# Each tensor is divided by its own length: another vector, and so another curvature.
def curvatures(loss, parameters, start, steps):
    gradients = torch.autograd.grad(loss, parameters, create_graph=True)
    v, found = start, []
    for _ in range(steps):
        v = [part / part.norm() for part in v]
        product = torch.autograd.grad(gradients, parameters, grad_outputs=v, retain_graph=True)
        found.append(sum((a * b).sum() for a, b in zip(v, product, strict=True)).item())
        v = product
    return found
