# "Detach the output, backward only needs its value."  The second backward needs more.
class Root(Function):
    @staticmethod
    def forward(ctx, x, a):
        y = solve(x, a)
        ctx.save_for_backward(a, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        a, y = ctx.saved_tensors
        y = y.detach()
        of_x = grad / (1 + 3 * a * y**2)
        return of_x, -of_x * y**3
