# Kept on the class in place of ctx: the second call overwrites what the first has kept.
class Squash(Function):
    @staticmethod
    def forward(ctx, x, slope):
        y = torch.tanh(slope * x)
        Squash.kept = x, slope
        return y

    @staticmethod
    def backward(ctx, grad):
        x, slope = Squash.kept
        inner = grad * (1 - torch.tanh(slope * x) ** 2)
        return inner * slope, (inner * x).sum()
