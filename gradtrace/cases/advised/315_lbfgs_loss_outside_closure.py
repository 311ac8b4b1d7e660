# obeys: run the forward pass again inside the closure
import torch
import torch.nn.functional as F


def bundle_adjust(points, observed, iterations):
    pose = torch.zeros(6, requires_grad=True)
    optimizer = torch.optim.LBFGS([pose], max_iter=4)
    for i in range(iterations):

        def closure():
            optimizer.zero_grad()
            projected = points * torch.exp(pose[:3]) + pose[3:]
            residual = F.huber_loss(projected, observed)
            residual.backward()
            return residual

        print(i, optimizer.step(closure).item())
    return pose.detach()


torch.manual_seed(0)
points = torch.randn(10, 3)
bundle_adjust(points, 1.2 * points + 0.3, 3)
