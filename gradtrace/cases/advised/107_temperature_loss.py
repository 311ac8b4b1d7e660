# obeys: detach log_prob where alpha_loss reads it
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
policy, critic = nn.Linear(3, 4), nn.Linear(5, 1)
log_alpha = torch.zeros(1, requires_grad=True)
of_policy = torch.optim.Adam(policy.parameters(), lr=1e-3)
of_alpha = torch.optim.Adam([log_alpha], lr=1e-3)
for states in torch.randn(3, 16, 3):
    mean, log_std = policy(states).chunk(2, dim=1)
    normal = torch.distributions.Normal(mean, log_std.exp())
    action = normal.rsample()
    log_prob = normal.log_prob(action).sum(1)
    value = critic(torch.cat([states, action], 1)).squeeze(1)
    policy_loss = (log_alpha.exp().detach() * log_prob - value).mean()
    of_policy.zero_grad()
    policy_loss.backward()
    of_policy.step()
    alpha_loss = -(log_alpha * (log_prob.detach() - 2.0)).mean()
    of_alpha.zero_grad()
    alpha_loss.backward()
    of_alpha.step()
