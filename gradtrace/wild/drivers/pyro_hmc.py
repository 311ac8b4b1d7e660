# /// script
# dependencies = ["pyro-ppl"]
# ///
"""Pyro: Hamiltonian Monte Carlo and NUTS of the eight schools."""

import pyro
import pyro.distributions as dist
import torch
import trial
from pyro.infer import HMC, MCMC, NUTS

trial.begin()
pyro.set_rng_seed(0)
y = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
sigma = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools(y):
    mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
    tau = pyro.sample("tau", dist.HalfCauchy(25.0))
    with pyro.plate("schools", 8):
        eta = pyro.sample("eta", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(mu + tau * eta, sigma), obs=y)


found = []
with trial.training():
    for kernel in (HMC(schools, step_size=0.05, num_steps=4), NUTS(schools, max_tree_depth=4)):
        chain = MCMC(kernel, num_samples=25, warmup_steps=15, disable_progbar=True)
        chain.run(y)
        samples = chain.get_samples()
        print(samples["mu"].mean().item(), samples["tau"].mean().item())
        found += samples.values()
trial.end(*found)
