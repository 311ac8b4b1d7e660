# /// script
# dependencies = ["diffusers"]
# ///
"""Diffusers: a small U-Net learns to predict noise, with a moving average of its weights."""

import torch
import trial
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel

trial.begin()
model = UNet2DModel(
    sample_size=16,
    in_channels=1,
    out_channels=1,
    layers_per_block=1,
    block_out_channels=(16, 32),
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    norm_num_groups=8,
    attention_head_dim=8,
)
average = EMAModel(model.parameters())
scheduler = DDPMScheduler(num_train_timesteps=100)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
rate = get_cosine_schedule_with_warmup(optimizer, 5, 25)
with trial.training():
    for step in range(25):
        images = torch.rand(8, 1, 16, 16).round() * 2 - 1
        noise = torch.randn_like(images)
        times = torch.randint(0, 100, (8,))
        predicted = model(scheduler.add_noise(images, noise, times), times, return_dict=False)[0]
        loss = torch.nn.functional.mse_loss(predicted, noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        optimizer.zero_grad()
        average.step(model.parameters())
        if step % 5 == 0:
            print(step, loss.item(), rate.get_last_lr())
    pipeline = DDPMPipeline(model, scheduler)
    pipeline.set_progress_bar_config(disable=True)
    print(pipeline(batch_size=1, num_inference_steps=3, output_type="np").images.mean())
trial.end(model, *average.shadow_params)
