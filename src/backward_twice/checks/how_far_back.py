"""Exercise ``how_far_back``: which inputs the gradient of a recurrent network's loss reaches."""

import torch
from torch import nn

from backward_twice.checks.question import Task

_KINDS = ("carry", "clone", "detach", "data", "zeros", "no_grad", "detach output")


def _below(generator, low, high):
    return torch.randint(low, high, (1,), generator=generator).item()


def _draw_chunks(generator):
    """Every kind occurs, and those that cut nothing have something before them to reach."""
    kinds = [*_KINDS, "carry", "clone", "detach output"]
    kinds = [kinds[i] for i in torch.randperm(len(kinds), generator=generator).tolist()]
    kinds = ["carry", "detach output", "clone", *kinds, "carry", "no_grad", "carry"]
    return {"chunks": [[_below(generator, 1, 9), kind] for kind in kinds]}


def _named(chunks):
    return [
        f"chunk {number}: {steps} step{'s' if steps > 1 else ''}, {kind!r}"
        for number, (steps, kind) in enumerate(chunks, 1)
    ]


def _run_chunks(answer, chunks):
    numbers = list(answer([tuple(chunk) for chunk in chunks]))
    return dict(zip(_named(chunks), numbers, strict=False))


def _expect_chunks(chunks):
    """By asking autograd for the gradient of each loss for every input so far."""
    cell, state, inputs, numbers = nn.GRUCell(1, 1), torch.zeros(1), [], []
    for steps, kind in chunks:
        if kind == "clone":
            state = state.clone()
        elif kind == "detach":
            state = state.detach()
        elif kind == "data":
            state = state.data
        elif kind == "zeros":
            state = torch.zeros(1)
        with torch.set_grad_enabled(kind != "no_grad"):
            for _ in range(steps):
                inputs.append(torch.ones(1, requires_grad=True))
                state = cell(inputs[-1], state)
        output = state.detach() if kind == "detach output" else state
        count = 0
        if output.requires_grad:
            gradients = torch.autograd.grad(output, inputs, retain_graph=True, allow_unused=True)
            count = sum(gradient is not None for gradient in gradients)
        numbers.append(count)
    return dict(zip(_named(chunks), numbers, strict=True))


_LINES = {
    "clone": "state = state.clone()",
    "detach": "state = state.detach()",
    "data": "state = state.data",
    "zeros": "state = torch.zeros(1)",
}


def _chunk_program(property_name, value, chunks):
    """The chunks that the gradient can pass, up to the one asked for; prints what it reaches."""
    last = _named(chunks).index(property_name)
    first = max((i for i in range(last) if chunks[i][1] == "no_grad"), default=-1) + 1
    first = max(
        [first, *(i for i in range(last + 1) if chunks[i][1] in ("detach", "data", "zeros"))]
    )
    lines = ["cell, state, inputs = torch.nn.GRUCell(1, 1), torch.zeros(1), []"]
    for number, (steps, kind) in enumerate(chunks[first : last + 1], first + 1):
        lines.append(f"# chunk {number}, {kind!r}")
        lines += [_LINES[kind]] if kind in _LINES and number > first + 1 else []
        indent = "    " if kind == "no_grad" else ""
        lines += ["with torch.no_grad():"] if kind == "no_grad" else []
        lines += [
            f"{indent}for _ in range({steps}):",
            f"{indent}    inputs.append(torch.ones(1, requires_grad=True))",
            f"{indent}    state = cell(inputs[-1], state)",
        ]
    if chunks[last][1] in ("no_grad", "detach output"):
        output = "state.detach()" if chunks[last][1] == "detach output" else "state"
        return "\n".join([*lines, f"print({output}.requires_grad)  # False: it reaches nothing"])
    gradients_call = "torch.autograd.grad(state, inputs, allow_unused=True)"
    return "\n".join([*lines, f"print(sum(g is not None for g in {gradients_call}))"])


steps_reached = Task(
    "steps_reached", _draw_chunks, _expect_chunks, _run_chunks, program=_chunk_program
)


def _draw_gradients(generator):
    inputs, hidden, steps = (_below(generator, 2, 6), _below(generator, 2, 6), 12)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    programs = []
    for cuts in (
        [],
        [_below(generator, 2, 5), _below(generator, 6, 10)],
        [_below(generator, 1, 4)],
    ):
        length = steps - _below(generator, 0, 3)
        programs.append({"x": normal(length, inputs), "cuts": cuts})
    weights = [normal(hidden, inputs) / 2, normal(hidden, hidden) / hidden**0.5]
    return {"weights": [*weights, normal(hidden) / 2, normal(hidden) / 2], "programs": programs}


def _run_gradients(answer, weights, programs):
    hidden, inputs = weights[0].shape
    cell = nn.RNNCell(inputs, hidden)
    with torch.no_grad():
        for parameter, weight in zip(cell.parameters(), weights, strict=True):
            parameter.copy_(weight)
    return {
        f"gradient, cuts before {program['cuts']}": answer(
            cell, program["x"].clone(), list(program["cuts"])
        )
        for program in programs
    }


def _expect_gradients(weights, programs):
    """By the formula of the cell, from the last step back to a cut, in double precision."""
    w, u, b, c = (weight.double() for weight in weights)
    expected = {}
    for program in programs:
        x, states = program["x"].double(), [torch.zeros(w.shape[0]).double()]
        for step in x:
            states.append((w @ step + b + u @ states[-1] + c).tanh())
        gradient, of_state = torch.zeros_like(x), 2 * states[-1]
        for step in reversed(range(len(x))):
            of_sum = of_state * (1 - states[step + 1] ** 2)
            gradient[step] = of_sum @ w
            if step in program["cuts"]:
                break
            of_state = of_sum @ u
        expected[f"gradient, cuts before {program['cuts']}"] = gradient
    return expected


input_gradients = Task("input_gradients", _draw_gradients, _expect_gradients, _run_gradients)
