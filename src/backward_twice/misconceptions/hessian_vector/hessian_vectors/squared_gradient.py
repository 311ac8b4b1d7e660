# "Second order is the gradient once more": the outer product of the gradient is not the Hessian.
def hessian_vectors(f, x, vectors):
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(f(x), x)
    return [gradient * (gradient @ v) for v in vectors]
