"""Exercise ``name_the_cause``: random small programs, and the line where each one fails.

The right answers are found by running the programs.  The failure began at a line if the program
fails with the mistake of this line alone, and succeeds with only this line corrected.  Programs
without such a line are not used.  Only programs that were drawn here are run.
"""

from contextlib import suppress
from functools import lru_cache, partial

import torch

from backward_twice.checks.cases import task_of_cases
from backward_twice.checks.generator import drawn_until

_ASKED = ("cause", "line that raises", "line where it began")
_FAMILIES = {
    "backward through the graph a second time": "freed",
    "modified by an inplace operation": "modified",
    "does not require grad and does not have a grad_fn": "no_graph",
}


def _program(draws, mistakes):
    """Draw a program, as lines, of two leaves ``a`` and ``b``, in which ``mistakes`` may occur."""
    leaves = ["a", "b"]
    lines = [
        f"{leaf} = torch.tensor(0.{draws.integer(3, 9)}, requires_grad=True)" for leaf in leaves
    ]
    computed, fresh = [], iter("cdefghijklmnopqrstuvwxyz")
    for _ in range(draws.integer(8, 12)):
        kind = draws.one_of(["operation"] * 5 + mistakes) if computed else "operation"
        if kind in ("operation", "detach"):
            x, y = (draws.one_of(leaves + computed[-3:]) for _ in range(2))
            forms = [f"{x}.exp()", f"{x}.cos()", f"{x}.sin()", f"{x} * {y}", f"{x} + {y}"]
            right = draws.one_of(forms) if kind == "operation" else f"{x}.detach()"
            computed.append(next(fresh))
            lines.append(f"{computed[-1]} = {right}")
        elif kind == "write":
            x = draws.one_of(leaves + computed)
            if x in leaves:
                lines.append(f"with torch.no_grad(): {x}.sub_(0.1)")
            else:
                lines.append(f"{x}.add_(0.5)")
        elif kind == "data":
            lines.append(f"{draws.one_of(leaves + computed)}.data.add_(0.5)")
        else:
            retain = draws.one_of(["", "", "retain_graph=True"])
            lines.append(f"{draws.one_of(computed[-4:])}.backward({retain})")
    if not lines[-1].endswith(".backward()"):
        lines.append(f"{computed[-1]}.backward()")
    return lines


_compiled = lru_cache(maxsize=4096)(partial(compile, filename="program", mode="exec"))


def _outcome(lines):
    """Return the error's family, its line and the gradients; None for whichever does not exist."""
    names = {"torch": torch}
    for number, line in enumerate(lines, 1):
        try:
            exec(_compiled(line), names)
        except RuntimeError as error:
            families = (name for text, name in _FAMILIES.items() if text in str(error))
            return next(families, "other"), number, None
        if number == 2:  # a program may give these names to other tensors
            leaves = names["a"], names["b"]
    return None, None, [leaf.grad for leaf in leaves]


def _harmless(line):
    """Return a line without its potential mistake, and the error the mistake causes, or None."""
    if line.endswith(".backward()"):
        return line.replace("()", "(retain_graph=True)"), "freed"
    if line.endswith(".detach()"):
        return line.removesuffix(".detach()"), "no_graph"
    if "add_(" in line or "sub_(" in line:
        return "pass", "modified"
    return line, None


def _error(lines):
    """Return the error's cause, the line that raises it and the faulty line, or None for each."""
    family, raised, _ = _outcome(lines)
    if family is None:
        return dict.fromkeys(_ASKED)
    earlier, last = lines[: raised - 1], lines[raised - 1]
    harmless = [_harmless(line)[0] for line in earlier]
    began = [
        number
        for number, line in enumerate(earlier, 1)
        if line != harmless[number - 1]
        and _outcome([*_with(earlier, number, harmless), last])[0] is None
    ]
    if len(began) != 1 or _harmless(lines[began[0] - 1])[1] != family:
        raise LookupError
    alone = [*_with(harmless, began[0], earlier), last]
    if _outcome(alone)[:2] != (family, raised):
        raise LookupError
    return dict(zip(_ASKED, (family, raised, began[0]), strict=True))


def _with(lines, number, others):
    """Return the lines, with line ``number`` taken from ``others``."""
    return [*lines[: number - 1], others[number - 1], *lines[number:]]


def _drawn(draws, judge, mistakes, wanted):
    """Draw a program for each wanted result of ``judge``, in random order."""

    def has(result, lines):
        with suppress(LookupError):
            return judge(lines) == result
        return False

    return [
        drawn_until(partial(has, result), lambda: _program(draws, mistakes))
        for result in draws.shuffled(wanted)
    ]


def _draw_errors(draws):
    families = [*_FAMILIES.values()]
    causes = [*families, draws.one_of(families), draws.one_of(families), None]
    mistakes = ["backward", "backward", "write", "detach"]
    return _drawn(draws, lambda lines: _error(lines)["cause"], mistakes, causes)


def _ask_for_error(answer, lines):
    return dict(zip(_ASKED, answer(lines) or [None] * len(_ASKED), strict=True))


def _program_asked(value, lines):
    return "\n".join(lines)


name_the_cause = task_of_cases(
    "name_the_cause", "program", _draw_errors, _error, ask=_ask_for_error, program=_program_asked
)


def _recorded(line):
    """Return the line; a write through ``.data`` becomes an operation that autograd records."""
    name, written, amount = line.partition(".data.add_(")
    return f"{name} = {name} + {amount.rstrip(')')}" if written else line


def _same(gradients, others):
    """Whether gradients are equal; raise LookupError if one is missing or they barely differ."""
    pairs = list(zip(gradients, others, strict=True))
    if any(a is None or b is None for a, b in pairs):
        raise LookupError
    difference = max(((a - b).abs() / (1 + b.abs())).item() for a, b in pairs)
    if difference == 0:
        return True
    if difference > 1e-3:
        return False
    raise LookupError


def _spoilt(lines):
    """Return the line that spoils the gradients, or None; raise LookupError if it is not clear."""
    recorded = [_recorded(line) for line in lines]
    if sum(line != out_of_place for line, out_of_place in zip(lines, recorded, strict=True)) < 2:
        raise LookupError  # too easy
    family, _, right = _outcome(recorded)
    error, _, gradients = _outcome(lines)
    if family or error:
        raise LookupError
    spoiling = [
        number
        for number, line in enumerate(lines, 1)
        if line != recorded[number - 1]
        and not _same(_outcome(_with(recorded, number, lines))[2], right)
    ]
    if len(spoiling) > 1 or _same(gradients, right) == bool(spoiling):
        raise LookupError
    return spoiling[0] if spoiling else None


def _draw_silent(draws):
    mistakes, are_spoilt = ["backward", "data", "data"], [True] * 4 + [False] * 2
    return _drawn(draws, lambda lines: _spoilt(lines) is not None, mistakes, are_spoilt)


spoilt_gradient = task_of_cases(
    "spoilt_gradient", "program", _draw_silent, _spoilt, program=_program_asked
)
