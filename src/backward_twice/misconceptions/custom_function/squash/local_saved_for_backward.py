# "Use save_for_backward and all is well."  What is saved still has no graph: a constant.
class Squash(Function):
    @staticmethod
    def forward(ctx, x, slope):
        y = torch.tanh(slope * x)
        ctx.save_for_backward(x, slope, 1 - y * y)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, slope, local = ctx.saved_tensors
        inner = grad * local
        return inner * slope, (inner * x).sum()
