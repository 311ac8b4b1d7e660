import torch
import torch.nn.functional as F
from torch import nn

class Actor(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(8, 2)

    def forward(self, x):
        return self.head(F.relu(self.encoder(x)).detach())


torch.manual_seed(0)
encoder, critic = nn.Linear(4, 8), nn.Linear(8, 1)
actor = Actor(encoder)
of_critic = torch.optim.Adam([*encoder.parameters(), *critic.parameters()], lr=1e-2)
of_actor = torch.optim.Adam(actor.parameters(), lr=1e-2)
for x in torch.randn(60, 8, 4):
    critic_loss = (critic(F.relu(encoder(x))) - x.sum(1, keepdim=True)).pow(2).mean()
    of_critic.zero_grad()
    critic_loss.backward()
    of_critic.step()
    actor_loss = F.cross_entropy(actor(x), (x.sum(1) > 0).long())
    of_actor.zero_grad()
    actor_loss.backward()
    of_actor.step()
