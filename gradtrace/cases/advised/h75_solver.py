import torch


class Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, func, y0, t, *params):
        ctx.func, ctx.t = func, t
        with torch.no_grad():
            y = y0.clone()
            for t0, t1 in zip(t[:-1], t[1:]):
                y = y + (t1 - t0) * func(t0, y)
        ctx.save_for_backward(y0, *params)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        y0, *params = ctx.saved_tensors
        with torch.enable_grad():
            y = start = y0.view_as(y0)
            for t0, t1 in zip(ctx.t[:-1], ctx.t[1:]):
                y = y + (t1 - t0) * ctx.func(t0, y)
            g = torch.autograd.grad(y, [start, *params], grad_y, create_graph=True, allow_unused=True)
        return (None, g[0], None, *g[1:])


def odeint_adjoint(func, y0, t):
    return Adjoint.apply(func, y0, t, *func.parameters())


def odeint(func, y0, t):
    y = y0
    for t0, t1 in zip(t[:-1], t[1:]):
        y = y + (t1 - t0) * func(t0, y)
    return y
