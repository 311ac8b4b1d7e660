# obeys: clear these gradients before loss_domain.backward(), by opt_domain.zero_grad()
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
domain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
opt_encoder = torch.optim.Adam(encoder.parameters(), lr=1e-3)
opt_domain = torch.optim.Adam(domain.parameters(), lr=1e-3)


def train_step(source, target):
    features = encoder(torch.cat([source, target]))
    fooled = domain(features)
    loss_encoder = F.binary_cross_entropy_with_logits(fooled, torch.full_like(fooled, 0.5))
    opt_encoder.zero_grad()
    loss_encoder.backward()
    opt_encoder.step()

    opt_domain.zero_grad()
    logits = domain(encoder(torch.cat([source, target])).detach())
    labels = torch.cat([torch.ones(len(source), 1), torch.zeros(len(target), 1)])
    loss_domain = F.binary_cross_entropy_with_logits(logits, labels)
    loss_domain.backward()
    opt_domain.step()
    opt_domain.zero_grad()
    return loss_encoder.item(), loss_domain.item()


for _ in range(6):
    print(train_step(torch.randn(5, 6), 1 + torch.randn(5, 6)))
