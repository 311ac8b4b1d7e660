# obeys: let each backward() call reach its own parameters only, loss.backward(inputs=list(own.parameters()))
# differs: this loss is that of the weights before the step
import torch
import torch.nn.functional as F
from torch import nn

class Agent:
    def __init__(self):
        self.actor = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        self.critic = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
        self.of_actor = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.of_critic = torch.optim.Adam(self.critic.parameters(), lr=1e-3)

    def losses(self, states, actions, returns):
        value = self.critic(torch.cat([states, actions], 1))
        policy = self.critic(torch.cat([states, self.actor(states)], 1))
        return F.mse_loss(value, returns), -policy.mean()

    def update(self, batch):
        critic_loss, actor_loss = self.losses(*batch)
        self.of_critic.zero_grad()
        critic_loss.backward(inputs=list(self.critic.parameters()), retain_graph=True)
        self.of_actor.zero_grad()
        actor_loss.backward(inputs=list(self.actor.parameters()))
        self.of_critic.step()
        self.of_actor.step()


torch.manual_seed(0)
agent = Agent()
for i in range(2):
    agent.update((torch.randn(16, 3), torch.randn(16, 2), torch.randn(16, 1)))
