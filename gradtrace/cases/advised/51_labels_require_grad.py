# obeys: detach Y once, directly after the computation
import torch

from h51_common import DataLoader, relu, sgd, squared_loss

torch.manual_seed(0)
num_samples, num_features, num_hiddens = 200, 2, 2
X = torch.randn((num_samples, num_features), dtype=torch.float32)
true_W = torch.randn((num_hiddens, 1), requires_grad=True, dtype=torch.float32)
true_b = torch.randn(1, requires_grad=True, dtype=torch.float32)
Y = torch.mm(X, true_W) + true_b
Y = Y.detach()


def fc(x, w, b):
    return relu(torch.mm(x, w) + b)


W = torch.normal(0, 0.01, size=(num_hiddens, 1), requires_grad=True)
b = torch.zeros(1, requires_grad=True)
batch_size, lr, num_epochs = 20, 0.01, 2
dataloader = DataLoader(X, Y, batch_size, shuffle=True)
for epoch in range(num_epochs):
    for x, y in dataloader:
        l = squared_loss(fc(x, W, b), y)
        l.backward()
        sgd([W, b], lr, batch_size)
