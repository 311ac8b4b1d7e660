# obeys: request only the gradients of parameters that require grad: [p for p in parameters if p.requires_grad]
# obeys: out of the inputs
import torch
from torch import nn

from h71_util import checkpoint


class UNet(nn.Module):
    def __init__(self, ch=8):
        super().__init__()
        self.conv_in = nn.Linear(4, ch)
        self.block = nn.Sequential(nn.Linear(ch, ch), nn.SiLU(), nn.Linear(ch, ch))
        self.conv_out = nn.Linear(ch, 4)

    def forward(self, x, features):
        h = self.conv_in(x) + features
        h = checkpoint(self.block, (h,), tuple(p for p in self.block.parameters() if p.requires_grad))
        return self.conv_out(h)


torch.manual_seed(0)
unet, adapter = UNet(), nn.Linear(3, 8)
for p in unet.parameters():
    p.requires_grad = False
optimizer = torch.optim.AdamW(adapter.parameters(), lr=1e-4)
for i in range(2):
    x, cond, noise = torch.randn(2, 4), torch.randn(2, 3), torch.randn(2, 4)
    loss = (unet(x, adapter(cond)) - noise).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
