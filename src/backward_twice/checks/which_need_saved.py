"""Exercise ``which_need_saved``: which operation of a chain saved something, and how much."""

import math

import torch

from backward_twice.checks.question import Task
from gradtrace import snapshot

_SAVE_RESULT = ("exp", "sigmoid", "tanh", "relu", "sqrt")
_SAVE_INPUT = ("sin", "cos", "square", "abs", "log1p")
_SAVE_NOTHING = ("neg", "round", "clone", "flatten")
_OPERATIONS = (*_SAVE_RESULT, *_SAVE_INPUT, *_SAVE_NOTHING, "double")


def _below(generator, low, high):
    return torch.randint(low, high, (1,), generator=generator).item()


def _some(generator, among, number=1):
    return [among[_below(generator, 0, len(among))] for _ in range(number)]


def _apply(operations, x):
    for operation in operations:
        x = getattr(x, operation)()
    return x


def _named(chain):
    return " → ".join(["x", *chain])


def _draw_refuses(generator):
    chains = [_some(generator, _OPERATIONS, _below(generator, 2, 7)) for _ in range(10)]
    return {"chains": [_some(generator, _SAVE_NOTHING, _below(generator, 1, 4)), *chains]}


def _run_refuses(answer, chains):
    return {_named(chain): answer(list(chain)) for chain in chains}


def _raises(operations):
    loss = _apply(operations, torch.full((2, 3), 0.5, requires_grad=True)).sum()
    loss.backward()
    try:
        loss.backward()
    except RuntimeError:
        return True
    return False


def _expect_refuses(chains):
    """By cutting the graph: the shortest end of the chain that still raises begins with it."""
    return {
        _named(chain): next((k for k in reversed(range(len(chain))) if _raises(chain[k:])), None)
        for chain in chains
    }


def _refusing_program(property_name, value, chains):
    """Each operation and what it saved, in the order of backward: from the last to the first."""
    chain = property_name.split(" → ")[1:]
    return "\n".join(
        [
            "from gradtrace import snapshot",
            "y = torch.full((2, 3), 0.5, requires_grad=True)",
            f"for operation in {chain}:",
            "    before, y = y, getattr(y, operation)()",
            "    saved = [] if y is before else snapshot(y).nodes[0].saved",
            '    print(operation, "saved", [tensor.name for tensor in saved])',
        ]
    )


refuses = Task("refuses", _draw_refuses, _expect_refuses, _run_refuses, program=_refusing_program)


def _draw_bytes(generator):
    def some(among=_OPERATIONS[:-1], number=1):
        return _some(generator, among, number)

    chains = [
        [*some(_SAVE_INPUT), *some(number=2)],
        ["flatten", *some(_SAVE_INPUT), *some(_SAVE_NOTHING), *some(_SAVE_RESULT)],
        [*some(), *some(_SAVE_RESULT), "flatten", *some(_SAVE_INPUT), *some()],
        [*some(), "double", *some(_SAVE_RESULT), *some(number=2)],
        some(number=_below(generator, 3, 7)),
        some(number=_below(generator, 3, 7)),
    ]
    shape = [_below(generator, 10**7, 10**8), _below(generator, 10**6, 10**7)]
    return {"chains": chains, "shape": shape}


def _run_bytes(answer, chains, shape):
    return {_named(chain): answer(list(shape), list(chain)) for chain in chains}


def _expect_bytes(chains, shape):
    """Measured on six values: all bytes grow with the number of values."""
    memory = {}
    for chain in chains:
        x = torch.full((2, 3), 0.5, requires_grad=True)
        bytes_per_value, remainder = divmod(snapshot(_apply(chain, x)).held.activations, x.numel())
        assert remainder == 0
        memory[_named(chain)] = bytes_per_value * math.prod(shape)
    return memory


def _bytes_program(property_name, value, chains, shape):
    """What the same chain holds for two times three values."""
    chain = property_name.split(" → ")[1:]
    return "\n".join(
        [
            "from gradtrace import snapshot",
            "x = torch.full((2, 3), 0.5, requires_grad=True)",
            f"y = x.{'().'.join(chain)}()",
            "print(snapshot(y).held.activations)  # bytes, for 6 values",
        ]
    )


bytes_held = Task("bytes_held", _draw_bytes, _expect_bytes, _run_bytes, program=_bytes_program)
