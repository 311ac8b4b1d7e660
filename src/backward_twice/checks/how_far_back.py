"""Exercise ``how_far_back``: which inputs the gradient of a recurrent network's loss reaches."""

from torch import nn

from backward_twice.checks.networks import fill
from backward_twice.checks.task import Task

_KINDS = ("carry", "clone", "detach", "data", "zeros", "no_grad", "detach output")


def _draw_chunks(draws):
    """Draw chunks of every kind, after three whose states stay connected to their inputs."""
    kinds = draws.shuffled([*_KINDS, "carry", "clone", "detach output"])
    kinds = ["carry", "detach output", "clone", *kinds, "carry", "no_grad", "carry"]
    return {"chunks": [[draws.integer(1, 8), kind] for kind in kinds]}


def _named(chunks):
    return [
        f"chunk {number}: {steps} step{'s' if steps > 1 else ''}, {kind!r}"
        for number, (steps, kind) in enumerate(chunks, 1)
    ]


def _run_chunks(answer, chunks):
    numbers = list(answer([tuple(chunk) for chunk in chunks]))
    return dict(zip(_named(chunks), numbers, strict=False))


_BEGIN = "cell, state, inputs = torch.nn.GRUCell(1, 1), torch.zeros(1), []"
_LINES = {
    "clone": ["state = state.clone()"],
    "detach": ["state = state.detach()"],
    "data": ["state = state.data"],
    "zeros": ["state = torch.zeros(1)"],
}


def _steps(steps, kind):
    lines = [
        f"for _ in range({steps}):",
        "    inputs.append(torch.ones(1, requires_grad=True))",
        "    state = cell(inputs[-1], state)",
    ]
    if kind == "no_grad":
        return ["with torch.no_grad():", *(f"    {line}" for line in lines)]
    return lines


def _chunk_program(property_name, value, chunks):
    """Return a program of the chunks up to that of one loss; it prints the result."""
    last = _named(chunks).index(property_name)
    lines = [_BEGIN]
    for number, (steps, kind) in enumerate(chunks[: last + 1], 1):
        lines += [f"# chunk {number}, {kind!r}", *_LINES.get(kind, ()), *_steps(steps, kind)]
    if chunks[last][1] in ("no_grad", "detach output"):
        output = "state.detach()" if chunks[last][1] == "detach output" else "state"
        return "\n".join([*lines, f"print({output}.requires_grad)  # False: it reaches nothing"])
    gradients_call = "torch.autograd.grad(state, inputs, allow_unused=True)"
    return "\n".join([*lines, f"print(sum(g is not None for g in {gradients_call}))"])


steps_reached = Task("steps_reached", _draw_chunks, run=_run_chunks, program=_chunk_program)


def _draw_gradients(draws):
    inputs, hidden = draws.integers(2, 2, 5)
    programs = [
        {"x": draws.normal(12 - draws.integer(0, 2), inputs), "cuts": cuts}
        for cuts in ([], [draws.integer(2, 4), draws.integer(6, 9)], [draws.integer(1, 3)])
    ]
    weights = [draws.normal(hidden, inputs) / 2, draws.normal(hidden, hidden) / hidden**0.5]
    biases = [draws.normal(hidden) / 2 for _ in range(2)]
    return {"weights": [*weights, *biases], "programs": programs}


def _run_gradients(answer, weights, programs):
    hidden, inputs = weights[0].shape
    cell = nn.RNNCell(inputs, hidden)
    fill(cell.parameters(), weights)
    return {
        f"gradient, cuts before {program['cuts']}": answer(
            cell, program["x"].clone(), list(program["cuts"])
        )
        for program in programs
    }


input_gradients = Task("input_gradients", _draw_gradients, run=_run_gradients)
