# "create_graph=True keeps everything."  Not beyond the first product: the second raises.
def hessian_vectors(f, x, vectors):
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(f(x), x, create_graph=True)
    return [torch.autograd.grad(gradient, x, grad_outputs=v)[0] for v in vectors]
