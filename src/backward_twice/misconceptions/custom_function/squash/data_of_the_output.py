# "Saved tensors are only values, so .data."  That takes the graph off them.
class Squash(Function):
    @staticmethod
    def forward(ctx, x, slope):
        y = torch.tanh(slope * x)
        ctx.save_for_backward(x, slope, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, slope, y = ctx.saved_tensors
        inner = grad * (1 - y.data * y.data)
        return inner * slope, (inner * x).sum()
