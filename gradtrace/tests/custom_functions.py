"""A custom function that several tests use, and derive their own from."""

import torch


class SavesInput(torch.autograd.Function):
    """The square of a tensor; saves its input."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient * ctx.saved_tensors[0]
