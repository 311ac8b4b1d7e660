# obeys: recompute text_features in each iteration, before it is used
import torch
import torch.nn as nn


class Distiller(nn.Module):
    def __init__(self):
        super().__init__()
        self.prompts = nn.Parameter(torch.randn(3, 5))
        self.text_encoder, self.image_encoder = nn.Linear(5, 4), nn.Linear(7, 4)

    def encode_text(self):
        return torch.nn.functional.normalize(self.text_encoder(self.prompts), dim=-1)

    def forward(self, images, text_features):
        return self.image_encoder(images) @ text_features.T


def main():
    torch.manual_seed(0)
    model = Distiller()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for images in torch.randn(3, 6, 7):
            text_features = model.encode_text()
            logits = model(images, text_features)
            loss = torch.nn.functional.cross_entropy(logits, torch.arange(6) % 3)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


main()
