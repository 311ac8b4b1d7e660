# /// script
# dependencies = ["pytorch-metric-learning"]
# ///
"""pytorch-metric-learning: mined triplets, proxies with an optimizer of their own, a memory."""

import torch
import trial
from pytorch_metric_learning import distances, losses, miners
from torch import nn

trial.begin()
x = torch.randn(128, 10)
labels = x[:, :2].gt(0).long() @ torch.tensor([1, 2])
models = []
with trial.training():
    for criterion in (
        losses.TripletMarginLoss(margin=0.2, distance=distances.CosineSimilarity()),
        losses.ProxyAnchorLoss(num_classes=4, embedding_size=8),
        losses.CrossBatchMemory(losses.NTXentLoss(), embedding_size=8, memory_size=64),
        losses.ArcFaceLoss(num_classes=4, embedding_size=8),
    ):
        model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 8))
        models += [model, criterion]
        miner = miners.MultiSimilarityMiner()
        optimizer = torch.optim.Adam([*model.parameters(), *criterion.parameters()], lr=1e-3)
        for _ in range(6):
            for inputs, targets in zip(x.split(32), labels.split(32), strict=True):
                optimizer.zero_grad()
                embeddings = model(inputs)
                loss = criterion(embeddings, targets, miner(embeddings, targets))
                loss.backward()
                optimizer.step()
            print(loss.item())
trial.end(*models)
