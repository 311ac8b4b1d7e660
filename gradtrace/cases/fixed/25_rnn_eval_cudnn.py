import torch, torch.nn as nn
torch.manual_seed(0)

dev = 'cuda' if torch.cuda.is_available() else 'cpu'
critic = nn.LSTM(3, 4).to(dev)
y, _ = critic(torch.randn(5, 2, 3, device=dev))
critic.train()                       # too late
y.sum().backward()
