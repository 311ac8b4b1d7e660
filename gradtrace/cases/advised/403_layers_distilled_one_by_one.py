# obeys: add them and call backward() once
# obeys: add the losses and call backward() once
import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(depth)])

    def forward(self, x):
        states = [self.embed(x)]
        for layer in self.layers:
            states.append(torch.tanh(layer(states[-1])))
        return states


torch.manual_seed(0)
teacher, student = Encoder(6), Encoder(3)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
for batch in torch.randn(3, 5, 6):
    with torch.no_grad():
        t_states = teacher(batch)
    s_states = student(batch)
    optimizer.zero_grad()
    total = 0
    for i in range(3):
        kl = F.kl_div(F.log_softmax(s_states[i + 1], -1), F.softmax(t_states[2 * i + 2], -1), reduction="batchmean")
        total = total + kl
    total.backward()
    optimizer.step()
