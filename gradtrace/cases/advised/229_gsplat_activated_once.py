# obeys: recompute scene.gaussians in each iteration of the loop at line 38, before it is used
import torch
import torch.nn.functional as F


def rasterize(means, quats, scales, opacities, colors, uv):
    """a differentiable stand-in of the splatting kernel"""
    rot = torch.stack([1 - 2 * quats[:, 2] ** 2, 2 * quats[:, 0] * quats[:, 3]], -1)
    d = (uv[:, None] - means[None, :, :2] * rot[None]) / scales[None, :, :2]
    w = opacities[None] * torch.exp(-0.5 * d.pow(2).sum(-1))
    return (w[..., None] * colors[None]).sum(1)


class Scene:
    def __init__(self, points, rgb):
        n = len(points)
        means = torch.nn.Parameter(points.clone())
        quats = torch.nn.Parameter(torch.randn(n, 4))
        log_scales = torch.nn.Parameter(torch.full((n, 3), -0.5))
        raw_opacities = torch.nn.Parameter(torch.logit(torch.full((n,), 0.3)))
        colors = torch.nn.Parameter(rgb.clone())
        self.params = {"means": means, "quats": quats, "scales": log_scales, "opacities": raw_opacities, "colors": colors}

    @property
    def gaussians(self):
        p = self.params
        return {
            "means": p["means"],
            "quats": F.normalize(p["quats"], dim=-1),
            "scales": torch.exp(p["scales"]),
            "opacities": torch.sigmoid(p["opacities"]),
            "colors": p["colors"],
        }

    def render(self, uv):
        return rasterize(uv=uv, **self.gaussians)


def run_3dgs_optim(scene, images, uv, iters, loss_opacity_fac=0.01, loss_scale_fac=0.01):
    lrs = {"means": 1e-3, "quats": 1e-3, "scales": 5e-3, "opacities": 5e-2, "colors": 2.5e-3}
    optimizers = {k: torch.optim.Adam([{"params": [p], "lr": lrs[k]}]) for k, p in scene.params.items()}
    losses = []
    for it in range(iters):
        render = scene.render(uv)
        loss = F.l1_loss(render, images[it % len(images)])
        loss += loss_opacity_fac * scene.gaussians["opacities"].abs().mean()
        loss += loss_scale_fac * scene.gaussians["scales"].abs().mean()
        loss.backward()
        for opt in optimizers.values():
            opt.step()
            opt.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    scene = Scene(torch.rand(12, 3), torch.rand(12, 3))
    grid = torch.stack(torch.meshgrid(torch.linspace(0, 1, 5), torch.linspace(0, 1, 5), indexing="ij"), -1).view(-1, 2)
    print(run_3dgs_optim(scene, torch.rand(2, 25, 3), grid, iters=4))
