# /// script
# dependencies = ["torchrl", "tensordict", "gymnasium"]
# ///
"""TorchRL: PPO with a collector, generalised advantages and a replay buffer."""

import logging

import torch
import trial
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement
from torchrl.envs import GymEnv, StepCounter, TransformedEnv
from torchrl.modules import OneHotCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

logging.getLogger("torchrl").setLevel(logging.ERROR)  # its lines carry times
trial.begin()
environment = TransformedEnv(GymEnv("CartPole-v1", device="cpu"), StepCounter())
environment.set_seed(0)
layers = nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2)
policy = TensorDictModule(nn.Sequential(*layers), ["observation"], ["logits"])
actor = ProbabilisticActor(
    policy, in_keys=["logits"], distribution_class=OneHotCategorical, return_log_prob=True
)
layers = nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1)
critic = ValueOperator(nn.Sequential(*layers), in_keys=["observation"])
collector = Collector(environment, actor, frames_per_batch=128, total_frames=512, device="cpu")
buffer = ReplayBuffer(
    storage=LazyTensorStorage(128), sampler=SamplerWithoutReplacement(), batch_size=32
)
advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic, average_gae=True)
objective = ClipPPOLoss(actor_network=actor, critic_network=critic, clip_epsilon=0.2)
optimizer = torch.optim.Adam(objective.parameters(), lr=3e-4)
with trial.training():
    for data in collector:
        for _ in range(3):
            advantage(data)
            buffer.extend(data.reshape(-1))
            for _ in range(4):
                losses = objective(buffer.sample())
                loss = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
                loss.backward()
                nn.utils.clip_grad_norm_(objective.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        print(loss.item(), data["next", "reward"].mean().item())
collector.shutdown()
trial.end(actor, critic)
