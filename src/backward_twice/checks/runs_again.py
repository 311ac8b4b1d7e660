"""Exercise ``runs_again``: how many lines of a checkpointed part each backward runs.

The programs are run in PyTorch, and the lines that were entered counted.  Some of a draw are drawn
until they tell a belief from the truth: lines behind the last that saves, a retained call before
another, a plain call before another, a part of either kind that saves nothing.
"""

import torch
from torch.utils.checkpoint import checkpoint

from backward_twice.checks.question import Task

_OPERATIONS = {"sin": "y.sin()", "exp": "y.exp()", "tanh": "y.tanh()", "add": "y + 1", "neg": "-y"}
_SAVING = ("sin", "exp", "tanh")
_KINDS = ("no checkpoint", "use_reentrant=True", "use_reentrant=False")


def _draw_any(generator):
    def below(high):
        return int(torch.randint(high, (), generator=generator))

    return {
        "kind": _KINDS[below(3)],
        "lines": [list(_OPERATIONS)[below(5)] for _ in range(2 + below(4))],
        "retains": [below(3) > 0 for _ in range(2 + below(3))],
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


def _draw(generator):
    programs = []
    for tells in _TELL:
        while not tells(**(program := _draw_any(generator))):
            pass
        programs.append(program)
    return {"programs": programs}


def _run(answer, programs):
    return {f"program {n}": answer(**program) for n, program in enumerate(programs, 1)}


def _lines_run(kind, lines, retains):
    executed_lines = []

    def part(y):
        for line in lines:
            executed_lines.append(line)
            y = y + 1 if line == "add" else getattr(y, line)()
        return y

    x = torch.ones(2, requires_grad=True)
    if kind == _KINDS[0]:
        loss = part(x).sum()
    else:
        loss = checkpoint(part, x, use_reentrant=kind == _KINDS[1]).sum()
    counts = []
    for retain in retains:
        executed_lines.clear()
        try:
            loss.backward(retain_graph=retain)
        except RuntimeError:
            return [*counts, "raises"]
        counts.append(len(executed_lines))
    return counts


def _expect(programs):
    return {f"program {n}": _lines_run(**program) for n, program in enumerate(programs, 1)}


def _program(property_name, value, programs):
    kind, lines, retains = programs[int(property_name.split()[1]) - 1].values()
    body = [
        text
        for n, line in enumerate(lines, 1)
        for text in (f"    ran.append({n})", f"    y = {_OPERATIONS[line]}")
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
            f"for retain in {retains}:",
            "    ran.clear()",
            "    loss.backward(retain_graph=retain)",
            "    print(len(ran))",
        ]
    )


lines_run = Task("lines_run", _draw, _expect, _run, program=_program)
