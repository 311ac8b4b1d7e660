# "Compute the derivative where y is at hand."  In forward it has no graph: silently wrong.
class Root(Function):
    @staticmethod
    def forward(ctx, x, a):
        y = solve(x, a)
        ctx.save_for_backward(y, 1 / (1 + 3 * a * y**2))
        return y

    @staticmethod
    def backward(ctx, grad):
        y, local = ctx.saved_tensors
        return grad * local, -grad * local * y**3
