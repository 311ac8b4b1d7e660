# /// script
# dependencies = ["gpytorch"]
# ///
"""GPyTorch: exact regression with an RBF kernel."""

import math

import gpytorch
import torch
import trial


class ExactGP(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


trial.begin()
x = torch.linspace(0, 1, 100)
y = torch.sin(x * 2 * math.pi) + 0.2 * torch.randn(100)
likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = ExactGP(x, y, likelihood)
model.train()
likelihood.train()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
with trial.training():
    for step in range(200):
        optimizer.zero_grad()
        loss = -objective(model(x), y)
        loss.backward()
        if step % 40 == 0:
            print(step, loss.item(), model.covar_module.base_kernel.lengthscale.item())
        optimizer.step()
model.eval()
likelihood.eval()
with torch.no_grad(), gpytorch.settings.fast_pred_var():
    print(likelihood(model(torch.linspace(0, 1, 5))).mean)
trial.end(model)
