# obeys: save the inputs in forward, ctx.save_for_backward(x)
# The commonest mistake in a custom Function: the local derivative is computed in forward and saved (docs: "save inputs, recompute in backward").
import torch
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        d = 3 * x * x
        return g * d
x = torch.ones(3, requires_grad=True)
y = Cube.apply(x).sum()
g, = torch.autograd.grad(y, x, create_graph=True)
(g ** 2).sum().backward()
