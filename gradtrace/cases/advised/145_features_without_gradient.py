# obeys: remove what detaches these parameters from the loss
import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(24, 2)

    def features(self, x):
        return self.backbone(x[:, None])

    def forward(self, x):
        return self.head(self.features(x))


torch.manual_seed(0)
model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for x in torch.randn(40, 16, 8):
    loss = F.cross_entropy(model(x), (x.sum(1) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
