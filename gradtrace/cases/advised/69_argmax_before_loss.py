# obeys: compute the loss from the value before that operation, which has a gradient (for a cross entropy the logits
import torch
from torch import nn


class BlobModel(nn.Module):
    def __init__(self, input_features, output_features, hidden_units=8):
        super().__init__()
        self.linear_layer_stack = nn.Sequential(
            nn.Linear(input_features, hidden_units), nn.ReLU(),
            nn.Linear(hidden_units, output_features))

    def forward(self, x):
        return self.linear_layer_stack(x)


def accuracy(y_true, y_pred):
    return (y_true == y_pred).float().mean().item() * 100


torch.manual_seed(42)
X_train, y_train = torch.randn(40, 2), torch.randint(0, 4, (40,)).float()
model = BlobModel(2, 4)
loss_fn = nn.CrossEntropyLoss()
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
Epochs = 3
for epoch in range(Epochs):
    model.train()
    train_logits = model(X_train)
    train_preds_probs = torch.softmax(train_logits, dim=1).argmax(dim=1).type(torch.float32)
    loss = loss_fn(train_logits, y_train.long())
    train_accu = accuracy(y_train, train_preds_probs)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
