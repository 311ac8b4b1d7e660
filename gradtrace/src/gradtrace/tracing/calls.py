"""Find the module call in which each operation was recorded.

PyTorch numbers the operations that it records, so the numbers before and after a module's call show
which ones belong to it. Modules get no hooks, because Python reports the calls.
"""

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

    Call :meth:`on_call` when a frame begins, :meth:`name` while variables reach the modules.
    """

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._names: list[str | None] = []
        self._nameless: dict[int, weakref.ref[torch.nn.Module]] = {}  # by the place of the call

    def on_call(self, frame: FrameType) -> Any:
        """Record a call of a module and return the function that traces it, else return None."""
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
        """Name the modules called since this ran last; ``names`` maps a module's id to its path."""
        for place, reference in self._nameless.items():
            module = reference()
            self._names[place] = None if module is None else names.get(id(module))
        self._nameless.clear()

    def found(self, numbers: list[int]) -> tuple[list[ModuleCall], list[int | None]]:
        """Return the calls that recorded ``numbers``, and the innermost call of each, as an index.

        ``numbers`` are sorted. Calls of modules that no variable reaches are left out.
        """
        calls: list[ModuleCall] = []
        inner: list[int | None] = [None] * len(numbers)
        open_calls: list[tuple[int, int]] = []  # calls that go on: the place in calls, and the end
        for begin, end, name in zip(self._begins, self._ends, self._names, strict=True):
            first, last = bisect.bisect_left(numbers, begin), bisect.bisect_left(numbers, end)
            if name is None or first >= last:
                continue
            while open_calls and open_calls[-1][1] <= begin:
                open_calls.pop()
            inner[first:last] = [len(calls)] * (last - first)
            parent = open_calls[-1][0] if open_calls else None
            open_calls.append((len(calls), end))
            calls.append(ModuleCall(name, parent))
        return calls, inner
