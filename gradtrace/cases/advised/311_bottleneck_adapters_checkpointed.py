# obeys: call checkpoint(..., use_reentrant=False)
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint


class Adapter(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.down, self.up = nn.Linear(d, 2), nn.Linear(2, d)

    def forward(self, x):
        return x + self.up(torch.relu(self.down(x)))


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.frozen, self.adapter = nn.Linear(d, d), Adapter(d)

    def forward(self, x):
        return self.adapter(x + torch.tanh(self.frozen(x)))


class Encoder(nn.Module):
    def __init__(self, d=8, n=3):
        super().__init__()
        self.stem = nn.Linear(5, d)
        self.layers = nn.ModuleList([Layer(d) for _ in range(n)])
        self.classifier = nn.Linear(d, 2)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
        return self.classifier(x)


torch.manual_seed(0)
model = Encoder()
for name, p in model.named_parameters():
    p.requires_grad = "adapter" in name or "classifier" in name
optimizer = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-3)
for step in range(5):
    loss = F.cross_entropy(model(torch.randn(6, 5)), torch.randint(0, 2, (6,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
