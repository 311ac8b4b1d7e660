# obeys: use an out-of-place operation
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class TransformNet(nn.Module):
    def __init__(self, inp, out, hidden_features):
        super().__init__()
        self.hidden_features = hidden_features
        self.body = nn.Sequential(nn.Linear(inp, hidden_features), nn.ReLU(), nn.Linear(hidden_features, out), nn.ReLU())

    def forward(self, x):
        return self.body(x)


class PiecewiseQuadraticCoupling(nn.Module):
    def __init__(self, mask, num_bins=6, hidden=16):
        super().__init__()
        self.num_bins = num_bins
        self.register_buffer("identity", torch.nonzero(mask <= 0).flatten())
        self.register_buffer("transform", torch.nonzero(mask > 0).flatten())
        self.transform_net = TransformNet(len(self.identity), len(self.transform) * (2 * num_bins + 1), hidden)

    def _piecewise(self, inputs, params):
        unnormalized_widths = params[..., : self.num_bins]
        unnormalized_heights = params[..., self.num_bins:]
        if hasattr(self.transform_net, "hidden_features"):
            unnormalized_widths = unnormalized_widths / np.sqrt(self.transform_net.hidden_features)
            unnormalized_heights = unnormalized_heights / np.sqrt(self.transform_net.hidden_features)
        widths = F.softmax(unnormalized_widths, dim=-1)
        heights = F.softplus(unnormalized_heights) + 1e-3
        scale = (widths * heights[..., 1:]).sum(-1) + heights[..., 0]
        return inputs * scale, torch.log(scale)

    def forward(self, x):
        ident, trans = x[:, self.identity], x[:, self.transform]
        params = self.transform_net(ident).view(len(x), len(self.transform), -1)
        y, logdet = self._piecewise(trans, params)
        out = torch.empty_like(x)
        out[:, self.identity] = ident
        out[:, self.transform] = y
        return out, logdet.sum(-1)


class Flow(nn.Module):
    def __init__(self, dim, layers):
        super().__init__()
        masks = [torch.arange(dim) % 2 == i % 2 for i in range(layers)]
        self.layers = nn.ModuleList([PiecewiseQuadraticCoupling(m.float()) for m in masks])

    def log_prob(self, x):
        total = 0
        for layer in self.layers:
            x, logdet = layer(x)
            total = total + logdet
        return total - 0.5 * x.pow(2).sum(-1)


if __name__ == "__main__":
    torch.manual_seed(0)
    flow = Flow(4, 2)
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
    for (x,) in DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=16):
        optimizer.zero_grad()
        loss = -flow.log_prob(x).mean()
        loss.backward()
        optimizer.step()
        print(loss.item())
