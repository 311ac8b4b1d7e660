# The decorator that says it cannot be done: honest, but the second derivative raises.
class Squash(Function):
    @staticmethod
    def forward(ctx, x, slope):
        y = torch.tanh(slope * x)
        ctx.save_for_backward(x, slope, y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        x, slope, y = ctx.saved_tensors
        inner = grad * (1 - y * y)
        return inner * slope, (inner * x).sum()
