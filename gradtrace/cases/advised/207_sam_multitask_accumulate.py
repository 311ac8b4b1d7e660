# obeys: call backward() on the loss of this iteration alone
import torch
import torch.nn as nn
import torch.nn.functional as F
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


class MultiTaskNet(nn.Module):
    def __init__(self, num_tasks):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(24, 1) for _ in range(num_tasks)])

    def forward(self, image):
        feat = self.backbone(image)
        return [head(feat) for head in self.heads]


def get_loss(output, target, index):
    logit = output[index].squeeze(1)
    loss = F.binary_cross_entropy_with_logits(logit, target[:, index])
    acc = ((logit > 0).float() == target[:, index]).float().mean()
    return loss, acc


def train_epoch(model, loader, optimizer, num_tasks):
    loss_sum = [0.0] * num_tasks
    for image, target in loader:
        output = model(image)
        loss = 0
        for t in range(num_tasks):
            loss_t, acc_t = get_loss(output, target, t)
            loss += loss_t
            loss_sum[t] += loss_t.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.first_step(zero_grad=True)

        output = model(image)
        loss = 0
        for t in range(num_tasks):
            loss_t, acc_t = get_loss(output, target, t)
            loss += loss_t
            loss_sum[t] += loss_t.item()
        loss.backward()
        optimizer.second_step(zero_grad=True)
    return loss_sum


if __name__ == "__main__":
    torch.manual_seed(0)
    num_tasks = 3
    data = TensorDataset(torch.randn(32, 12), (torch.rand(32, num_tasks) > 0.5).float())
    model = MultiTaskNet(num_tasks)
    optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1)
    for epoch in range(2):
        print(train_epoch(model, DataLoader(data, batch_size=8), optimizer, num_tasks))
