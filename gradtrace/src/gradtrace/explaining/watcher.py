"""Watch a training program, and explain the error when backward fails.

The exception's type, text and traceback stay PyTorch's. A failure of gradtrace itself never stops
the program.
"""

import contextlib
import dataclasses
import functools
import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar, overload

import torch

from gradtrace import _torch
from gradtrace.autograd import frames
from gradtrace.autograd.frames import Location, namespace, running_ipython, user_frame
from gradtrace.autograd.tensors import storages_in
from gradtrace.autograd.traversal import undisturbed
from gradtrace.explaining import diagnose, silent
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.silent import growth, parameters
from gradtrace.explaining.silent.pending import PendingBackward, finding
from gradtrace.watching.call_sites import in_forward
from gradtrace.watching.engine import engine
from gradtrace.watching.operations import Observer
from gradtrace.watching.record import BackwardCall, Record

_LOOKS = (4, 8, 16, 32, 128, 512, 2_048)  # backward calls at which variables are searched
_NOTES_SINCE = (8, 14)  # IPython prints the notes of an exception

F = TypeVar("F", bound=Callable[..., Any])


class SilentFailure(UserWarning):
    """A failure that raises nothing: a wrong gradient, a growing graph, or untrained parameters."""


@overload
def watch(function: None = None, /, *, strict: bool = False) -> "Watch": ...
@overload
def watch(function: F, /, *, strict: bool = False) -> F: ...
def watch(function: Callable[..., Any] | None = None, /, *, strict: bool = False) -> Any:
    """Explain the error when a backward call fails, at next to no cost when none does.

    Use it as a context manager (``with watch():``), as a decorator (``@watch`` or ``@watch()``), or
    as a plain call, which watches until ``.stop()`` or the end of the program.

    Args:
        strict: observe every operation of this thread: name the lines that created and changed
            tensors, and warn (:class:`SilentFailure`) about failures that raise nothing.  A
            training step takes up to two and a half times as long; if its operations take
            microseconds, up to four times.  A plain watch adds at most a fifth in that case.  Code
            that ``torch.compile`` compiles is not changed, and so not seen; nor are an optimizer's
            own operations.

    The original exception is raised, with one more note in ``exception.__notes__``.

    Raises:
        TypeError: ``function`` cannot be called, or is a generator or coroutine function, whose
            code runs later than its call.

    >>> import torch
    >>> with watch():
    ...     loss = torch.ones(3, requires_grad=True).exp().sum()
    ...     loss.backward()
    ...     try:
    ...         loss.backward()
    ...     except RuntimeError as error:
    ...         print(error.__notes__[-1].splitlines()[0])
    gradtrace: the forward pass was not run again: backward() was already called on this loss.
    """
    if function is None:
        return Watch(strict)
    return Watch(strict, begin=False)(function)


def guarded(method: F) -> F:
    """Record a failure of gradtrace in ``method`` instead of raising it in the program."""

    @functools.wraps(method)
    def inner(self: "Watch", *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.broke(error)
            return None

    return inner  # type: ignore[return-value]


class Watch(contextlib.AbstractContextManager["Watch"]):
    """A watch, returned by :func:`watch`, that explains failing backward calls until it is stopped.

    Entering it again, as a context manager, resumes watching and keeps the :attr:`findings`.
    """

    def __init__(self, strict: bool = False, *, begin: bool = True):
        self.strict = strict
        self._record = Record()
        self._observer: Observer | None = None
        self._on = False
        self._saw_compiled_code = False
        self.last_failure: Diagnosis | None = None  # of a backward call, also if it is caught
        if begin:
            self._begin()

    @property
    def findings(self) -> list[Diagnosis]:
        """The silent failures that this watch warned about, in order."""
        return list(self._record.findings)

    @property
    def broken(self) -> str | None:
        """The last failure of gradtrace itself, as text, until the next error is explained."""
        return self._record.broken

    def explain(self, error: Exception) -> Diagnosis | None:
        """Explain an error and add the explanation as a note, unless the error already has one.

        Returns:
            The diagnosis; None if autograd did not raise the error, or if explaining it failed.
        """
        note = _explanation_on(error)
        return note.diagnosis if note is not None else self._explain(error, None, (), None)

    @guarded
    def look_back(self, variables: Mapping[str, Any]) -> None:
        """Warn, at the end, about untrained parameters and graphs that ``variables`` keep."""
        self._report(parameters.never_trained(self._record.timeline))
        self._report(growth.leaks(self._record.timeline, variables))

    def stop(self) -> None:
        """Stop watching, and restore PyTorch if no other watch runs. A second call does nothing."""
        if not self._on:
            return
        self._on = False
        if self._observer is not None:
            self._observer.end()
            self._observer = None
        engine.detach(self)

    def _begin(self) -> None:
        if self._on:
            return
        self._on = True
        engine.attach(self)
        if self.strict:
            self._observer = Observer(self._record, self._tell)
            self._observe(True)

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        frame = user_frame(sys._getframe(1))
        if self.strict and frame is not None:
            self.look_back(namespace(frame, forget=True))
        if isinstance(error, Exception):
            self.explain(error)
        self.stop()

    def __call__(self, function: F) -> F:
        self.stop()  # a decorator watches only while the function runs
        if not callable(function) or any(runs_later(function) for runs_later in _RUN_LATER):
            raise TypeError(
                f"watch() takes a plain function, not {getattr(function, '__name__', function)!r}:"
                " use `with watch():`, `@watch` or watch(strict=True)"
            )

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with Watch(self.strict, begin=False):
                return function(*args, **kwargs)

        return watched  # type: ignore[return-value]

    # The engine calls these methods.

    def began(self, call: BackwardCall, outputs: Any) -> None:
        timeline = self._record.timeline
        timeline.calls.append(call)
        timeline.backwards += 1
        if self._observer is not None and self._observer.of_this_thread:
            timeline.running.append((call, outputs))
            self._look_for_silent_failures(call, outputs)

    @guarded
    def _look_for_silent_failures(self, call: BackwardCall, outputs: Any) -> None:
        timeline = self._record.timeline
        graph = PendingBackward(timeline, call, outputs)
        with _torch.no_torch_function():
            leaves = graph.leaves.values()
            call.leaves = storages_in(leaves)
            call.on_accelerator = any(leaf.device.type != "cpu" for leaf in leaves)
        self._report(silent.in_backward(graph))
        if timeline.backwards in _LOOKS:
            for frame in frames.user_frames(sys._getframe(1)):
                self._report(growth.leaks(timeline, namespace(frame, forget=True), graph.live))

    @property
    def knowledge(self) -> int:
        """How much the watch records in the running thread, 2 if it observes operations, else 1."""
        return 1 if self._observer is None or not self._observer.of_this_thread else 2

    def failed(
        self, call: BackwardCall, outputs: Any, inputs: Sequence[Any], error: BaseException
    ) -> None:
        if isinstance(error, Exception) and _explanation_on(error) is None:
            self.last_failure = self._explain(error, outputs, inputs, call)

    def ended(self, call: BackwardCall, error: BaseException | None) -> None:
        timeline = self._record.timeline
        timeline.running[:] = [entry for entry in timeline.running if entry[0] is not call]
        timeline.ended(call)

    def broke(self, error: Exception) -> None:
        self._record.note_failure(error)

    @guarded
    def stepping(self, has_closure: bool) -> None:
        self._observe(False)
        self._record.timeline.closure_ran = False

    @guarded
    def in_closure(self, optimizer: torch.optim.Optimizer, inside: bool) -> None:
        self._observe(inside)
        timeline = self._record.timeline
        if inside and timeline.closure_ran:  # the optimizer has modified its parameters since
            timeline.stepped(optimizer, frames.user_location())
        timeline.closure_ran = True

    @guarded
    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        self._observe(True)
        timeline = self._record.timeline
        timeline.stepped(optimizer, frames.user_location())
        if self._observer is not None and self._observer.of_this_thread:
            self._report(silent.after_step(timeline, optimizer))

    @guarded
    def step_ended(self) -> None:
        self._observe(True)

    @guarded
    def parameter_made(self, data: torch.Tensor, parameter: torch.Tensor) -> None:
        observer = self._observer
        if observer is not None and observer.of_this_thread and not _torch.is_intercepted():
            observer.note_same_memory(parameter, data)
            frame = user_frame(sys._getframe(1))
            if frame is not None and in_forward(frame):
                entry = Location.of(frame), data.requires_grad
                self._record.timeline.made_in_forward[id(parameter)] = entry

    @guarded
    def compiled(self, inside: bool) -> None:
        self._saw_compiled_code = self._saw_compiled_code or inside
        self._observe(not inside)

    def _observe(self, on: bool) -> None:
        if self._observer is not None:
            self._observer.observe(on)

    # Reporting.

    def _tell(self, cause: str, location: Location | None, name: str | None) -> None:
        self._report([finding(cause, location, location, name)])

    def _report(self, findings: Iterable[Diagnosis]) -> None:
        """Warn about each finding, even if the detector fails after it."""
        complete: list[Diagnosis] = []
        try:
            with undisturbed():
                for diagnosis in findings:
                    complete.append(diagnosis)
        finally:
            for diagnosis in complete:
                self._warn(diagnosis)

    def _warn(self, diagnosis: Diagnosis) -> None:
        """Warn about a finding, once for each cause and line."""
        place = diagnosis.began_at or diagnosis.raised_at or Location("<unknown>", 1)
        if (diagnosis.cause, place) in self._record.reported:
            return
        self._record.reported.add((diagnosis.cause, place))
        self._record.findings.append(diagnosis)
        # A filter that turns warnings into errors must not stop the program.
        with contextlib.suppress(SilentFailure):
            warnings.warn_explicit(diagnosis.text(), SilentFailure, place.name, place.line)

    def _explain(
        self, error: Exception, outputs: Any, inputs: Sequence[Any], call: BackwardCall | None
    ) -> Diagnosis | None:
        with _lock:  # one thread at a time
            self._record.broken = None
            diagnosis = self._diagnosed(error, outputs, inputs, call)
            broken = self._record.broken
        if diagnosis is not None:
            note = Explanation(diagnosis.text())
        elif broken is not None:
            note = Explanation(f"gradtrace could not explain this error ({broken}).")
        else:
            return None
        note.diagnosis = diagnosis
        # An exception class may forbid notes.
        with contextlib.suppress(Exception):
            error.add_note(note)
        if not notes_are_shown():
            print(note, file=sys.stderr)
        return diagnosis

    @guarded
    def _diagnosed(
        self, error: Exception, outputs: Any, inputs: Sequence[Any], call: BackwardCall | None
    ) -> Diagnosis | None:
        with undisturbed():
            diagnosis = diagnose.failure(self._record, error, outputs, inputs, call)
        unobserved = self.strict and self._saw_compiled_code
        if diagnosis is not None and unobserved and diagnosis.made_at is None:
            detail = "a strict watch does not observe code that torch.compile has compiled"
            return dataclasses.replace(diagnosis, detail=detail)
        return diagnosis


_RUN_LATER = inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction
_lock = threading.RLock()


class Explanation(str):
    """The note that a watch adds to an exception."""

    diagnosis: Diagnosis | None = None

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # an exception can be unpickled without gradtrace


def _explanation_on(error: BaseException) -> Explanation | None:
    notes = getattr(error, "__notes__", ())
    return next((note for note in notes if isinstance(note, Explanation)), None)


def explanation_of(error: BaseException) -> Diagnosis | None:
    """Return the diagnosis that a watch added to this exception, or None."""
    note = _explanation_on(error)
    return None if note is None else note.diagnosis


def notes_are_shown() -> bool:
    """Whether ``__notes__`` are printed, as Python does, unlike an old IPython (7.34 on Colab)."""
    return running_ipython() is None or sys.modules["IPython"].version_info[:2] >= _NOTES_SINCE
