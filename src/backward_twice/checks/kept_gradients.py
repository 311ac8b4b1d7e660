"""Exercise ``kept_gradients``: the values that a reference to ``.grad`` has later.

Some programs are redrawn until a certain event follows a stored reference: a plain backward call,
one with ``create_graph``, a gradient set to zero, or a gradient set to None; one program until a
call with ``create_graph`` adds to a gradient whose sum is stored.  PyTorch runs them.
"""

import warnings
from itertools import pairwise

import torch

from backward_twice.checks.cases import task_of_cases
from backward_twice.checks.generator import drawn_until
from backward_twice.checks.task import Task

_CALLS = ("backward", "backward, create_graph=True", "zero_grad()", "zero_grad, to zero", "keep")


_IN_PLACE = "backward() has added to the tensor in .grad"


def _draw_record(draws):
    start, left, *factors = (draws.normal(3) for _ in range(6))
    return {"start": start, "left": left, "factors": factors}


def _run_record(answer, start, left, factors):
    parameter = start.clone().requires_grad_()
    parameter.grad = began = left.clone()
    records = answer(parameter, [(parameter * factor).exp().sum() for factor in factors])
    results = {f"record {n}": record for n, record in enumerate(records, 1)}
    # Tells two misconceptions apart that give the same values; not judged.
    same = sum(record is parameter.grad for record in records)
    facts = {".grad at the end": parameter.grad, _IN_PLACE: parameter.grad is began}
    return results | facts | {"records that are .grad itself": same}


def _expect_record(start, left, factors):
    expected, total = {}, left
    for n, factor in enumerate(factors, 1):
        total = total + factor * (start * factor).exp()
        expected[f"record {n}"] = total
    return expected | {".grad at the end": total, _IN_PLACE: True}


record = Task("record", _draw_record, _expect_record, _run_record)


def _draw_any(draws):
    calls = [["backward", draws.integer(1, 9)]]
    for _ in range(draws.integer(5, 8)):
        name = draws.one_of(_CALLS)
        calls.append([name, draws.integer(1, 9)] if name.startswith("backward") else [name])
    return calls


def _follows(then):
    """Return a predicate: a gradient is kept just before ``then``, and not zeroed afterwards."""

    def tells(calls):
        is_set = False
        names = [name for name, *_ in calls]
        for later, (name, following) in enumerate(pairwise(names), 2):
            is_set = name.startswith("backward") or (is_set and name != "zero_grad()")
            if (name, following) == ("keep", then) and is_set:
                return "zero_grad, to zero" not in names[later:]
        return False

    return tells


def _adds_with_a_graph(calls):
    """Whether a gradient is kept just after ``create_graph`` added to it, and not zeroed later."""
    is_set = False
    names = [name for name, *_ in calls]
    for n, (name, following) in enumerate(pairwise(names)):
        if is_set and name == _CALLS[1] and following == "keep":
            return "zero_grad, to zero" not in names[n:]
        is_set = name.startswith("backward") or (is_set and not name.startswith("zero_grad"))
    return False


def _nothing_kept_yet(calls):
    names = [name for name, *_ in calls]
    return ("zero_grad()", "keep") in pairwise(names)


_TELL = (*map(_follows, _CALLS[:4]), _adds_with_a_graph, _nothing_kept_yet, _follows("backward"))


def _draw_programs(draws):
    return [drawn_until(tells, lambda: _draw_any(draws)) for tells in _TELL]


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


def _kept(calls):
    names = {"torch": torch}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Using backward.* with create_graph")
        exec(_program(calls), names)
    names["w"].grad = None  # it may be in a reference cycle with its own graph
    return [None if gradient is None else int(gradient) for gradient in names["kept"]]


def _shown(value, calls):
    return f"{_program(calls)}\nprint([g if g is None else int(g) for g in kept])"


kept_values = task_of_cases("kept_values", "program", _draw_programs, _kept, program=_shown)
