# "Detach, to save memory, and let it require grad again."  Nothing leads to the parameters.
def curvatures(loss, parameters, start, steps):
    gradients = torch.autograd.grad(loss, parameters, create_graph=True)
    v, found = start, []
    for _ in range(steps):
        length = sum((part * part).sum() for part in v) ** 0.5
        v = [part / length for part in v]
        gradients = [g.detach().requires_grad_() for g in gradients]
        product = torch.autograd.grad(gradients, parameters, grad_outputs=v, retain_graph=True)
        found.append(sum((a * b).sum() for a, b in zip(v, product, strict=True)).item())
        v = product
    return found
