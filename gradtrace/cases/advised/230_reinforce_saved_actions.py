# obeys: empty model.saved_actions at the end of each iteration, and the lists filled beside it
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical


class CartLike:
    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def reset(self):
        self.s, self.t = torch.randn(4, generator=self.g), 0
        return self.s

    def step(self, a):
        self.t += 1
        self.s = 0.9 * self.s + 0.1 * (2 * a - 1) + 0.05 * torch.randn(4, generator=self.g)
        return self.s, float(1.0 - self.s.abs().mean()), self.t >= 6


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 32)
        self.action_head = nn.Linear(32, 2)
        self.value_head = nn.Linear(32, 1)
        self.saved_actions = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


def select_action(model, state):
    probs, value = model(state)
    m = Categorical(probs)
    action = m.sample()
    model.saved_actions.append((m.log_prob(action), value))
    return action.item()


def finish_episode(model, optimizer, gamma):
    R, returns = 0, []
    for r in model.rewards[::-1]:
        R = r + gamma * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    policy_losses, value_losses = [], []
    for (log_prob, value), R in zip(model.saved_actions, returns):
        policy_losses.append(-log_prob * (R - value.item()))
        value_losses.append(F.smooth_l1_loss(value, R.view(1)))
    optimizer.zero_grad()
    loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
    loss.backward()
    optimizer.step()
    del model.rewards[:]
    del model.saved_actions[:]
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--episodes", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    env, model = CartLike(0), Policy()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    for ep in range(args.episodes):
        state, done = env.reset(), False
        while not done:
            action = select_action(model, state)
            state, reward, done = env.step(action)
            model.rewards.append(reward)
        print(ep, finish_episode(model, optimizer, args.gamma))


if __name__ == "__main__":
    main()
