import torch
import torch.nn.functional as F
from torch import nn

class Model(nn.Module):
    def __init__(self, freeze):
        super().__init__()
        self.encoder, self.head, self.freeze = nn.Linear(4, 8), nn.Linear(8, 2), freeze

    def forward(self, x):
        features = F.relu(self.encoder(x))
        if self.freeze:
            features = features.detach()
        return self.head(features)


torch.manual_seed(0)
model = Model(freeze=True)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for x in torch.randn(60, 8, 4):
    loss = F.cross_entropy(model(x), (x.sum(1) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
