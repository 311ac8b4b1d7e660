# obeys: remove the detach() or .data if this loss must train through the value; detach only constants
import torch, torch.nn as nn
torch.manual_seed(0)

policy = nn.Linear(4, 2); s = torch.randn(8, 4); act = torch.randint(0, 2, (8,)); adv = torch.randn(8)
old = torch.distributions.Categorical(logits=policy(s)).log_prob(act)
new = torch.distributions.Categorical(logits=policy(s)).log_prob(act)
ratio = (new - old.detach()).exp()
loss = -(ratio * adv).mean()
loss.backward()
