# "Call backward on x.grad."  After backward(retain_graph=True) x.grad has no graph: it raises.
def hessian_vectors(f, x, vectors):
    x = x.detach().requires_grad_()
    f(x).backward(retain_graph=True)
    gradient, products = x.grad, []
    for v in vectors:
        x.grad = None
        gradient.backward(v, retain_graph=True)
        products.append(x.grad)
    return products
