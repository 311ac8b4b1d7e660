# obeys: detach cond_embeddings once, directly after the computation
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
text_encoder = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 8))
unet = nn.Linear(16, 8).requires_grad_(False)


def encode(ids):
    return text_encoder(ids).mean(0, keepdim=True)


def noise_of(latent, embedding):
    return unet(torch.cat([latent, embedding], -1))


def null_optimization(latents, cond_embeddings, uncond_embeddings, inner_steps=3):
    latent_cur = latents[-1]
    result = []
    for i in range(len(latents) - 1):
        uncond_embeddings = uncond_embeddings.clone().detach()
        uncond_embeddings.requires_grad = True
        optimizer = torch.optim.Adam([uncond_embeddings], lr=1e-2)
        target = latents[len(latents) - i - 2]
        with torch.no_grad():
            noise_cond = noise_of(latent_cur, cond_embeddings)
        for j in range(inner_steps):
            noise_uncond = noise_of(latent_cur, uncond_embeddings)
            guided = noise_uncond + 2.0 * (noise_cond - noise_uncond)
            prior = 0.1 * F.mse_loss(uncond_embeddings, cond_embeddings)
            loss = F.mse_loss(latent_cur - 0.1 * guided, target) + prior
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        result.append(uncond_embeddings.detach())
        with torch.no_grad():
            latent_cur = latent_cur - 0.1 * noise_of(latent_cur, uncond_embeddings)
    return result


cond = encode(torch.tensor([3, 7, 1])).detach()
with torch.no_grad():
    uncond = encode(torch.tensor([0]))
null_optimization([torch.randn(1, 8) for _ in range(4)], cond, uncond)
