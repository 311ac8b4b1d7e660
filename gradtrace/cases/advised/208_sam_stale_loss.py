# obeys: recompute this loss after the step, by a new forward pass
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        norm = torch.norm(torch.stack([p.grad.norm(p=2) for g in self.param_groups for p in g["params"] if p.grad is not None]))
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["old_p"] = p.data.clone()
                p.add_(p.grad * scale)
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()


class Backbone(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.linear = nn.Linear(16, classes)

    def forward(self, x):
        f = self.features(x)
        return self.linear(f), f


def train_epoch(models, criterion, optimizers, loader):
    models["backbone"].train()
    for inputs, labels in loader:
        optimizers["backbone"].zero_grad()
        scores, _ = models["backbone"](inputs)
        loss = criterion(scores, labels)
        loss.backward(retain_graph=True)
        optimizers["backbone"].first_step(zero_grad=True)

        loss = criterion(models["backbone"](inputs)[0], labels)
        loss.backward(retain_graph=True)
        optimizers["backbone"].second_step(zero_grad=True)
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    models = {"backbone": Backbone()}
    optimizers = {"backbone": SAM(models["backbone"].parameters(), torch.optim.SGD, lr=0.1)}
    data = TensorDataset(torch.randn(40, 10), torch.randint(0, 5, (40,)))
    for epoch in range(2):
        print(epoch, train_epoch(models, nn.CrossEntropyLoss(), optimizers, DataLoader(data, batch_size=10)))
