import torch
import torch.nn as nn
import torch.nn.functional as F


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        return self.net(x)


def fgsm(model, x, y, eps):
    x_adv = x.clone().requires_grad_(True)
    loss = F.cross_entropy(model(x_adv), y)
    loss.backward()
    return (x_adv + eps * x_adv.grad.sign()).detach()


@torch.inference_mode()
def evaluate_robustness(model, batches):
    correct = 0
    for x, y in batches:
        x_adv = fgsm(model, x, y, 0.1)
        correct += (model(x_adv).argmax(1) == y).sum().item()
    return correct


torch.manual_seed(0)
model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = [(torch.randn(8, 6), torch.randint(0, 3, (8,))) for _ in range(3)]
for x, y in data:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
print(evaluate_robustness(model, data))
