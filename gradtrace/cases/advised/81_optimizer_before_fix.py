# obeys: create the optimizer after the model is complete
import torch
import torch.nn.functional as F
from torch import nn

import h81_validator as ModuleValidator


class SmallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(F.relu(self.bn(self.conv(x))).mean((2, 3)))


torch.manual_seed(0)
model = SmallNet()
model = ModuleValidator.fix(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
before = model.bn.weight.clone().detach()
for epoch in range(5):
    for data, target in [(torch.randn(4, 1, 6, 6), torch.randint(0, 3, (4,))) for _ in range(3)]:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
print("norm layer moved:", (model.bn.weight - before).abs().max().item())
