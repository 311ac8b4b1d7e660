# obeys: detach fake where d_loss reads it
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
discriminator = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
for real in torch.randn(3, 16, 3):
    fake = generator(torch.randn(16, 2))
    of_generator.zero_grad()
    F.softplus(-discriminator(fake)).mean().backward()
    of_generator.step()
    of_discriminator.zero_grad()
    d_loss = F.softplus(discriminator(fake.detach())).mean() + F.softplus(-discriminator(real)).mean()
    d_loss.backward()
    of_discriminator.step()
