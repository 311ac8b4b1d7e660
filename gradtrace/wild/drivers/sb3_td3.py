# /// script
# dependencies = ["stable-baselines3", "gymnasium"]
# ///
"""stable-baselines3: TD3 on Pendulum-v1."""

import gymnasium
import trial
from stable_baselines3 import TD3

trial.begin()
model = TD3(
    "MlpPolicy",
    gymnasium.make("Pendulum-v1"),
    seed=0,
    device="cpu",
    learning_starts=100,
    batch_size=64,
)
with trial.training():
    model.learn(total_timesteps=250)
observation, _ = gymnasium.make("Pendulum-v1").reset(seed=1)
print(model.predict(observation, deterministic=True)[0])
for name, value in sorted(model.logger.name_to_value.items()):
    if name.startswith("train/"):
        print(name, value)
trial.end(model.policy)
