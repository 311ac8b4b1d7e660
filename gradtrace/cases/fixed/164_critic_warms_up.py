import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
actor, critic = nn.Linear(3, 2), nn.Linear(5, 1)
of_actor = torch.optim.Adam(actor.parameters(), lr=1e-3)
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
for step in range(80):
    states = torch.randn(8, 3)
    with torch.no_grad():
        actions = actor(states)
    critic_loss = (critic(torch.cat([states, actions], 1)) - states.sum(1, keepdim=True)).pow(2).mean()
    of_critic.zero_grad()
    critic_loss.backward()
    of_critic.step()
    if step >= 50:
        actor_loss = -critic(torch.cat([states, actor(states)], 1)).mean()
        of_actor.zero_grad()
        actor_loss.backward()
        of_actor.step()
