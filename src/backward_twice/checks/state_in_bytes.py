"""Exercise ``state_in_bytes``: what the graph of a recurrent network holds, chunk after chunk."""

import torch
from torch import nn

from backward_twice.checks.question import Task
from gradtrace import snapshot

_HABITS = ("carry", "detach", "detach, keep losses", "plain, keep losses")
_DTYPES = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}


def _below(generator, low, high):
    return torch.randint(low, high, (1,), generator=generator).item()


def _draw_cases(generator):
    cases = []
    for habit in (*_HABITS, *_HABITS[:3]):
        case = {
            "habit": habit,
            "batch": _below(generator, 10, 100),
            "hidden": _below(generator, 10**7, 10**8),
            "steps": _below(generator, 2, 11),
            "chunks": _below(generator, 3, 8),
            "value_bytes": list(_DTYPES)[_below(generator, 0, 3)],
        }
        cases.append(case)
    return {"cases": cases}


def _name(case):
    sizes = f"{case['chunks']} chunks of {case['steps']}, {case['value_bytes']} bytes a value"
    return f"{case['habit']}, {sizes}, state of {case['batch']} times {case['hidden']}"


def _run_cases(answer, cases):
    return {_name(case): answer(**case) for case in cases}


def _expect_cases(cases):
    """Measured with a state of two times three values: the bytes grow with that number."""
    expected = {}
    for case in cases:
        bytes_per_state, remainder = divmod(_measured(**{**case, "batch": 2, "hidden": 3}), 6)
        assert remainder == 0
        expected[_name(case)] = bytes_per_state * case["batch"] * case["hidden"]
    return expected


def _measured(habit, batch, hidden, steps, chunks, value_bytes):
    dtype = _DTYPES[value_bytes]
    w, u = (torch.ones(rows, hidden, dtype=dtype, requires_grad=True) for rows in (1, hidden))
    x, state, losses = (
        torch.ones(batch, 1, dtype=dtype),
        torch.zeros(batch, hidden, dtype=dtype),
        [],
    )
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


held_bytes = Task("held_bytes", _draw_cases, _expect_cases, _run_cases)


def _draw_budgets(generator):
    return {
        "inputs": _below(generator, 2, 7),
        "hidden": _below(generator, 3, 9),
        "layers": _below(generator, 1, 3),
        "batches": [_below(generator, 1, 4), _below(generator, 4, 8)],
        "budget": _below(generator, 10**8, 10**9),
    }


def _run_budgets(answer, inputs, hidden, layers, batches, budget):
    gru = nn.GRU(inputs, hidden, num_layers=layers)
    return {f"steps with a batch of {batch}": answer(gru, batch, budget) for batch in batches}


def _expect_budgets(inputs, hidden, layers, batches, budget):
    """From the bytes of 4 and of 8 steps: each step adds the same."""
    gru, expected = nn.GRU(inputs, hidden, num_layers=layers), {}
    for batch in batches:
        byte_counts = []
        for steps in (4, 8):
            x = torch.ones(steps, batch, inputs)
            byte_counts.append(snapshot(gru(x)[0], inputs=[x]).held.activations)
        bytes_per_state = (byte_counts[1] - byte_counts[0]) // 4
        expected[f"steps with a batch of {batch}"] = (
            budget - byte_counts[0]
        ) // bytes_per_state + 4
    return expected


steps_that_fit = Task("steps_that_fit", _draw_budgets, _expect_budgets, _run_budgets)
