"""Exercise ``which_need_saved``: which operations of a chain saved a tensor, and how many bytes."""

import math

import torch

from backward_twice.checks.cases import task_of_cases
from gradtrace import snapshot

_SAVE_RESULT = ("exp", "sigmoid", "tanh", "relu", "sqrt")
_SAVE_INPUT = ("sin", "cos", "square", "abs", "log1p")
_SAVE_NOTHING = ("neg", "round", "clone", "flatten")
_OPERATIONS = (*_SAVE_RESULT, *_SAVE_INPUT, *_SAVE_NOTHING, "double")


def _some(draws, among, number=1):
    return [draws.one_of(among) for _ in range(number)]


def _apply(operations, x):
    for operation in operations:
        x = getattr(x, operation)()
    return x


def _named(chain):
    return " → ".join(["x", *chain])


def _draw_refuses(draws):
    chains = [_some(draws, _OPERATIONS, draws.integer(2, 6)) for _ in range(10)]
    return [_some(draws, _SAVE_NOTHING, draws.integer(1, 3)), *chains]


def _raises(operations):
    loss = _apply(operations, torch.full((2, 3), 0.5, requires_grad=True)).sum()
    loss.backward()
    try:
        loss.backward()
    except RuntimeError:
        return True
    return False


def _refusing(chain):
    """Return the last index from which the chain, run alone, refuses a second backward, or None."""
    return next((k for k in reversed(range(len(chain))) if _raises(chain[k:])), None)


def _refusing_program(value, chain):
    """Return a program that prints each operation and its saved tensors, last operation first."""
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


refuses = task_of_cases(
    "refuses", "chain", _draw_refuses, _refusing, program=_refusing_program, name=_named
)


def _draw_bytes(draws):
    def some(among=_OPERATIONS[:-1], number=1):
        return _some(draws, among, number)

    chains = [
        [*some(_SAVE_INPUT), *some(number=2)],
        ["flatten", *some(_SAVE_INPUT), *some(_SAVE_NOTHING), *some(_SAVE_RESULT)],
        [*some(), *some(_SAVE_RESULT), "flatten", *some(_SAVE_INPUT), *some()],
        [*some(), "double", *some(_SAVE_RESULT), *some(number=2)],
        some(number=draws.integer(3, 6)),
        some(number=draws.integer(3, 6)),
    ]
    shape = [draws.integer(10**7, 10**8 - 1), draws.integer(10**6, 10**7 - 1)]
    return [{"chain": chain, "shape": shape} for chain in chains]


def _held(chain, shape):
    """Return the bytes that a chain saves, measured on six values and scaled up to ``shape``."""
    x = torch.full((2, 3), 0.5, requires_grad=True)
    return snapshot(_apply(chain, x)).held.activations * math.prod(shape) // x.numel()


def _bytes_program(value, chain, shape):
    return "\n".join(
        [
            "from gradtrace import snapshot",
            "x = torch.full((2, 3), 0.5, requires_grad=True)",
            f"y = x.{'().'.join(chain)}()",
            "print(snapshot(y).held.activations)  # bytes, for 6 values",
        ]
    )


bytes_held = task_of_cases(
    "bytes_held",
    "chain",
    _draw_bytes,
    _held,
    ask=lambda answer, chain, shape: answer(shape, chain),
    program=_bytes_program,
    name=lambda chain, shape: _named(chain),
)
