# /// script
# dependencies = ["pytorch-tabnet"]
# ///
"""TabNet: attention over the columns of a table, ghost batch norms, its own training loop."""

import numpy as np
import torch
import trial
from pytorch_tabnet.tab_model import TabNetClassifier

trial.begin()
table = np.random.default_rng(0).normal(size=(256, 6)).astype(np.float32)
label = (table[:, 0] * table[:, 1] > 0).astype(np.int64)
model = TabNetClassifier(
    n_d=4, n_a=4, n_steps=2, seed=0, verbose=0, device_name="cpu",
    optimizer_fn=torch.optim.Adam, optimizer_params={"lr": 2e-2},
)  # fmt: skip
with trial.training():
    model.fit(table, label, max_epochs=6, batch_size=64, virtual_batch_size=32)
    print(*(round(loss, 6) for loss in model.history["loss"]))
    print(model.feature_importances_.round(6))
trial.end(model.network)
