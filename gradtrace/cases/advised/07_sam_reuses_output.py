# obeys: recompute output for the second loss
import torch, torch.nn as nn
torch.manual_seed(0)

model, crit = nn.Linear(4, 3), nn.CrossEntropyLoss()
x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
output = model(x)
crit(output, y).backward()
with torch.no_grad():                                  # SAM first_step: climb
    for p in model.parameters(): p.add_(0.05 * p.grad); p.grad = None
output = model(x)
crit(output, y).backward()
