"""Explain an error after it was raised without a watch.

The variables in the traceback's frames, and the roots of the backward call, show which variable
reaches freed nodes, or which saved tensor was changed, but not the line that freed or changed it.
"""

import dataclasses
import sys
from collections.abc import Iterator
from traceback import walk_tb
from typing import Any

from gradtrace._torch import AUTOGRAD_FILE, grad_fn_of
from gradtrace.autograd.frames import is_users, namespace, reach
from gradtrace.autograd.nodes import FREED
from gradtrace.autograd.saved import describe
from gradtrace.autograd.traversal import roots_of, undisturbed, walk
from gradtrace.explaining.causes import CAUSES
from gradtrace.explaining.causes.table import UNKNOWN
from gradtrace.explaining.diagnose import failure
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.watcher import explanation_of
from gradtrace.watching.record import Record


def explain(exception: BaseException | None = None) -> Diagnosis | None:
    """Explain an error: ``exception``, or the one being handled, or the last that Python printed.

    If the program raised the exception ``from`` an error of autograd, that error is explained.

    Returns:
        A :class:`~gradtrace.explaining.diagnosis.Diagnosis`; None if autograd raised neither error.

    Raises:
        ValueError: there is no exception to explain.

    >>> import torch
    >>> y = torch.ones(3, requires_grad=True).exp()
    >>> loss = y.sum()
    >>> loss.backward()
    >>> try:
    ...     loss.backward()
    ... except RuntimeError:
    ...     print(explain().carried_by)
    y
    """
    if exception is None:
        exception = sys.exc_info()[1] or getattr(sys, "last_value", None)
    if not isinstance(exception, BaseException):
        raise ValueError("there is no error to explain: run explain() after one was raised")
    if (diagnosis := explanation_of(exception)) is not None:
        return diagnosis  # of the watch that was running
    outputs = next(_called_on(exception), None)
    with undisturbed():
        diagnosis = failure(Record(), exception, outputs, (), None)
    if diagnosis is None and exception.__cause__ is not None:  # raise … from
        return explain(exception.__cause__)
    if diagnosis is None or outputs is None:
        return diagnosis
    if diagnosis.family == "freed":
        return _with_freed_variables(diagnosis, exception, outputs)
    if diagnosis.cause in _DISTINGUISHED_BY_STEPS:
        name = diagnosis.carried_by or "a parameter"
        return dataclasses.replace(
            diagnosis,
            cause="unknown",
            confidence=UNKNOWN,
            detail=f"{name} was changed in place after an operation had saved it",
            facts=(),
            advice=CAUSES["unknown"].fixes[-1],
        )
    return diagnosis


# Only a watch records the backward calls and the optimizer steps that distinguish these causes.
_DISTINGUISHED_BY_STEPS = ("optimizer_step_between_backwards", "inplace_on_parameter_in_forward")


def _called_on(exception: BaseException) -> Iterator[Any]:
    """Yield the tensors that ``backward`` or ``grad`` was called on, from their frames."""
    for frame, _ in walk_tb(exception.__traceback__):
        code = frame.f_code
        if code.co_filename == AUTOGRAD_FILE and code.co_name in ("backward", "grad"):
            yield frame.f_locals.get("tensors", frame.f_locals.get("outputs"))


def _with_freed_variables(
    diagnosis: Diagnosis, exception: BaseException, outputs: Any
) -> Diagnosis:
    """Add the first variable whose node is freed, or else the names of the freed operations."""
    with undisturbed():
        roots = set(roots_of(outputs))
        live, links = walk(roots)
        nodes = zip(live, describe(live, links), strict=True)
        freed = {n: node.name for n, node in nodes if node.state == FREED and n not in roots}
    frames = (frame for frame, _ in walk_tb(exception.__traceback__) if is_users(frame.f_code))
    for variable in (variable for frame in frames for variable in reach(namespace(frame))):
        if name := freed.get(grad_fn_of(variable.value)):
            text = f"{variable.name} was made by {name}, whose saved tensors are freed"
            return dataclasses.replace(diagnosis, names={"it": variable.name}, detail=text)
    names = ", ".join(sorted(set(freed.values())))
    detail = f"freed in this graph: {names}" if names else None
    return dataclasses.replace(diagnosis, detail=detail)
