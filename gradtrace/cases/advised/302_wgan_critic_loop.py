# obeys: detach fake_images in the loss whose optimizer
import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4))
critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
g_optimizer = torch.optim.RMSprop(generator.parameters(), lr=5e-4)
c_optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-4)

for epoch in range(3):
    noise = torch.randn(6, 3)
    fake_images = generator(noise)
    for _ in range(2):
        c_optimizer.zero_grad()
        real_images = torch.randn(6, 4)
        c_loss = critic(fake_images.detach()).mean() - critic(real_images).mean()
        c_loss.backward()
        c_optimizer.step()
    g_optimizer.zero_grad()
    g_loss = -critic(fake_images).mean()
    g_loss.backward()
    g_optimizer.step()
    print(epoch, c_loss.item(), g_loss.item())
