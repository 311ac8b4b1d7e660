# obeys: make all backward() calls before all steps without inputs=
import torch, torch.nn as nn
torch.manual_seed(0)

feat, cls0, att = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 2)
o0 = torch.optim.Adam([*feat.parameters(), *cls0.parameters()]); o1 = torch.optim.Adam(att.parameters())
y = torch.tensor([0, 1, 0, 1]); f = torch.relu(feat(torch.randn(4, 4)))
p0 = cls0(f); loss0 = nn.functional.cross_entropy(p0, y)
loss1 = nn.functional.cross_entropy(att(f) + p0, y)
o0.zero_grad(); loss0.backward(retain_graph=True)
o1.zero_grad()
loss1.backward()
o0.step()
o1.step()
