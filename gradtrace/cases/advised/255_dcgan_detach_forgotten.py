# obeys: detach fake where errD_fake reads it
# DCGAN of pytorch/examples with the detach() of the discriminator's fake batch forgotten, reduced.
# plain watch: "two losses share a part of the graph" (right; advice: detach where the FIRST loss reads it).
# --strict:    "something ... was computed once and is used in every iteration" (wrong: fake is made anew each time),
#              first advice "detach fake where THIS loss reads it" (errG): obeyed, the generator is never trained again.
# fix:         "Proven: retain_graph=True" at the first backward, instead of netD(fake.detach()).
import torch
from torch import nn
class G(nn.Module):
    def __init__(self):
        super().__init__(); self.main = nn.Linear(4, 8)
    def forward(self, input):
        output = self.main(input)
        return output
class D(nn.Module):
    def __init__(self):
        super().__init__(); self.main = nn.Linear(8, 1)
    def forward(self, input):
        output = self.main(input)
        return output
torch.manual_seed(0)
netG, netD = G(), D()
optimizerD = torch.optim.SGD(netD.parameters(), lr=0.1)
optimizerG = torch.optim.SGD(netG.parameters(), lr=0.1)
for i in range(3):
    netD.zero_grad()
    output = netD(torch.randn(2, 8))
    errD_real = (output - 1).pow(2).mean()
    errD_real.backward()
    fake = netG(torch.randn(2, 4))
    output = netD(fake.detach())
    errD_fake = output.pow(2).mean()
    errD_fake.backward()
    optimizerD.step()
    netG.zero_grad()
    output = netD(fake)
    errG = (output - 1).pow(2).mean()
    errG.backward()
    optimizerG.step()
