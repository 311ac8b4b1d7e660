# /// script
# dependencies = ["monai"]
# ///
"""MONAI: a U-Net segments squares; dictionary transforms, Dice loss and metric, sliding window."""

import torch
import trial
from monai.data import CacheDataset, DataLoader, decollate_batch
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet
from monai.transforms import Activations, AsDiscrete, Compose, RandFlipd, RandGaussianNoised
from monai.utils import set_determinism

trial.begin()
set_determinism(seed=0)
items = []
for _ in range(24):
    label = torch.zeros(1, 16, 16)
    row, column = torch.randint(0, 10, (2,)).tolist()
    label[:, row : row + 6, column : column + 6] = 1
    items.append({"image": label + 0.3 * torch.randn(1, 16, 16), "label": label})
change = Compose(
    [
        RandFlipd(["image", "label"], prob=0.5, spatial_axis=0),
        RandGaussianNoised(["image"], prob=0.5),
    ]
)
loader = DataLoader(CacheDataset(items, change, progress=False), batch_size=8, shuffle=True)
model = UNet(2, 1, 1, channels=(8, 16, 32), strides=(2, 2), num_res_units=1)
criterion = DiceCELoss(sigmoid=True)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
metric = DiceMetric(include_background=True)
binary = Compose([Activations(sigmoid=True), AsDiscrete(threshold=0.5)])
with trial.training():
    for _ in range(6):
        for batch in loader:
            optimizer.zero_grad()
            loss = criterion(model(batch["image"]), batch["label"])
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for batch in loader:
                out = sliding_window_inference(batch["image"], (16, 16), 4, model)
                metric([binary(one) for one in decollate_batch(out)], batch["label"])
        model.train()
        print(loss.item(), metric.aggregate().item())
        metric.reset()
trial.end(model)
