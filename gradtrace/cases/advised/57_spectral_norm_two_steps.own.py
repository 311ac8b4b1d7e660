# obeys: let each backward() call reach its own parameters only, loss.backward(inputs=list(own.parameters()))
# differs: this loss is that of the weights before the step
import torch
from torch import nn
from torch.nn.utils import spectral_norm


class Trainer:
    def __init__(self):
        self.generator = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        self.critic = nn.Sequential(spectral_norm(nn.Linear(2, 5)), nn.LeakyReLU(0.2), spectral_norm(nn.Linear(5, 1)))
        self.opt1 = torch.optim.SGD(self.critic.parameters(), lr=1e-3)
        self.opt2 = torch.optim.SGD(self.generator.parameters(), lr=1e-3)

    def step(self, z):
        output = self.critic(self.generator(z))
        loss = output.abs().mean()
        # first propagation: the critic
        self.opt1.zero_grad()
        loss.backward(inputs=list(self.critic.parameters()), retain_graph=True)
        # second propagation of the remembered output: the generator
        self.opt2.zero_grad()
        (-loss).backward(inputs=list(self.generator.parameters()))
        self.opt1.step()
        self.opt2.step()


torch.manual_seed(0)
trainer = Trainer()
for i in range(2):
    trainer.step(torch.randn(7, 3))
