"""Exercise ``hidden_state``: training chunk by chunk, with a state that carries over."""

from functools import partial

import torch
from torch import nn

from backward_twice.checks.networks import fill
from backward_twice.checks.task import Task


def _draw(draws, gates):
    inputs, hidden, batch = draws.integers(3, 2, 4)
    weights = {
        "weight_ih_l0": draws.normal(gates * hidden, inputs) / 2,
        "weight_hh_l0": draws.normal(gates * hidden, hidden),
        "bias_ih_l0": draws.normal(gates * hidden) / 2,
        "bias_hh_l0": draws.normal(gates * hidden) / 2,
        "weight of the head": draws.normal(1, hidden),
        "bias of the head": draws.normal(1),
    }
    chunks = []
    for number in range(draws.integer(4, 5)):
        steps = draws.integer(2, 5)
        starts = torch.rand(batch, generator=draws) < 0.4
        if number == 2:
            starts[0], starts[-1] = True, False
        chunks.append({"x": draws.normal(steps, batch, inputs), "y": draws.normal(steps, batch, 1)})
        chunks[-1]["starts"] = starts | (number == 0)
    return {"weights": weights, "chunks": chunks, "rate": draws.uniform(0.1, 0.3)}


def _draw_lstm(draws):
    inputs = _draw(draws, gates=4)
    for chunk in inputs["chunks"]:
        del chunk["starts"]
    return inputs


def _run(answer, weights, chunks, rate, kind):
    inputs, hidden = weights["weight_ih_l0"].shape[1], weights["weight_hh_l0"].shape[1]
    recurrent, head = kind(inputs, hidden), nn.Linear(hidden, 1)
    parameters = [*recurrent.parameters(), *head.parameters()]
    fill(parameters, weights.values())
    optimizer = torch.optim.SGD(parameters, lr=rate)
    answer(recurrent, head, optimizer, [tuple(chunk.values()) for chunk in chunks])
    return dict(zip(weights, parameters, strict=True))


train_on_chunks = Task("train_on_chunks", _draw_lstm, run=partial(_run, kind=nn.LSTM))

train_with_restarts = Task(
    "train_with_restarts", partial(_draw, gates=3), run=partial(_run, kind=nn.GRU)
)
