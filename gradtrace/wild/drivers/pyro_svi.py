# /// script
# dependencies = ["pyro-ppl"]
# ///
"""Pyro: stochastic variational inference of a regression, with an automatic guide."""

import pyro
import pyro.distributions as dist
import torch
import trial
from pyro.infer import SVI, Trace_ELBO, TraceGraph_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal, AutoNormal

trial.begin()
pyro.set_rng_seed(0)
x = torch.randn(80, 3)
y = x @ torch.tensor([1.0, -2.0, 0.5]) + 0.3 + 0.1 * torch.randn(80)


def model(x, y=None):
    weights = pyro.sample("weights", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    bias = pyro.sample("bias", dist.Normal(0.0, 1.0))
    noise = pyro.sample("noise", dist.LogNormal(-1.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(x @ weights + bias, noise), obs=y)


trained = []
with trial.training():
    for make, loss in ((AutoDiagonalNormal, Trace_ELBO()), (AutoNormal, TraceGraph_ELBO())):
        pyro.clear_param_store()
        guide = make(model)
        svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.03}), loss)
        for step in range(120):
            value = svi.step(x, y)
            if step % 30 == 0:
                print(step, value)
        trained += pyro.get_param_store().values()
trial.end(*trained)
