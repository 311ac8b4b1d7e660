# obeys: make a new tensor and use it from there on: logits = logits * self.s
import torch
from torch import nn


class CustomOp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2.0


def custom_op(x):
    return CustomOp.apply(x)


class Net(nn.Module):
    def __init__(self, in_channel, out_channel, scale=400.0):
        super().__init__()
        self.fc = nn.Linear(in_channel, out_channel)
        self.s = scale

    def forward(self, input):
        x = self.fc(input)
        logits = custom_op(x)
        logits = logits * self.s
        return logits


if __name__ == '__main__':
    torch.manual_seed(0)
    net = Net(12, 5)
    out = net(torch.rand(4, 12))
    out.mean().backward()
