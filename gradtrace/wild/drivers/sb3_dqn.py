# /// script
# dependencies = ["stable-baselines3", "gymnasium"]
# ///
"""stable-baselines3: DQN on CartPole-v1."""

import gymnasium
import trial
from stable_baselines3 import DQN

trial.begin()
model = DQN(
    "MlpPolicy",
    gymnasium.make("CartPole-v1"),
    seed=0,
    device="cpu",
    learning_starts=100,
    target_update_interval=100,
)
with trial.training():
    model.learn(total_timesteps=600)
observation, _ = gymnasium.make("CartPole-v1").reset(seed=1)
print(model.predict(observation, deterministic=True)[0])
for name, value in sorted(model.logger.name_to_value.items()):
    if name.startswith("train/"):
        print(name, value)
trial.end(model.policy)
