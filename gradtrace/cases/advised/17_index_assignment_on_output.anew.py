# obeys: use an out-of-place operation
import torch, torch.nn as nn
torch.manual_seed(0)

a = torch.tensor([1., 2., 3.], requires_grad=True)
b = 1 / ((-a).exp() + 1)
b[1] = 2
b.sum().backward()               # no error: nothing that was saved changed
assert a.grad[1] == 0
b = a.sigmoid()
b = torch.where(torch.tensor([False, True, False]), 2.0, b)
b.sum().backward()
