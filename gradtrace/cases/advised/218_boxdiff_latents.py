# obeys: compute the result from latents itself
import torch
import torch.nn as nn


class AttentionStore:
    def __init__(self):
        self.maps = []

    def __call__(self, attn):
        self.maps.append(attn)

    def reset(self):
        self.maps = []


class CrossAttention(nn.Module):
    def __init__(self, dim, store):
        super().__init__()
        self.to_q, self.to_k, self.to_v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.store = store

    def forward(self, x, context):
        attn = (self.to_q(x) @ self.to_k(context).transpose(1, 2) / 4).softmax(-1)
        self.store(attn)
        return attn @ self.to_v(context)


class UNet(nn.Module):
    def __init__(self, dim, store):
        super().__init__()
        self.inp = nn.Linear(4, dim)
        self.attn = CrossAttention(dim, store)
        self.out = nn.Linear(dim, 4)

    def forward(self, latents, t, context):
        h = torch.relu(self.inp(latents)) + t / 10
        return self.out(h + self.attn(h, context))


class BoxDiffPipeline:
    def __init__(self, dim=16):
        self.store = AttentionStore()
        self.unet = UNet(dim, self.store).requires_grad_(False)

    def compute_loss(self, token, box):
        attn = torch.stack(self.store.maps).mean(0)[..., token]
        inside = attn[:, box].topk(2, dim=-1).values.mean()
        return 1.0 - inside

    def update_latent(self, latents, loss, step_size):
        grad_cond = torch.autograd.grad(loss, [latents], retain_graph=True)[0]
        return latents - step_size * grad_cond

    def __call__(self, context, token, box, steps):
        latents = torch.randn(1, 9, 4)
        for i in range(steps):
            with torch.enable_grad():
                latents = latents.clone().detach().requires_grad_(True)
                self.store.reset()
                self.unet(latents, i, context)
                loss = self.compute_loss(token, box)
                latents = self.update_latent(latents, loss, 5.0)
            with torch.no_grad():
                latents = latents - 0.1 * self.unet(latents, i, context)
            print(i, loss.item())
        return latents


if __name__ == "__main__":
    torch.manual_seed(0)
    pipe = BoxDiffPipeline()
    pipe(torch.randn(1, 5, 16), token=2, box=torch.tensor([0, 1, 3, 4]), steps=3)
