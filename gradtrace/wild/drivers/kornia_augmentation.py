# /// script
# dependencies = ["kornia"]
# ///
"""Kornia: augmentations in the loop, and the registration of an image by gradient descent."""

import kornia
import torch
import trial
from torch import nn

trial.begin()
augment = kornia.augmentation.AugmentationSequential(
    kornia.augmentation.RandomHorizontalFlip(p=0.5),
    kornia.augmentation.RandomAffine(degrees=20.0, p=0.7),
    kornia.augmentation.ColorJitter(0.1, 0.1, 0.1, 0.1, p=0.5),
    data_keys=["input"],
)
images = torch.rand(64, 3, 16, 16)
labels = (images[:, 0].mean((1, 2)) > 0.5).long()
model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 2)
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
angle = torch.zeros(1, requires_grad=True)
turning = torch.optim.Adam([angle], lr=0.5)
picture = kornia.filters.gaussian_blur2d(torch.rand(1, 1, 32, 32), (7, 7), (2.0, 2.0))
turned = kornia.geometry.rotate(picture, torch.tensor([8.0]))
with trial.training():
    for _ in range(10):
        for x, label in zip(images.split(16), labels.split(16), strict=True):
            loss = nn.functional.cross_entropy(model(augment(x)), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(loss.item())
    for step in range(60):
        loss = kornia.losses.charbonnier_loss(
            kornia.geometry.rotate(picture, angle), turned, reduction="mean"
        )
        loss = loss + 0.1 * kornia.losses.ssim_loss(
            kornia.geometry.rotate(picture, angle), turned, window_size=5
        )
        turning.zero_grad()
        loss.backward()
        turning.step()
        if step % 10 == 0:
            print(step, loss.item(), angle.item())
trial.end(model, angle)
