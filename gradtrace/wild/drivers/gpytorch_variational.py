# /// script
# dependencies = ["gpytorch"]
# ///
"""GPyTorch: stochastic variational regression in minibatches."""

import gpytorch
import torch
import trial


class Approximate(gpytorch.models.ApproximateGP):
    def __init__(self, inducing):
        distribution = gpytorch.variational.CholeskyVariationalDistribution(inducing.size(0))
        strategy = gpytorch.variational.VariationalStrategy(
            self, inducing, distribution, learn_inducing_locations=True
        )
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


trial.begin()
x = torch.rand(256, 2)
y = torch.sin(6 * x[:, 0]) + x[:, 1] + 0.1 * torch.randn(256)
rows = torch.utils.data.TensorDataset(x, y)
loader = torch.utils.data.DataLoader(rows, batch_size=64, shuffle=True)
model = Approximate(x[:20].clone())
likelihood = gpytorch.likelihoods.GaussianLikelihood()
parameters = [*model.parameters(), *likelihood.parameters()]
optimizer = torch.optim.Adam(parameters, lr=0.01)
objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=256)
model.train()
likelihood.train()
with trial.training():
    for _ in range(30):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = -objective(model(inputs), targets)
            loss.backward()
            optimizer.step()
        print(loss.item())
trial.end(model, likelihood)
