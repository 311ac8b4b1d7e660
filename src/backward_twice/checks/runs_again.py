"""Exercise ``runs_again``: how many lines of a checkpointed part each backward call runs.

Some programs are redrawn until they distinguish a misconception from the right answer: they have
lines after the last one that saves, a retained or plain call before another, or a part that saves
nothing.
"""

from functools import partial

from backward_twice.checks.cases import task_of_cases
from backward_twice.checks.generator import drawn_until

_OPERATIONS = {"sin": "y.sin()", "exp": "y.exp()", "tanh": "y.tanh()", "add": "y + 1", "neg": "-y"}
_SAVING = ("sin", "exp", "tanh")
_KINDS = ("no checkpoint", "use_reentrant=True", "use_reentrant=False")


def _draw_any(draws):
    return {
        "kind": draws.one_of(_KINDS),
        "lines": [draws.one_of(list(_OPERATIONS)) for _ in range(draws.integer(2, 5))],
        "retains": [draws.integer(0, 2) > 0 for _ in range(draws.integer(2, 4))],
    }


_PLAIN, _REENTRANT, _NOT_REENTRANT = _KINDS
_TELL = (
    lambda kind, saves, retains: kind == _NOT_REENTRANT and any(saves) and not saves[-1],
    lambda kind, saves, retains: kind == _NOT_REENTRANT and saves[0] and retains[0],
    lambda kind, saves, retains: kind == _NOT_REENTRANT and saves[0] and not retains[0],
    lambda kind, saves, retains: kind == _REENTRANT and not saves[-1] and retains[0],
    lambda kind, saves, retains: kind == _NOT_REENTRANT and not any(saves) and not retains[0],
    lambda kind, saves, retains: kind == _REENTRANT and not any(saves) and not retains[0],
    lambda kind, saves, retains: kind == _PLAIN and saves[0] and not all(retains[:-1]),
    lambda kind, saves, retains: True,
    lambda kind, saves, retains: True,
)
"""Conditions for the programs: on the kind, on which lines save and on which calls retain."""


def _is_so(tells, program):
    saves = [line in _SAVING for line in program["lines"]]
    return tells(program["kind"], saves, program["retains"])


def _draw(draws):
    return [drawn_until(partial(_is_so, tells), lambda: _draw_any(draws)) for tells in _TELL]


def _program(kind, lines):
    """Return the source of a part whose lines record that they ran, and of the part's loss."""
    body = [
        text
        for number, line in enumerate(lines, 1)
        for text in (f"    ran.append({number})", f"    y = {_OPERATIONS[line]}")
    ]
    call = "part(x)" if kind == _KINDS[0] else f"checkpoint(part, x, {kind})"
    return "\n".join(
        [
            "from torch.utils.checkpoint import checkpoint",
            "ran = []",
            "def part(y):",
            *body,
            "    return y",
            "x = torch.ones(2, requires_grad=True)",
            f"loss = {call}.sum()",
        ]
    )


def _shown(value, kind, lines, retains):
    calls = [
        f"for retain in {retains}:",
        "    ran.clear()",
        "    loss.backward(retain_graph=retain)",
        "    print(len(ran))",
    ]
    return "\n".join([_program(kind, lines), *calls])


lines_run = task_of_cases("lines_run", "program", _draw, program=_shown)
