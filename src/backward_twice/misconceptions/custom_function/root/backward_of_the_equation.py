# Differentiates the equation and not its solution: the derivative is upside down.
class Root(Function):
    @staticmethod
    def forward(ctx, x, a):
        y = solve(x, a)
        ctx.save_for_backward(a, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        a, y = ctx.saved_tensors
        of_x = grad * (1 + 3 * a * y**2)
        return of_x, of_x * y**3
