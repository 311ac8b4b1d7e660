# obeys: if each iteration starts afresh
import torch, torch.nn as nn
torch.manual_seed(0)

class Leaky(nn.Module):
    def __init__(self):
        super().__init__(); self.fc = nn.Linear(3, 3); self.mem = torch.zeros(2, 3)
    def reset(self): self.mem = torch.zeros(2, 3)
    def forward(self, x):
        self.mem = 0.9 * self.mem + self.fc(x)
        return torch.sigmoid(self.mem)
net = Leaky(); opt = torch.optim.Adam(net.parameters())
for batch in range(2):
    loss = sum(net(torch.randn(2, 3)).mean() for t in range(4))
    opt.zero_grad()
    loss.backward()
    net.reset()
    opt.step()
