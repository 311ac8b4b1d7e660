import torch
import torch.nn.functional as F
from torch import nn

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 2)

    def forward(self, x):
        with torch.no_grad():
            features = self.backbone(x)
        return self.head(features)


torch.manual_seed(0)
model = Classifier()
model.backbone.eval()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for x in torch.randn(60, 8, 4):
    loss = F.cross_entropy(model(x), (x.sum(1) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
