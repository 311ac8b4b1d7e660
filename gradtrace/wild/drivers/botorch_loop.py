# /// script
# dependencies = ["botorch", "gpytorch"]
# ///
"""BoTorch: fit a model, maximise an acquisition function, add the point, again."""

import torch
import trial
from botorch.acquisition import LogExpectedImprovement, qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood

trial.begin()
x = torch.rand(8, 2, dtype=torch.double)
bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)


def measured(x):
    return 1 - (x - 0.4).norm(dim=-1, keepdim=True)


with trial.training():
    for turn in range(3):
        y = measured(x)
        model = SingleTaskGP(
            x, y, input_transform=Normalize(d=2), outcome_transform=Standardize(m=1)
        )
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        if turn == 0:
            acquisition, count = LogExpectedImprovement(model, best_f=y.max()), 1
        else:
            sampler = SobolQMCNormalSampler(torch.Size([32]), seed=turn)
            acquisition = qLogExpectedImprovement(model, best_f=y.max(), sampler=sampler)
            count = 2
        candidate, value = optimize_acqf(
            acquisition, bounds=bounds, q=count, num_restarts=3, raw_samples=16
        )
        print(turn, candidate.tolist(), value.item())
        x = torch.cat([x, candidate])
trial.end(model, x)
