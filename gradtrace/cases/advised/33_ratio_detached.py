# obeys: take the detach() or .data out where the value leads to the loss; detach only what is to be a constant in it
import torch, torch.nn as nn
torch.manual_seed(0)

policy = nn.Linear(4, 2); s = torch.randn(8, 4); act = torch.randint(0, 2, (8,)); adv = torch.randn(8)
old = torch.distributions.Categorical(logits=policy(s)).log_prob(act)
new = torch.distributions.Categorical(logits=policy(s)).log_prob(act)
ratio = (new - old.detach()).exp()
loss = -(ratio * adv).mean()
loss.backward()
