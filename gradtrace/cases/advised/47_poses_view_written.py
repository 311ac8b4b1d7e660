# obeys: write into a clone of system.poses
import numpy as np
import torch
from torch import nn


def axisangle_to_R(v):
    zero = torch.zeros_like(v[..., :1])
    skew = torch.cat([zero, -v[..., 2:3], v[..., 1:2], v[..., 2:3], zero, -v[..., 0:1],
                      -v[..., 1:2], v[..., 0:1], zero], -1).reshape(*v.shape[:-1], 3, 3)
    return torch.eye(3) + skew + 0.5 * skew @ skew


class NeRFSystem(nn.Module):
    def __init__(self, n_images=4):
        super().__init__()
        self.register_buffer("poses", torch.eye(3, 4).repeat(n_images, 1, 1))
        self.register_buffer("directions", torch.randn(16, 3))
        self.dR = nn.Parameter(torch.randn(n_images, 3) * 0.01)
        self.dT = nn.Parameter(torch.zeros(n_images, 3))
        self.color = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, batch):
        poses = self.poses.clone()[batch["img_idxs"]]
        dR = axisangle_to_R(self.dR[batch["img_idxs"]])
        poses[..., :3] = dR @ poses[..., :3]
        poses[..., 3] += self.dT[batch["img_idxs"]]
        rays_d = self.directions @ poses[..., :3].transpose(-1, -2)
        rays_o = poses[..., 3].expand_as(rays_d)
        return self.color(torch.cat([rays_o, rays_d], -1))


torch.manual_seed(0)
np.random.seed(0)
system = NeRFSystem()
optimizer = torch.optim.Adam(system.parameters(), lr=1e-3)
for step in range(6):
    batch = {"img_idxs": int(np.random.choice(len(system.poses), 1)[0]), "rgb": torch.rand(16, 3)}
    with torch.autocast("cpu", dtype=torch.bfloat16):  # the trainer runs with precision=16
        loss = (system(batch) - batch["rgb"]).float().pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
