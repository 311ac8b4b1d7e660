import torch
import torch.nn as nn
import torch.nn.functional as F


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = nn.Embedding(20, 8)
        self.visual = nn.Linear(4, 8)
        self.fc = nn.Linear(8, 5)

    def forward(self, words, image):
        return self.fc(torch.tanh(self.bert(words) + self.visual(image)[:, None]))


def multimodal_groups(model):
    parameters = []
    params = {"lr": 1e-3, "params": [p for name, p in model.named_parameters() if "bert" in name]}
    parameters.append(params)
    params = {"lr": 1e-3, "params": [p for name, p in model.named_parameters() if "visual" in name]}
    parameters.append(params)
    params = {"lr": 5e-2, "params": [p for name, p in model.named_parameters() if name.startswith("fc")]}
    parameters.append(params)
    return parameters


torch.manual_seed(0)
model = Tagger()
optimizer = torch.optim.AdamW(multimodal_groups(model))
for step in range(12):
    words, image, tags = torch.randint(0, 20, (3, 6)), torch.rand(3, 4), torch.randint(0, 5, (18,))
    loss = F.cross_entropy(model(words, image).flatten(0, 1), tags)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
