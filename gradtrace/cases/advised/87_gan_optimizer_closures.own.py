# obeys: let each backward() call reach its own parameters only, loss.backward(inputs=list(own.parameters()))
# differs: this loss is that of the weights before the step
import torch
import torch.nn.functional as F
from torch import nn


class LitGAN(nn.Module):
    def __init__(self, latent=4):
        super().__init__()
        self.latent = latent
        self.generator = nn.Sequential(nn.Linear(latent, 16), nn.ReLU(), nn.Linear(16, 3))
        self.discriminator = nn.Sequential(nn.Linear(3, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def configure_optimizers(self):
        return (torch.optim.Adam(self.discriminator.parameters(), 1e-3),
                torch.optim.Adam(self.generator.parameters(), 1e-3))

    def training_step(self, real_img, opt_d, opt_g, g_regularize=True):
        z = torch.randn(len(real_img), self.latent)
        fake_img = self.generator(z)
        fake_pred = self.discriminator(fake_img)
        real_pred = self.discriminator(real_img)
        d_loss = F.softplus(fake_pred).mean() + F.softplus(-real_pred).mean()
        g_loss = F.softplus(-fake_pred).mean()
        self.optimizer_step(opt_d, d_loss, self.discriminator, retain=True)
        self.optimizer_step(opt_g, g_loss, self.generator, retain=True)
        opt_d.step()
        opt_g.step()

    def optimizer_step(self, optimizer, loss, own, retain):
        optimizer.zero_grad()
        loss.backward(inputs=list(own.parameters()), retain_graph=retain)


torch.manual_seed(0)
gan = LitGAN()
opt_d, opt_g = gan.configure_optimizers()
for batch in torch.randn(3, 8, 3):
    gan.training_step(batch, opt_d, opt_g)
