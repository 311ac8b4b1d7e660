"""Watch a training program, and explain the error when backward fails.

A watch hears of every backward and every optimizer's step (:mod:`gradtrace.watching.engine`) and
remembers where they were called (:mod:`gradtrace.watching.record`).  That is all, so it can stay
on.  When a backward fails, :mod:`gradtrace.explaining.diagnose` finds the cause, and the
explanation is added to the exception as a note: the exception itself, its type, its text and its
traceback stay PyTorch's.

A strict watch also sees every operation of the thread in which it began
(:mod:`gradtrace.watching.operations`).  With that it finds failures that raise nothing
(:mod:`gradtrace.explaining.silent`), and warns about each once.

Whatever goes wrong in here, the program goes on as if it were not watched.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, overload

import torch

from gradtrace import _torch
from gradtrace.autograd.frames import (
    Location,
    namespace,
    raised_by_the_program,
    running_ipython,
    user_frame,
    user_frames,
    user_location,
)
from gradtrace.autograd.tensors import storage_of
from gradtrace.autograd.traversal import roots_of, undisturbed, walk
from gradtrace.explaining import diagnose, silent
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.watching.engine import engine
from gradtrace.watching.operations import Observer
from gradtrace.watching.record import BackwardCall, Record

_LOOKS = (32, 128, 512, 2_048)  # at these backwards look for what the variables keep
_NOTES_SINCE = (8, 14)  # IPython prints the notes of an exception

F = TypeVar("F", bound=Callable[..., Any])


class SilentFailure(UserWarning):
    """A failure that raises nothing: a wrong gradient, or a graph that grows."""


@overload
def watch(function: None = None, /, *, strict: bool = False) -> Watch: ...
@overload
def watch(function: F, /, *, strict: bool = False) -> F: ...
def watch(function: Callable[..., Any] | None = None, /, *, strict: bool = False) -> Any:
    """Explain the error when a backward fails, at next to no cost when none does.

    Use it as a context manager (``with watch():``), as a decorator (``@watch`` or ``@watch()``; of
    a coroutine or a generator, too), or as a plain call, which watches until ``.stop()`` or the end
    of the program.

    Args:
        strict: see every operation of this thread: name the lines that made and changed tensors,
            and warn (:class:`SilentFailure`) about failures that raise nothing.  A training step
            takes up to two and a half times as long; where its operations take microseconds, up to
            six times (an LBFGS closure over vectors of four elements).  A plain watch adds up to a
            fifth there.  What ``torch.compile`` compiles is left alone, and so not seen.

    The original exception is raised, with one more note in ``exception.__notes__``.

    Raises:
        TypeError: ``function`` is not something that can be called.

    >>> import torch
    >>> with watch():
    ...     loss = torch.ones(3, requires_grad=True).exp().sum()
    ...     loss.backward()
    ...     try:
    ...         loss.backward()
    ...     except RuntimeError as error:
    ...         print(error.__notes__[-1].splitlines()[0])
    gradtrace: the forward pass was not run again: this loss has already been through backward.
    """
    if function is None:
        return Watch(strict)
    if not callable(function):
        raise TypeError(
            f"watch() takes a function, not {type(function).__name__}: use `with watch():`, "
            "`@watch` or watch(strict=True)"
        )
    return Watch(strict, begin=False)(function)


def guarded(method: F) -> F:
    """The program always wins: a failure of gradtrace is remembered and never raised."""

    @functools.wraps(method)
    def inner(self: Watch, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            if raised_by_the_program(error):
                raise
            self.broke(error)
            return None

    return inner  # type: ignore[return-value]


class Watch(contextlib.AbstractContextManager["Watch"]):
    """One watch, made by :func:`watch`, with what it knows and found.

    ``strict`` is as it was asked for.  Entered again it goes on, and keeps what it found before.
    """

    def __init__(self, strict: bool = False, *, begin: bool = True):
        self.strict = strict
        self._record = Record()
        self._observer: Observer | None = None
        self._on = False
        self._saw_compiled_code = False
        if begin:
            self._begin()

    @property
    def findings(self) -> list[Diagnosis]:
        """The silent failures that this watch warned about, in order."""
        return list(self._record.findings)

    @property
    def broken(self) -> str | None:
        """What last went wrong in gradtrace itself, while the program went on; None if nothing."""
        return self._record.broken

    def explain(self, error: Exception) -> Diagnosis | None:
        """Explain an error that came from elsewhere than a backward, and add it as a note.

        None if it is not one of autograd's.
        """
        known = _explanation_on(error)
        return known.diagnosis if known is not None else self._explain(error, None, (), None)

    @guarded
    def look_back(self, variables: Mapping[str, Any]) -> None:
        """At the end: warn about what was never trained, and about sums and lists among
        ``variables`` that keep many graphs alive."""
        self._report(silent.never_trained(self._record.timeline))
        self._report(silent.leaks(self._record.timeline, variables))

    def stop(self) -> None:
        """Stop watching; without another watch PyTorch is as it was.  Stopping twice is fine."""
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
            self._observer.look()

    def __enter__(self) -> Watch:
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
        self.stop()  # as a decorator it watches while the function runs, not before
        return _watched(function, self.strict)

    # What the engine reports.

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
        live, links = walk(roots_of(outputs))
        functions = dict.fromkeys(map(_torch.function_of, live))
        call.functions = tuple(weakref.ref(one) for one in functions if one is not None)
        with _torch.no_torch_function():
            leaves = [node.variable for node in live if isinstance(node, _torch.LEAF)]
            call.leaves = frozenset(storage_of(leaf)[0] for leaf in leaves)
            call.on_accelerator = any(leaf.device.type != "cpu" for leaf in leaves)
        self._report(silent.in_backward(timeline, call, live, links))
        if timeline.backwards in _LOOKS:
            for frame in user_frames(sys._getframe(1)):
                self._report(silent.leaks(timeline, namespace(frame, forget=True), live))

    @property
    def knowledge(self) -> int:
        """How much it knows of this thread: the watch that knows most explains an error."""
        return 1 if self._observer is None or not self._observer.of_this_thread else 2

    def failed(
        self, call: BackwardCall, outputs: Any, inputs: Sequence[Any], error: BaseException
    ) -> None:
        if isinstance(error, Exception) and _explanation_on(error) is None:
            self._explain(error, outputs, inputs, call)

    def ended(self, call: BackwardCall, error: BaseException | None) -> None:
        timeline = self._record.timeline
        timeline.running[:] = [entry for entry in timeline.running if entry[0] is not call]
        timeline.ended(call)

    def broke(self, error: Exception) -> None:
        self._record.note_failure(error)

    @guarded
    def stepping(self, has_closure: bool) -> None:
        if self._observer is not None and not has_closure:
            self._observer.step_aside()

    @guarded
    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        if self._observer is not None:
            self._observer.look()
        timeline = self._record.timeline
        timeline.stepped(optimizer, user_location())
        if self._observer is not None and self._observer.of_this_thread:
            self._report(silent.in_step(timeline))
            self._report(silent.untrained(timeline, optimizer))

    @guarded
    def compiled(self, inside: bool) -> None:
        self._saw_compiled_code = self._saw_compiled_code or inside
        if self._observer is not None:
            (self._observer.step_aside if inside else self._observer.look)()

    # What is said of it.

    def _tell(self, cause: str, location: Location | None, name: str | None) -> None:
        self._report([silent.finding(cause, location, location, name)])

    def _report(self, findings: Iterable[Diagnosis]) -> None:
        """Warn once for each cause and line."""
        for found in findings:
            where = found.began_at or found.raised_at or Location("<unknown>", 1)
            if (found.cause, where) in self._record.told:
                continue
            self._record.told.add((found.cause, where))
            self._record.findings.append(found)
            # A filter that turns warnings into errors must not stop the program.
            with contextlib.suppress(SilentFailure):
                warnings.warn_explicit(found.text(), SilentFailure, where.name, where.line)

    def _explain(
        self, error: Exception, outputs: Any, inputs: Sequence[Any], call: BackwardCall | None
    ) -> Diagnosis | None:
        with _lock:  # one thread at a time
            self._record.broken = None
            found = self._diagnosed(error, outputs, inputs, call)
            broken = self._record.broken
        if found is not None:
            note = Explanation(found.text())
        elif broken is not None:
            note = Explanation(f"gradtrace could not explain this error ({broken}).")
        else:
            return None
        note.diagnosis = found
        # An exception class may forbid notes.
        with contextlib.suppress(Exception):
            error.add_note(note)
        if not notes_are_shown():
            print(note, file=sys.stderr)
        return found

    @guarded
    def _diagnosed(
        self, error: Exception, outputs: Any, inputs: Sequence[Any], call: BackwardCall | None
    ) -> Diagnosis | None:
        with undisturbed():
            found = diagnose.failure(self._record, error, outputs, inputs, call)
        if found is not None and self._saw_compiled_code and found.made_at is None and self.strict:
            compiled = "a strict watch does not see into what torch.compile compiled"
            found = dataclasses.replace(found, detail=compiled)
        return found


_lock = threading.RLock()


class Explanation(str):
    """The note that a watch adds to an exception."""

    diagnosis: Diagnosis | None = None

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # who reads a pickled exception need not have gradtrace


def _explanation_on(error: BaseException) -> Explanation | None:
    notes = getattr(error, "__notes__", ())
    return next((note for note in notes if isinstance(note, Explanation)), None)


def explanation_of(error: BaseException) -> Diagnosis | None:
    """What a watch found out about this exception."""
    known = _explanation_on(error)
    return None if known is None else known.diagnosis


def notes_are_shown() -> bool:
    """Python shows ``__notes__``; in a notebook it is up to IPython (7.34 on Colab does not)."""
    return running_ipython() is None or sys.modules["IPython"].version_info[:2] >= _NOTES_SINCE


def _watched(function: Callable[..., Any], strict: bool) -> Any:
    """``function`` with a watch around each call, or around each stretch that runs of it."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def watched(*args: Any, **kwargs: Any) -> Any:
            steps = function(*args, **kwargs).__await__()
            return await _drive(Watch(strict, begin=False), steps)

    elif inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def watched(*args: Any, **kwargs: Any) -> Any:
            one, running = Watch(strict, begin=False), function(*args, **kwargs)
            step: Any = running.__anext__()
            while True:
                try:
                    item = await _drive(one, step.__await__())
                except StopAsyncIteration:
                    return
                try:
                    step = running.asend((yield item))
                except GeneratorExit:
                    await running.aclose()
                    raise
                except BaseException as error:
                    step = running.athrow(error)

    elif inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            return (yield from _steps(Watch(strict, begin=False), function(*args, **kwargs)))

    else:

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with Watch(strict, begin=False):
                return function(*args, **kwargs)

    return watched


def _steps(one: Watch, running: Any) -> Any:
    """Hand on what a generator yields and is sent, and watch while it runs."""
    step, value = running.send, None
    while True:
        try:
            with one:
                item = step(value)
        except StopIteration as end:
            return end.value
        try:
            step, value = running.send, (yield item)
        except GeneratorExit:
            with one:
                running.close()
            raise
        except BaseException as error:
            step, value = running.throw, error


_drive = types.coroutine(_steps)
