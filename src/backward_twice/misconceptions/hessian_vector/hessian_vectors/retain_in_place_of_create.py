# "retain_graph=True is what higher-order gradients need."  The gradient has no graph: it raises.
def hessian_vectors(f, x, vectors):
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(f(x), x, retain_graph=True)
    return [torch.autograd.grad(gradient, x, grad_outputs=v, retain_graph=True)[0] for v in vectors]
