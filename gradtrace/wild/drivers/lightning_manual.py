# /// script
# dependencies = ["lightning"]
# ///
"""Lightning with manual optimisation: a GAN, two optimizers taken in turn."""

import logging

import lightning
import torch
import trial
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits


class GAN(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
        self.discriminator = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
        self.losses = []

    def judge(self, x, real: bool):
        logits = self.discriminator(x)
        return binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(real)))

    def training_step(self, batch, index):
        (real,) = batch
        for_generator, for_discriminator = self.optimizers()
        noise = torch.randn(len(real), 8, device=self.device)

        self.toggle_optimizer(for_generator)
        fake = self.generator(noise)
        loss_generator = self.judge(fake, True)
        for_generator.zero_grad()
        self.manual_backward(loss_generator)
        for_generator.step()
        self.untoggle_optimizer(for_generator)

        self.toggle_optimizer(for_discriminator)
        loss = (self.judge(real, True) + self.judge(self.generator(noise).detach(), False)) / 2
        for_discriminator.zero_grad()
        self.manual_backward(loss)
        for_discriminator.step()
        self.untoggle_optimizer(for_discriminator)

        self.log_dict({"g": loss_generator, "d": loss})
        self.losses.append((loss_generator.item(), loss.item()))

    def configure_optimizers(self):
        return (
            torch.optim.Adam(self.generator.parameters(), lr=2e-4, betas=(0.5, 0.999)),
            torch.optim.Adam(self.discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999)),
        )


logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
trial.begin()
rows = torch.utils.data.TensorDataset(torch.randn(256, 2) * 0.3 + 1)
model = GAN()
trainer = lightning.Trainer(
    max_epochs=12,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
with trial.training():
    trainer.fit(model, torch.utils.data.DataLoader(rows, batch_size=16, shuffle=True))
print(model.losses[::10])
trial.end(model)
