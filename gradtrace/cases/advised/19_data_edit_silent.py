# obeys: edit a clone
import torch, torch.nn as nn
torch.manual_seed(0)

a = torch.tensor([1., 2., 3.], requires_grad=True)
out = a.sigmoid()
edited = out.clone()
edited.data.zero_()
out.sum().backward()
want = torch.sigmoid(a.detach()) * (1 - torch.sigmoid(a.detach()))
assert torch.allclose(a.grad, want), f'SILENT wrong gradient {a.grad.tolist()} instead of {want.tolist()}'
