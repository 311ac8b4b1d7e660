# obeys: write that backward() with operations that have a derivative: without detach(), .data, numpy or no_grad(), with create_graph=True in a gradient that it computes
import torch
from torch import nn
from torch.autograd import grad

from h75_solver import odeint_adjoint as odeint


class Func(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.tensor(2.0))
        self.b = nn.Parameter(torch.tensor(3.0))

    def forward(self, t, y):
        return self.a * self.b * y


if __name__ == '__main__':
    func = Func()
    y0 = torch.tensor(4.0, requires_grad=True)
    t = torch.linspace(0.0, 1.0, 5)
    y1 = odeint(func, y0, t)
    print(y1)
    y1.backward(retain_graph=True)
    dy1_da = grad(y1, func.a, create_graph=True)[0]
    print(dy1_da)
    dy1_da.backward(retain_graph=True)
