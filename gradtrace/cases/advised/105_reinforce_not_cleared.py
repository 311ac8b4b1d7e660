# obeys: empty saved at the end of each iteration
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
saved, rewards = [], []


def finish_episode():
    returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    loss = -(torch.stack(saved) * returns).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    saved.clear()
    rewards.clear()


for episode in range(3):
    for t in range(5):
        logits = policy(torch.randn(4))
        action = torch.distributions.Categorical(logits=logits.detach()).sample()
        saved.append(torch.log_softmax(logits, -1)[action])
        rewards.append(float(action))
    finish_episode()
