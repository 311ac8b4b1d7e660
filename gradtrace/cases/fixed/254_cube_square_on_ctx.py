import torch
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx,x):
        ctx.save_for_backward(x); return x**3
    @staticmethod
    def backward(ctx,g):
        x,=ctx.saved_tensors; return g*3*x*x
x=torch.ones(3,requires_grad=True); y=Cube.apply(x).sum()
g,=torch.autograd.grad(y,x,create_graph=True); (g**2).sum().backward(); print(x.grad)
