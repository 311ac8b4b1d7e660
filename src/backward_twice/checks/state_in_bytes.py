"""Exercise ``state_in_bytes``: the bytes of a recurrent network's graph, chunk after chunk."""

import torch
from torch import nn

from backward_twice.checks.cases import task_of_cases
from gradtrace import snapshot

_HABITS = ("carry", "detach", "detach, keep losses", "plain, keep losses")
_DTYPES = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}


def _draw_cases(draws):
    return [
        {
            "habit": habit,
            "batch": draws.integer(10, 99),
            "hidden": draws.integer(10**7, 10**8 - 1),
            "steps": draws.integer(2, 10),
            "chunks": draws.integer(3, 7),
            "value_bytes": draws.one_of(list(_DTYPES)),
        }
        for habit in (*_HABITS, *_HABITS[:3])
    ]


def _named(habit, batch, hidden, steps, chunks, value_bytes):
    sizes = f"{chunks} chunks of {steps}, {value_bytes} bytes a value"
    return f"{habit}, {sizes}, state of {batch} times {hidden}"


def _predicted(batch, hidden, **case):
    """Return the bytes, measured with a state of 2 × 3 values and scaled to the full size."""
    return _measured(batch=2, hidden=3, **case) * batch * hidden // 6


def _measured(habit, batch, hidden, steps, chunks, value_bytes):
    dtype = _DTYPES[value_bytes]
    w, u = (torch.ones(rows, hidden, dtype=dtype, requires_grad=True) for rows in (1, hidden))
    x, state = torch.ones(batch, 1, dtype=dtype), torch.zeros(batch, hidden, dtype=dtype)
    losses = []
    for _ in range(chunks):
        if habit != "carry":
            state = state.detach()
        for _ in range(steps):
            state = (x @ w + state @ u).tanh()
        loss = state.square().mean()
        if habit == "plain, keep losses":  # a retained backward would free nothing
            loss.backward()
        losses.append(loss)
    stored_losses = losses if habit.endswith("keep losses") else losses[-1:]
    return snapshot(*stored_losses, inputs=[x]).held.activations


held_bytes = task_of_cases("held_bytes", "case", _draw_cases, _predicted, name=_named)


def _draw_budgets(draws):
    sizes = [draws.integer(2, 6), draws.integer(3, 8), draws.integer(1, 2)]
    batches = [draws.integer(1, 3), draws.integer(4, 7)]
    budget = draws.integer(10**8, 10**9 - 1)
    return [{"sizes": sizes, "batch": batch, "budget": budget} for batch in batches]


def _ask_what_fits(answer, sizes, batch, budget):
    return answer(nn.GRU(*sizes), batch, budget)


def _batch_named(sizes, batch, budget):
    return f"steps with a batch of {batch}"


steps_that_fit = task_of_cases(
    "steps_that_fit", "batch", _draw_budgets, ask=_ask_what_fits, name=_batch_named
)
