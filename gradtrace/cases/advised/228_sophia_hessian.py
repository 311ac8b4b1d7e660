# obeys: recompute logits for loss_sampled
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class SophiaG(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.965, 0.99), rho=0.04):
        super().__init__(params, dict(lr=lr, betas=betas, rho=rho))

    def _init(self, p):
        s = self.state[p]
        if not s:
            s["exp_avg"], s["hessian"] = torch.zeros_like(p), torch.zeros_like(p)
        return s

    @torch.no_grad()
    def update_hessian(self):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is not None:
                    self._init(p)["hessian"].mul_(g["betas"][1]).addcmul_(p.grad, p.grad, value=1 - g["betas"][1])

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                s = self._init(p)
                s["exp_avg"].mul_(g["betas"][0]).add_(p.grad, alpha=1 - g["betas"][0])
                ratio = (s["exp_avg"].abs() / (g["rho"] * s["hessian"] + 1e-15)).clamp(None, 1)
                p.addcmul_(s["exp_avg"].sign(), ratio, value=-g["lr"])


class Fusion(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(12, 16), nn.ReLU())
        self.text = nn.EmbeddingBag(30, 16)
        self.head = nn.Linear(32, classes)

    def forward(self, img, txt, y):
        logits = self.head(torch.cat([self.image(img), self.text(txt)], dim=-1))
        return logits, F.cross_entropy(logits, y)


def train(loader, k=2):
    torch.manual_seed(0)
    model = Fusion()
    optimizer = SophiaG(model.parameters(), lr=2e-3)
    for it, (img, txt, y) in enumerate(loader):
        logits, loss = model(img, txt, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if it % k == k - 1:
            logits, _ = model(img, txt, y)
            samp_dist = torch.distributions.Categorical(logits=logits)
            y_sample = samp_dist.sample()
            loss_sampled = F.cross_entropy(logits.view(-1, logits.size(-1)), y_sample.view(-1))
            loss_sampled.backward()
            optimizer.update_hessian()
            optimizer.zero_grad(set_to_none=True)
        print(it, loss.item())


if __name__ == "__main__":
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(32, 12), torch.randint(0, 30, (32, 5)), torch.randint(0, 6, (32,)))
    train(DataLoader(data, batch_size=8))
