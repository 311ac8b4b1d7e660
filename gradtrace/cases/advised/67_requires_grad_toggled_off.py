# obeys: before the forward pass, call requires_grad_(True) on model.encoder.weight, model.encoder.bias
import torch
from torch import nn


class TwoModels(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(6, 4)
        self.predictor = nn.Linear(4, 6)

    def configure_optimizers(self):
        return [torch.optim.Adam(self.encoder.parameters(), 1e-3), torch.optim.Adam(self.predictor.parameters(), 1e-3)]

    def training_step(self, batch, batch_idx, optimizer_idx):
        if optimizer_idx == 0:
            return self.encoder(batch).pow(2).mean()
        z = self.encoder(batch).detach()
        return (self.predictor(z) - batch).pow(2).mean()


class Trainer:
    def fit(self, model, batches):
        optimizers = model.configure_optimizers()
        for batch_idx, batch in enumerate(batches):
            for opt_idx, optimizer in enumerate(optimizers):
                if batch_idx == 0 and opt_idx == 0:
                    pass  # nothing toggled yet
                else:
                    self.toggle(model, optimizers[1])
                for param in optimizer.param_groups[0]["params"]:
                    param.requires_grad_(True)
                loss = model.training_step(batch, batch_idx, opt_idx)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    def toggle(self, model, optimizer):
        for param in model.parameters():
            param.requires_grad = False
        for group in optimizer.param_groups:
            for param in group["params"]:
                param.requires_grad = True


torch.manual_seed(0)
Trainer().fit(TwoModels(), [torch.randn(3, 6) for _ in range(2)])
