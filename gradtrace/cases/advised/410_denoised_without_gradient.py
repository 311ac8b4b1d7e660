# obeys: remove what detaches these parameters from the loss
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
denoiser = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 3, 3, padding=1))


class Smoothed(nn.Module):
    def __init__(self, classifier):
        super().__init__()
        self.classifier = classifier

    def denoise(self, x):
        noisy = x + 0.1 * torch.randn_like(x)
        return denoiser(noisy)

    def forward(self, x):
        return self.classifier(self.denoise(x))


model = Smoothed(nn.Sequential(nn.Flatten(), nn.Linear(48, 4)))
images, target = torch.rand(2, 3, 4, 4), torch.tensor([1, 1])
delta = torch.zeros(1, 3, 4, 4, requires_grad=True)
optimizer = torch.optim.Adam([delta], lr=0.05)
for step in range(12):
    loss = F.cross_entropy(model(images + delta), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
