# obeys: if each iteration starts afresh
import torch
import torch.nn.functional as F

from h49_modeling import RecurrentModel


def training_step(model, batch):
    logits = model(batch[:, :-1], use_cache=False)
    loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    model.reset_states()
    return loss.detach()


torch.manual_seed(0)
model = RecurrentModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    optimizer.zero_grad()
    training_step(model, torch.randint(0, 11, (2, 7)))
    optimizer.step()
