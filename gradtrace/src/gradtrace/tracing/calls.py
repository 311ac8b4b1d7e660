"""Which module was called when, and so which of them made an operation.

PyTorch numbers the operations that it records.  The numbers before and after a module's call tell
which were recorded within it, also those of modules without parameters, and of each call where one
module is called several times.  Nothing is put on the modules: Python itself reports the calls.
"""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Mapping
from types import FrameType
from typing import Any

import torch

from gradtrace._torch import MODULE_CALL, next_sequence_nr
from gradtrace.tracing.steps import ModuleCall


class Calls:
    """The calls of modules in one thread.

    :meth:`on_call` is to be called when a frame begins, :meth:`name` while the variables that lead
    to the modules live.
    """

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._names: list[str | None] = []
        self._nameless: dict[int, weakref.ref[torch.nn.Module]] = {}  # by the place of the call

    @property
    def wanting(self) -> bool:
        """Whether there were calls of modules whose names are not known yet."""
        return bool(self._nameless)

    def on_call(self, frame: FrameType) -> Any:
        """What is to trace this frame, if it is the call of a module; else None."""
        if frame.f_code is not MODULE_CALL:
            return None
        place = len(self._begins)
        self._begins.append(next_sequence_nr())
        self._ends.append(-1)
        self._names.append(None)
        self._nameless[place] = weakref.ref(frame.f_locals["self"])
        frame.f_trace_lines = False

        def on_event(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "return":
                self._ends[place] = next_sequence_nr()
            return on_event

        return on_event

    def name(self, names: Mapping[int, str]) -> None:
        """Name the modules called since the last time; ``names`` are by identity."""
        for place, reference in self._nameless.items():
            module = reference()
            self._names[place] = None if module is None else names.get(id(module))
        self._nameless.clear()

    def found(self, numbers: list[int]) -> tuple[list[ModuleCall], list[int | None]]:
        """The calls that made the operations of these numbers, and for each operation its own.

        Left out are modules that no variable leads to.
        """
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        row = [numbers[i] for i in order]
        calls: list[ModuleCall] = []
        inner: list[int | None] = [None] * len(numbers)
        open_calls: list[tuple[int, int]] = []  # calls that go on: the place in calls, and the end
        for begin, end, name in zip(self._begins, self._ends, self._names, strict=True):
            first, last = bisect.bisect_left(row, begin), bisect.bisect_left(row, end)
            if name is None or first >= last:
                continue
            while open_calls and open_calls[-1][1] <= begin:
                open_calls.pop()
            for i in order[first:last]:
                inner[i] = len(calls)
            parent = open_calls[-1][0] if open_calls else None
            open_calls.append((len(calls), end))
            calls.append(ModuleCall(name, parent))
        return calls, inner
