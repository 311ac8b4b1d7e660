# "A coefficient is no variable": without a gradient for a.
class Root(Function):
    @staticmethod
    def forward(ctx, x, a):
        y = solve(x, a)
        ctx.save_for_backward(a, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        a, y = ctx.saved_tensors
        return grad / (1 + 3 * a * y**2), None
