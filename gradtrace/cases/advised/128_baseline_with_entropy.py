# obeys: baseline = baseline.detach()
# differs: the repaired twin gives this iteration's entropy no gradient through the reward, either
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(4, 2); opt = torch.optim.Adam(policy.parameters(), 1e-2)
baseline = torch.zeros(())
for ep in range(3):
    logp = F.log_softmax(policy(torch.randn(6, 4)), 1)
    entropy = -(logp.exp() * logp).sum(1).mean()
    reward = torch.randn(6) + 0.1 * entropy
    loss = -(logp[:, 0] * (reward - baseline)).mean()
    baseline = 0.9 * baseline + 0.1 * reward.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    baseline = baseline.detach()
