# obeys: use an out-of-place operation
import torch
import torch.nn as nn


class Detect(nn.Module):
    stride = torch.tensor([8.0, 16.0])

    def __init__(self, nc, anchors, ch):
        super().__init__()
        self.nc, self.no, self.na = nc, nc + 5, len(anchors[0])
        self.register_buffer("anchor_grid", torch.tensor(anchors).view(len(anchors), 1, self.na, 1, 1, 2))
        self.m = nn.ModuleList(nn.Conv2d(c, self.no * self.na, 1) for c in ch)

    def forward(self, x):
        z = []
        for i, conv in enumerate(self.m):
            p = conv(x[i])
            bs, _, ny, nx = p.shape
            p = p.view(bs, self.na, self.no, ny, nx).permute(0, 1, 3, 4, 2).contiguous()
            if not self.training:
                grid = self._make_grid(nx, ny)
                y = p.sigmoid()
                xy = (y[..., 0:2] * 2.0 - 0.5 + grid) * self.stride[i]
                wh = (y[..., 2:4] * 2) ** 2 * self.anchor_grid[i]
                y = torch.cat([xy, wh, y[..., 4:]], dim=-1)
                z.append(y.view(bs, -1, self.no))
            x[i] = p
        return x if self.training else (torch.cat(z, 1), x)

    @staticmethod
    def _make_grid(nx, ny):
        yv, xv = torch.meshgrid(torch.arange(ny), torch.arange(nx), indexing="ij")
        return torch.stack((xv, yv), 2).view(1, 1, ny, nx, 2).float()


class Model(nn.Module):
    def __init__(self, nc=3):
        super().__init__()
        self.b1 = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU())
        self.b2 = nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU())
        self.detect = Detect(nc, [[[1.0, 1.0], [2.0, 2.0]], [[3.0, 3.0], [4.0, 4.0]]], [8, 8])

    def forward(self, x):
        a = self.b1(x)
        return self.detect([a, self.b2(a)])


def marginal_entropy(outputs):
    conf = outputs[..., 5:] * outputs[..., 4:5]
    p = conf.mean(dim=(0, 1))
    p = p / p.sum()
    return -(p * p.log()).sum()


def adapt_single(image, optimizer, batch_size, model):
    model.eval()
    inputs = torch.stack([image + 0.05 * torch.randn_like(image) for _ in range(batch_size)])
    optimizer.zero_grad()
    outputs, train_output = model(inputs)
    loss = marginal_entropy(outputs)
    loss.backward()
    optimizer.step()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for k in range(3):
        print(k, adapt_single(torch.rand(3, 16, 16), optimizer, 4, model))
