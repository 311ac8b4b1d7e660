# obeys: remove what detaches these parameters from the loss
import torch
from torch import nn


class FlowNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, feats):
        return self.enc(feats) * 10


def bpnp(pts2d, pts3d):
    """pose = least squares solution (differentiable)"""
    return torch.linalg.lstsq(pts3d, pts2d).solution


def flow_to_points(flow_up, grid):
    return grid + flow_up


torch.manual_seed(0)
model = FlowNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
pts3d, grid, gt_pose = torch.randn(30, 3), torch.randn(30, 2) * 20, torch.randn(3, 2)
for it in range(4):
    feats = torch.randn(30, 8)
    flow_up = model(feats)
    pts2d_pro = flow_to_points(flow_up, grid)
    P_out = bpnp(pts2d_pro, pts3d)
    loss = (P_out - gt_pose).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("grad of the network:", model.enc[0].weight.grad)
