# obeys: run the forward pass outside torch.no_grad()
import torch
from torch import nn


def attribute(model, image, target):
    image = image.clone().requires_grad_()
    score = model(image.unsqueeze(0))[0, target]
    score.backward()
    return image.grad.abs()


def explain_all(model, images):
    model.eval()
    maps = []
    if True:
        for image in images:
            target = model(image.unsqueeze(0)).argmax(1).item()
            maps.append(attribute(model, image, target))
    return torch.stack(maps)


torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4))
print(explain_all(model, torch.randn(3, 3, 4)).shape)
