"""Exercise ``runs_again``: how many lines of a checkpointed part each backward call runs.

The programs are run in PyTorch, and the lines that were entered counted.  Some of a draw are drawn
until they tell a misconception from the truth: lines after the last that saves, a retained call
before another, a plain call before another, a part of either kind that saves nothing.
"""

import torch

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


def _ends_unsaved(kind, lines, retains):
    saves = [line in _SAVING for line in lines]
    return kind == _KINDS[2] and any(saves) and not saves[-1]


def _retained_and_again(kind, lines, retains):
    return kind == _KINDS[2] and retains[0] and lines[0] in _SAVING


def _plain_and_again(kind, lines, retains):
    return kind == _KINDS[2] and not retains[0] and lines[0] in _SAVING


def _all_of_it(kind, lines, retains):
    return kind == _KINDS[1] and lines[-1] not in _SAVING and retains[0]


def _saves_nothing(kind, lines, retains):
    return kind == _KINDS[2] and not retains[0] and not any(line in _SAVING for line in lines)


def _reentrant_saves_nothing(kind, lines, retains):
    return kind == _KINDS[1] and not retains[0] and not any(line in _SAVING for line in lines)


def _kept(kind, lines, retains):
    return kind == _KINDS[0] and lines[0] in _SAVING and not all(retains[:-1])


def _any(**_):
    return True


_TELL = (
    _ends_unsaved,
    _retained_and_again,
    _plain_and_again,
    _all_of_it,
    _saves_nothing,
    _reentrant_saves_nothing,
    _kept,
    _any,
    _any,
)


def _draw(draws):
    return [
        drawn_until(lambda program, tells=tells: tells(**program), lambda: _draw_any(draws))
        for tells in _TELL
    ]


def _program(kind, lines):
    """The part, whose lines note that they were run, and its loss."""
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


def _lines_run(kind, lines, retains):
    names, counts = {"torch": torch}, []
    exec(_program(kind, lines), names)
    for retain in retains:
        names["ran"].clear()
        try:
            names["loss"].backward(retain_graph=retain)
        except RuntimeError:
            return [*counts, "raises"]
        counts.append(len(names["ran"]))
    return counts


def _shown(value, kind, lines, retains):
    calls = [
        f"for retain in {retains}:",
        "    ran.clear()",
        "    loss.backward(retain_graph=retain)",
        "    print(len(ran))",
    ]
    return "\n".join([_program(kind, lines), *calls])


lines_run = task_of_cases("lines_run", "program", _draw, _lines_run, program=_shown)
