# /// script
# dependencies = ["zuko"]
# ///
"""Zuko: normalising flows by maximum likelihood, splines, continuous, and by reparametrisation."""

import torch
import trial
import zuko

trial.begin()
context = torch.rand(512, 1)
x = torch.cat([context + 0.1 * torch.randn(512, 1), context.pow(2) + 0.1 * torch.randn(512, 1)], 1)
flows = [
    zuko.flows.NSF(2, context=1, transforms=2, hidden_features=(32, 32)),
    zuko.flows.MAF(2, context=1, transforms=2, hidden_features=(32, 32)),
    zuko.flows.CNF(2, context=1, hidden_features=(16, 16)),
]
with trial.training():
    for flow, steps in zip(flows, (25, 40, 4), strict=True):
        optimizer = torch.optim.AdamW(flow.parameters(), lr=1e-3)
        for _ in range(steps):
            rows = torch.randint(0, 512, (64,))
            loss = -flow(context[rows]).log_prob(x[rows]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(loss.item())
    flow = flows[1]
    optimizer = torch.optim.AdamW(flow.parameters(), lr=1e-3)
    for _ in range(8):
        sample, log_prob = flow(context[:64]).rsample_and_log_prob()
        loss = (log_prob + sample.pow(2).sum(-1) / 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
trial.end(*flows)
