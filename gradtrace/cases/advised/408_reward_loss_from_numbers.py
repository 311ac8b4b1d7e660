# obeys: remove what detaches these parameters from the loss
import torch
import torch.nn as nn
import torch.nn.functional as F


class Generator(nn.Module):
    def __init__(self, size=10):
        super().__init__()
        self.encoder, self.rnn, self.decoder = (
            nn.Embedding(size, 8),
            nn.GRUCell(8, 8),
            nn.Linear(8, size),
        )

    def forward(self, character, hidden):
        hidden = self.rnn(self.encoder(character), hidden)
        return self.decoder(hidden), hidden


def policy_gradient(generator, optimizer, n_batch=3, gamma=0.97):
    rl_loss = torch.zeros(1, requires_grad=True)
    optimizer.zero_grad()
    for _ in range(n_batch):
        trajectory = torch.randint(0, 10, (5,))
        discounted_reward = float(trajectory.sum())
        hidden = torch.zeros(1, 8)
        for p in range(len(trajectory) - 1):
            output, hidden = generator(trajectory[p : p + 1], hidden)
            log_probs = F.log_softmax(output, dim=1)
            top_i = trajectory[p + 1]
            rl_loss = rl_loss - log_probs[0, top_i] * discounted_reward
            discounted_reward = discounted_reward * gamma
    rl_loss = rl_loss / n_batch
    rl_loss.backward()
    optimizer.step()
    return rl_loss.item()


torch.manual_seed(0)
generator = Generator()
optimizer = torch.optim.Adadelta(generator.parameters(), lr=1.0)
for i in range(12):
    policy_gradient(generator, optimizer)
