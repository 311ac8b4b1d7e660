# /// script
# dependencies = ["lightning"]
# ///
"""Lightning: what automatic optimization refuses, and what `toggle_optimizer` is for."""

import logging
import warnings

import lightning
import torch
from torch import nn

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
warnings.simplefilter("ignore")


def fit(module, batches=2):
    """Train the module for some batches; return how that ends."""
    trainer = lightning.Trainer(
        max_steps=-1,
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    rows = torch.utils.data.TensorDataset(torch.ones(4 * batches, 3))
    try:
        trainer.fit(module, torch.utils.data.DataLoader(rows, batch_size=4))
        return "runs"
    except Exception as error:
        return f"{type(error).__name__}: {str(error).partition(' (')[0].partition('. ')[0]}"


class Recurrent(lightning.LightningModule):
    """Automatic optimization, and a hidden state that is carried over batches."""

    def __init__(self, detach):
        super().__init__()
        self.cell, self.hidden, self.detach = nn.GRUCell(3, 3), None, detach

    def training_step(self, batch, index):
        self.hidden = self.cell(batch[0], self.hidden)
        loss = self.hidden.square().mean()
        if self.detach:
            self.hidden = self.hidden.detach()
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


print("hidden state carried over batches:", fit(Recurrent(detach=False)))
print(
    "    self.hidden.detach():          runs, as it should:", fit(Recurrent(detach=True)) == "runs"
)


class Gan(lightning.LightningModule):
    def __init__(self, manual=True, toggle=True, order="step, then judge again"):
        super().__init__()
        torch.manual_seed(0)
        self.automatic_optimization = not manual
        self.generator = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        self.discriminator = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
        self.toggle, self.order, self.left_over = toggle, order, None

    def configure_optimizers(self):
        nets = self.generator, self.discriminator
        return [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]

    def training_step(self, batch, index):
        for_generator, for_discriminator = self.optimizers()
        fake = self.generator(batch[0])
        judged = self.discriminator(fake)

        for_discriminator.zero_grad()
        if self.order == "one judgement, retained":
            self.manual_backward(judged.square().mean(), retain_graph=True)
        else:
            self.manual_backward(self.discriminator(fake.detach()).square().mean())
        for_discriminator.step()
        for_discriminator.zero_grad()

        if self.toggle:
            self.toggle_optimizer(for_generator)
        if self.order == "step, then judge again":
            judged = self.discriminator(fake)
        for_generator.zero_grad()
        self.manual_backward((judged - 1).square().mean())
        for_generator.step()
        if self.toggle:
            self.untoggle_optimizer(for_generator)
        self.left_over = any(p.grad is not None for p in self.discriminator.parameters())


print("two optimizers, automatic:        ", fit(Gan(manual=False)))
print("manual, one judgement, retained:  ", fit(Gan(order="one judgement, retained")))
for toggle in (False, True):
    gan = Gan(toggle=toggle)
    print(f"manual, judged again, toggle {toggle!s:5}:", fit(gan))
    print("    the generator's loss left gradients in the discriminator:", gan.left_over)
print(f"\nlightning {lightning.__version__}, torch {torch.__version__.partition('+')[0]}")
