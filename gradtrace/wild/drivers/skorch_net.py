# /// script
# dependencies = ["skorch", "scikit-learn"]
# ///
"""skorch: a network as an estimator of scikit-learn, in a pipeline and a search."""

import numpy as np
import torch
import trial
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier
from torch import nn


class Classifier(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(10, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, 2), nn.Softmax(-1)
        )

    def forward(self, x):
        return self.layers(x)


trial.begin()
x = np.random.randn(300, 10).astype(np.float32)
y = (x[:, :3].sum(1) > 0).astype(np.int64)
net = NeuralNetClassifier(
    Classifier,
    max_epochs=10,
    lr=0.1,
    verbose=0,
    optimizer=torch.optim.SGD,
    iterator_train__shuffle=True,
)
with trial.training():
    pipeline = Pipeline([("scale", StandardScaler()), ("net", net)])
    pipeline.fit(x, y)
    print(net.history[:, "train_loss"], net.history[:, "valid_acc"])
    search = GridSearchCV(net, {"lr": [0.05, 0.2], "module__width": [8, 16]}, cv=2, refit=True)
    search.fit(x, y)
    print(search.best_params_, search.best_score_)
trial.end(net.module_, search.best_estimator_.module_)
