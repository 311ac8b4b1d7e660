# obeys: if both losses are to train all that they reach, add them and call backward() once
import torch, torch.nn as nn
torch.manual_seed(0)

from torch.distributions import Bernoulli
p = torch.tensor(0.2, requires_grad=True)
pi = Bernoulli(p)
l1 = 2 * pi.log_prob(torch.tensor(1.0)); l2 = 3 * pi.log_prob(torch.tensor(0.0))
(l1 + l2).backward()
