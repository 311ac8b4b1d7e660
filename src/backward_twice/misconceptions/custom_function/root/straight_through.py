# The gradient is passed on as it comes: that of y = x.
class Root(Function):
    @staticmethod
    def forward(ctx, x, a):
        y = solve(x, a)
        ctx.save_for_backward(a, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad, torch.zeros_like(grad)
