# obeys: use an out-of-place operation
import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.query, self.value = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return torch.sigmoid(self.query(x)) * self.value(x)


class Net(nn.Module):
    def __init__(self, channels=4, depth=2):
        super().__init__()
        self.head = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.ModuleList([Attention(channels) for _ in range(depth)])
        self.tail = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, image):
        x = self.head(image)
        out = x
        for block in self.blocks:
            out = out + block(x)
        return self.tail(out)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for image in torch.rand(2, 2, 3, 6, 6):
    loss = F.l1_loss(net(image), image)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
