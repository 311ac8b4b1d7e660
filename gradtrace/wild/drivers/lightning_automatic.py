# /// script
# dependencies = ["lightning"]
# ///
"""Lightning with automatic optimisation: an autoencoder, clipping and a schedule."""

import logging

import lightning
import torch
import trial
from torch import nn


class AutoEncoder(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 64))
        self.losses = []

    def training_step(self, batch, index):
        (x,) = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        (x,) = batch
        self.log("val_loss", nn.functional.mse_loss(self.decoder(self.encoder(x)), x))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
trial.begin()
rows = torch.utils.data.TensorDataset(torch.randn(256, 64))
model = AutoEncoder()
trainer = lightning.Trainer(
    max_epochs=16,
    accelerator="cpu",
    gradient_clip_val=0.5,
    accumulate_grad_batches=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
with trial.training():
    trainer.fit(
        model,
        torch.utils.data.DataLoader(rows, batch_size=16, shuffle=True),
        torch.utils.data.DataLoader(rows, batch_size=64),
    )
print(model.losses[::10])
print(trainer.callback_metrics["val_loss"].item())
trial.end(model)
