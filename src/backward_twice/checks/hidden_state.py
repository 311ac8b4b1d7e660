"""Exercise ``hidden_state``: training chunk by chunk, the state carried over."""

import torch
from torch import nn

from backward_twice.checks.question import Task


def _below(generator, low, high):
    return torch.randint(low, high, (1,), generator=generator).item()


def _draw(generator, gates):
    inputs, hidden, batch = (_below(generator, 2, 5) for _ in range(3))

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    weights = {
        "weight_ih_l0": normal(gates * hidden, inputs) / 2,
        "weight_hh_l0": normal(gates * hidden, hidden),
        "bias_ih_l0": normal(gates * hidden) / 2,
        "bias_hh_l0": normal(gates * hidden) / 2,
        "weight of the head": normal(1, hidden),
        "bias of the head": normal(1),
    }
    chunks = []
    for number in range(_below(generator, 4, 6)):
        steps = _below(generator, 2, 6)
        starts = torch.rand(batch, generator=generator) < 0.4
        if number == 2:
            starts[0], starts[-1] = True, False
        chunks.append({"x": normal(steps, batch, inputs), "y": normal(steps, batch, 1)})
        chunks[-1]["starts"] = starts | (number == 0)
    rate = 0.1 + 0.2 * torch.rand(1, generator=generator).item()
    return {"weights": weights, "chunks": chunks, "rate": rate}


def _draw_lstm(generator):
    inputs = _draw(generator, 4)
    for chunk in inputs["chunks"]:
        del chunk["starts"]
    return inputs


def _draw_gru(generator):
    return _draw(generator, 3)


def _run(answer, kind, weights, chunks, rate):
    inputs, hidden = weights["weight_ih_l0"].shape[1], weights["weight_hh_l0"].shape[1]
    recurrent, head = kind(inputs, hidden), nn.Linear(hidden, 1)
    parameters = [*recurrent.parameters(), *head.parameters()]
    with torch.no_grad():
        for parameter, weight in zip(parameters, weights.values(), strict=True):
            parameter.copy_(weight)
    optimizer = torch.optim.SGD(parameters, lr=rate)
    answer(recurrent, head, optimizer, [tuple(chunk.values()) for chunk in chunks])
    return dict(zip(weights, parameters, strict=True))


def _run_lstm(answer, **inputs):
    return _run(answer, nn.LSTM, **inputs)


def _run_gru(answer, **inputs):
    return _run(answer, nn.GRU, **inputs)


def _lstm_step(x, state, w_ih, w_hh, b_ih, b_hh):
    i, f, g, o = (x @ w_ih.T + b_ih + state[0] @ w_hh.T + b_hh).chunk(4, -1)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _gru_step(x, state, w_ih, w_hh, b_ih, b_hh):
    from_x, from_h = (x @ w_ih.T + b_ih).chunk(3, -1), (state[0] @ w_hh.T + b_hh).chunk(3, -1)
    r, z = ((a + b).sigmoid() for a, b in zip(from_x[:2], from_h[:2], strict=True))
    new = (from_x[2] + r * from_h[2]).tanh()
    return ((1 - z) * new + z * state[0],)


def _trained(step, tensors, weights, chunks, rate):
    """By the formulas of the cells, in double precision; each chunk has new leaves."""
    weights = [weight.double() for weight in weights.values()]
    state = [torch.zeros(chunks[0]["x"].shape[1], weights[1].shape[1]).double()] * tensors
    for chunk in chunks:
        weights = [weight.detach().requires_grad_() for weight in weights]
        state = [part.detach() for part in state]
        if "starts" in chunk:
            state = [part * ~chunk["starts"][:, None] for part in state]
        outputs = []
        for x in chunk["x"].double():
            state = step(x, state, *weights[:4])
            outputs.append(state[0])
        error = torch.stack(outputs) @ weights[4].T + weights[5] - chunk["y"]
        gradients = torch.autograd.grad(error.square().mean(), weights)
        weights = [w - rate * g for w, g in zip(weights, gradients, strict=True)]
    return weights


def _expect_lstm(weights, chunks, rate):
    return dict(zip(weights, _trained(_lstm_step, 2, weights, chunks, rate), strict=True))


def _expect_gru(weights, chunks, rate):
    return dict(zip(weights, _trained(_gru_step, 1, weights, chunks, rate), strict=True))


train_on_chunks = Task("train_on_chunks", _draw_lstm, _expect_lstm, _run_lstm)

train_with_restarts = Task("train_with_restarts", _draw_gru, _expect_gru, _run_gru)
