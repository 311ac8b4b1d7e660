"""Exercise ``kept_gradients``: the values that a reference to ``.grad`` has later.

Some programs are redrawn until a certain event follows a stored reference: a plain backward call,
one with ``create_graph``, a gradient set to zero, or a gradient set to None; one program until a
call with ``create_graph`` adds to a gradient whose sum is stored.
"""

import re
from functools import partial

from backward_twice.checks.cases import task_of_cases
from backward_twice.checks.generator import drawn_until
from backward_twice.checks.task import Task

_CALLS = ("backward", "backward, create_graph=True", "zero_grad()", "zero_grad, to zero", "keep")
_IN_PLACE = "backward() has added to the tensor in .grad"
_SAME = "records that are .grad itself"


def _draw_record(draws):
    start, left, *factors = (draws.normal(3) for _ in range(6))
    return {"start": start, "left": left, "factors": factors}


def _run_record(answer, start, left, factors):
    parameter = start.clone().requires_grad_()
    parameter.grad = began = left.clone()
    records = answer(parameter, [(parameter * factor).exp().sum() for factor in factors])
    results = {f"record {n}": record for n, record in enumerate(records, 1)}
    same = sum(record is parameter.grad for record in records)
    facts = {".grad at the end": parameter.grad, _IN_PLACE: parameter.grad is began}
    return results | facts | {_SAME: same}


record = Task("record", _draw_record, run=_run_record, clues=[_SAME])


def _draw_any(draws):
    calls = [["backward", draws.integer(1, 9)]]
    for _ in range(draws.integer(5, 8)):
        name = draws.one_of(_CALLS)
        calls.append([name, draws.integer(1, 9)] if name.startswith("backward") else [name])
    return calls


_LETTERS = dict(zip(_CALLS, "bgz0k", strict=True))
_TELLING = (
    # A gradient is stored just before each kind of call.
    *("[bg][^z]*?kb", "[bg][^z]*?kg", "[bg][^z]*?kz", "[bg][^z]*?k0"),
    "[bg][^z0]*?gk",  # create_graph adds to a gradient, and the sum is stored
    "zk.*",  # None is stored
    "[bg][^z]*?kb",
)
"""For each program, what its calls contain, as a regular expression of their letters."""


def _tells(pattern, calls):
    """Whether the calls contain the pattern, and set no gradient to zero afterwards."""
    letters = "".join(_LETTERS[name] for name, *_ in calls)
    match = re.search(pattern, letters)
    return match is not None and "0" not in letters[match.end() :]


def _draw_programs(draws):
    return [drawn_until(partial(_tells, pattern), lambda: _draw_any(draws)) for pattern in _TELLING]


_LINES = {
    "keep": "kept.append(w.grad)",
    "zero_grad()": "optimizer.zero_grad()",
    "zero_grad, to zero": "optimizer.zero_grad(set_to_none=False)",
    "backward": "(w * {}).sum().backward()",
    "backward, create_graph=True": "(w * {}).sum().backward(create_graph=True)",
}


def _program(calls):
    return "\n".join(
        [
            "w, kept = torch.ones(1, requires_grad=True), []",
            "optimizer = torch.optim.SGD([w])",
            *(_LINES[name].format(*numbers) for name, *numbers in calls),
        ]
    )


def _shown(value, calls):
    return f"{_program(calls)}\nprint([g if g is None else int(g) for g in kept])"


kept_values = task_of_cases("kept_values", "program", _draw_programs, program=_shown)
