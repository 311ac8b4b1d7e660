import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi, self.v = nn.Linear(5, 3), nn.Linear(5, 1)

    def forward(self, s):
        return Categorical(logits=self.pi(s)), self.v(s).squeeze(-1)


class Rollout:
    def __init__(self):
        self.log_probs, self.values, self.rewards = [], [], []

    def reset(self):
        self.log_probs, self.values, self.rewards = [], [], []


def play(agent, rollout, steps):
    s = torch.randn(5)
    for _ in range(steps):
        dist, value = agent(s)
        a = dist.sample()
        rollout.log_probs.append(dist.log_prob(a))
        rollout.values.append(value)
        rollout.rewards.append(float(s[a]))
        s = 0.9 * s + 0.1 * torch.randn(5)


def update(agent, optimizer, rollout):
    returns = torch.tensor(rollout.rewards).flip(0).cumsum(0).flip(0)
    log_probs, values = torch.stack(rollout.log_probs), torch.stack(rollout.values)
    advantage = returns - values.detach()
    loss = -(log_probs * advantage).mean() + 0.5 * F.mse_loss(values, returns)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    rollout.reset()
    return loss.item()


torch.manual_seed(0)
agent, rollout = Agent(), Rollout()
optimizer = torch.optim.Adam(agent.parameters(), lr=1e-2)
for episode in range(3):
    play(agent, rollout, 4)
    print(episode, update(agent, optimizer, rollout))
