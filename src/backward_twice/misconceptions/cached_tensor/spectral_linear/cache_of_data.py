# "Use .data of the cache."  In training as in evaluation the weight is a constant then.
class SpectralLinear(nn.Module):
    def __init__(self, weight, bias, u):
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)
        self.register_buffer("u", u)
        self.cache = None

    def normalised(self):
        with torch.no_grad():
            v = F.normalize(self.weight.T @ self.u, dim=0)
            self.u = F.normalize(self.weight @ v, dim=0)
        return self.weight / (self.u @ self.weight @ v)

    def train(self, mode=True):
        self.cache = None
        return super().train(mode)

    def forward(self, x):
        if self.training or self.cache is None:
            self.cache = self.normalised()
        return F.linear(x, self.cache.data, self.bias)
