# /// script
# dependencies = ["normflows"]
# ///
"""normflows: affine coupling blocks, trained by the likelihood of two moons."""

import normflows
import torch
import trial

trial.begin()
flows = []
for _ in range(4):
    network = normflows.nets.MLP([1, 16, 16, 2], init_zeros=True)
    flows += [normflows.flows.AffineCouplingBlock(network), normflows.flows.Permute(2, mode="swap")]
model = normflows.NormalizingFlow(normflows.distributions.DiagGaussian(2), flows)
target = normflows.distributions.TwoMoons()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
with trial.training():
    for step in range(60):
        loss = model.forward_kld(target.sample(128))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(loss.item())
trial.end(model)
