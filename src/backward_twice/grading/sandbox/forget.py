"""Take the truth out of the interpreter in which a student's code will run.

Whoever asks need not know what is right.  Of the exercises' modules only what the questions'
``run`` refers to is left, so an answer cannot be had from :attr:`Question.expect`.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from types import CodeType, FunctionType, ModuleType
from typing import Any

from backward_twice import checks
from backward_twice.checks import Question


def forget_the_truth() -> None:
    """Reduce every question in this interpreter to what asks it."""
    modules = [
        importlib.import_module(f"{checks.__name__}.{found.name}")
        for found in pkgutil.iter_modules(checks.__path__)
        if found.name not in ("plain", "question")
    ]
    kept: set[int] = set()
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, Question):
                asking = replace(value, draw=_absent, expect=None, judge=_absent, program=None)
                setattr(module, name, asking)
                kept.add(id(asking))
                _keep(value.run, kept)
    for module in modules:
        for name, value in list(vars(module).items()):
            if not (name.startswith("__") or isinstance(value, ModuleType) or id(value) in kept):
                delattr(module, name)


def _absent(*_: Any, **__: Any) -> Any:
    raise LookupError("this is known only where the answers are judged")


def _keep(value: Any, kept: set[int]) -> None:
    """Add to ``kept`` the identity of ``value`` and of all that its code refers to by name."""
    if id(value) in kept:
        return
    kept.add(id(value))
    if isinstance(value, FunctionType):
        for name in _referred_to(value.__code__):
            if name in value.__globals__:
                _keep(value.__globals__[name], kept)
        for cell in value.__closure__ or ():
            _keep(cell.cell_contents, kept)
    elif isinstance(value, type) and value.__module__.startswith(checks.__name__):
        for member in vars(value).values():
            _keep(getattr(member, "__func__", member), kept)
    elif isinstance(part := getattr(value, "func", None), FunctionType):  # functools.partial
        _keep(part, kept)


def _referred_to(code: CodeType) -> set[str]:
    inner = (
        _referred_to(constant) for constant in code.co_consts if isinstance(constant, CodeType)
    )
    return set(code.co_names).union(*inner)
