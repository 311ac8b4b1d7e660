# /// script
# dependencies = ["geoopt"]
# ///
"""Geoopt: optimisation on the sphere, the Stiefel manifold and the Poincaré ball."""

import geoopt
import torch
import trial

trial.begin()
matrix = torch.randn(10, 10)
matrix = matrix @ matrix.T
vector = geoopt.ManifoldParameter(
    torch.nn.functional.normalize(torch.randn(10), dim=0), manifold=geoopt.Sphere()
)
frame = geoopt.ManifoldParameter(
    torch.linalg.qr(torch.randn(10, 3))[0], manifold=geoopt.Stiefel(canonical=False)
)
ball = geoopt.PoincareBall()
points = geoopt.ManifoldParameter(ball.expmap0(torch.randn(20, 2) * 0.1), manifold=ball)
target = torch.pdist(torch.randn(20, 2))
with trial.training():
    first = geoopt.optim.RiemannianSGD([vector, frame], lr=1e-2, momentum=0.9)
    for step in range(60):
        first.zero_grad()
        loss = -vector @ matrix @ vector - torch.trace(frame.T @ matrix @ frame)
        loss.backward()
        first.step()
        if step % 20 == 0:
            print(step, loss.item())
    second = geoopt.optim.RiemannianAdam([points], lr=1e-2)
    left, right = torch.triu_indices(20, 20, offset=1)
    for step in range(60):
        second.zero_grad()
        loss = (ball.dist(points[left], points[right]) - target).pow(2).mean()
        loss.backward()
        second.step()
        if step % 20 == 0:
            print(step, loss.item())
trial.end(vector, frame, points)
