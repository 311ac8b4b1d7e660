"""Run one function line by line and record the autograd graph between the lines.

Python reports each line just before it runs (``sys.settrace``). Then, and when the function ends,
:mod:`gradtrace.tracing.live` updates its copy of the graph that the live variables reach. In a
backward pass :mod:`gradtrace.tracing.backward_recorder` does so at each node.

With ``peaks`` the function runs under :class:`~gradtrace.LiveBytes`, which sees the result of each
operation. This is optional because compiled functions run uncompiled under such a mode. Tensors are
counted, so every machine reports the same bytes; PyTorch's own counters are read, too.
"""

import dataclasses
import dis
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, Self

import torch

from gradtrace._torch import LiveNode, WeakIdKeyDictionary, version_of
from gradtrace.autograd.frames import PLAIN, code_of, namespace, reach
from gradtrace.autograd.live_bytes import LiveBytes
from gradtrace.autograd.tensors import gradient_of, is_cut_off, shape_of
from gradtrace.autograd.traversal import undisturbed
from gradtrace.tracing.backward_recorder import BackwardRecorder
from gradtrace.tracing.calls import Calls
from gradtrace.tracing.function_source import read_function_source
from gradtrace.tracing.live import LiveGraph
from gradtrace.tracing.steps import MAX_STEPS, Raised, Step, TraceData, Variable
from gradtrace.tracing.values import numbers_of, value_of


def record(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    max_steps: int,
    peaks: bool,
) -> TraceData:
    """Run ``fn(*args, **kwargs)`` and record it line by line, as :func:`gradtrace.trace` does."""
    code = _code(fn)
    recorder = _Recorder(lambda called: called is code, _name(fn), max_steps, peaks)
    recorder.read_source(code)
    error = None
    try:
        with recorder:
            fn(*args, **kwargs)
    except Exception as exception:
        if recorder.line is None:  # wrong arguments: the function never began
            raise
        error = recorder.ended_by(exception, recorder.line)
    except BaseException as exception:
        exception.add_note("This error stopped gradtrace.trace(), which recorded nothing.")
        raise
    return recorder.trace_data(error)


def _name(fn: object) -> str:
    return getattr(fn, "__qualname__", None) or type(fn).__name__


def _code(fn: Callable[..., Any]) -> CodeType:
    """Return the code object whose lines are traced when ``fn`` is called."""
    code = code_of(fn.forward if isinstance(fn, torch.nn.Module) else fn)
    if code is None:
        raise TypeError(
            f"trace() runs a Python function line by line, but {_name(fn)} "
            f"({type(fn).__name__}) has no Python lines: put the call into a function with def"
        )
    return code


def _raised(exception: BaseException, line: int, node: int | None = None) -> Raised:
    try:
        message = str(exception)
    except Exception:
        message = "(its message cannot be printed)"
    # Text that is not valid Unicode, such as an undecodable file name, cannot be written to a file.
    message = message.encode("utf-8", "backslashreplace").decode()
    return Raised(type(exception).__name__, message, line, node)


class _Recorder:
    """Records a step before each statement of one call, up to ``max_steps``, and one at its end.

    The call is the first of a function for whose code ``wanted`` returns True.
    """

    def __init__(
        self, wanted: Callable[[CodeType], bool], name: str, max_steps: int, peaks: bool = False
    ):
        self.wanted = wanted
        self.name = name
        self.code: CodeType | None = None
        self.max_steps = max_steps
        self.steps: list[Step] = []
        self.unrecorded = 0
        self.refusal: Exception | None = None  # why this function cannot be recorded
        self.failure: Exception | None = None  # of the recorder itself
        self.begun = False
        self.line: int | None = None  # about to run, or running
        self.begun_lines: set[int] = set()
        self.raised: Raised | None = None  # by that line
        self.live = LiveGraph()
        self.calls = Calls()
        self.objects = WeakIdKeyDictionary()  # a number for each tensor
        self.new_object = itertools.count()
        self.live_bytes = LiveBytes() if peaks else None
        self.variables: dict[tuple[Any, ...], Variable] = {}
        self.texts = WeakIdKeyDictionary()  # for each tensor its version, and its numbers then
        self.frame: FrameType | None = None  # of the call, while it runs
        self.inside = BackwardRecorder(self.live, self.read_inside)

    def __enter__(self) -> Self:
        if self.live_bytes is not None:
            self.live_bytes.__enter__()
        self.inside.install()
        self.previous = sys.gettrace()
        sys.settrace(self.on_call)
        return self

    def __exit__(self, *exception: Any) -> None:
        self.stop()
        self.inside.remove()
        if self.live_bytes is not None:
            self.live_bytes.__exit__(*exception)

    def stop(self) -> None:
        """Stop tracing, so that the program runs at full speed again."""
        self.frame = None
        self.inside.pause()
        if sys.gettrace() == self.on_call:  # else the program has put another tracer in its place
            sys.settrace(self.previous)

    def read_source(self, code: CodeType) -> None:
        self.code = code
        self.source = read_function_source(self.name, code)
        self.statement = {
            line: first
            for first, last in self.source.statements.items()
            for line in range(first, last + 1)
        }

    def trace_data(self, error: Raised | None) -> TraceData:
        """Return the trace, once the program has ended."""
        if self.refusal is not None:
            raise self.refusal
        self.failure = self.failure or self.inside.failure
        if self.failure is not None:
            raise RuntimeError(
                f"gradtrace could not read the state of {self.name} before line {self.line}; the "
                "program itself ran on. This is a bug of gradtrace: please report it with the "
                "program"
            ) from self.failure
        if self.code is None or not self.steps:
            raise ValueError(
                f"none of the lines of {self.name} ran in this thread (was it compiled, or is it "
                "run elsewhere?): trace the plain Python function"
            )
        if self.steps[-1].line is not None:
            raise ValueError(
                f"{self.name} switched the tracing of its lines off after line {self.line} "
                "(sys.settrace, or a tool that uses it): trace it without that"
            )
        nodes, calls = self.live.in_order(self.calls)
        return TraceData(
            function=self.code.co_name,
            source=self.source.lines,
            statements=self.source.statements,
            skipped=self.skipped(self.code, error),
            nodes=nodes,
            tensors=tuple(self.live.tensors),
            steps=tuple(self.steps),
            error=error,
            unrecorded=self.unrecorded,
            calls=calls,
        )

    def skipped(self, code: CodeType, error: Raised | None) -> tuple[int, ...]:
        """Return the lines that did not run; after an error, only those of branches not taken."""
        lines = {self.statement.get(line, line) for _, line in dis.findlinestarts(code) if line}
        never = (lines & self.source.lines.keys()) - self.begun_lines - {code.co_firstlineno}
        if error is not None:
            passed = self.begun_lines - {error.line}
            never &= {
                line
                for head, block in self.source.branches
                if head in passed and not self.begun_lines.intersection(block)
                for line in block
            }
        return tuple(sorted(never))

    def on_call(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        if self.begun:
            self.inside.on_call(frame)
            return self.calls.on_call(frame)
        if not self.wanted(frame.f_code):
            return None
        self.begun = True
        if self.code is None:
            try:
                self.read_source(frame.f_code)
            except Exception as refusal:
                self.refusal = refusal
                self.stop()
                return None
        return self.on_event

    def on_event(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        # An exception that leaves this method would look like one of the program's own.
        try:
            self.take(frame, event, arg)
        except Exception as failure:
            self.failure = failure
            self.stop()
            return None
        return self.on_event

    def take(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "line":
            line = self.first_line(frame)
            self.begun_lines.add(line)
            if len(self.steps) >= self.max_steps:
                self.unrecorded += 1
                self.line, self.raised = line, None
                self.inside.pause()
                return
            # A statement of several lines reports several of them: it is one step.
            if not (line == self.line and line in self.statement):
                self.record(frame, line)
                self.line = line
        elif event == "exception":
            if not isinstance(arg[1], StopIteration):  # the ordinary end of a for loop
                self.raised = _raised(arg[1], self.first_line(frame), self.live.last_run)
        elif event == "return":
            self.inside.pause()
            self.record(frame, None)
            self.stop()

    def record(self, frame: FrameType, line: int | None) -> None:
        with undisturbed():
            namespace(frame)  # frees what the line deleted (until Python 3.13), before bytes count
            peak, device = self.take_peak()
        step = dataclasses.replace(
            self.read(frame, last=line is None),
            line=line,
            peak=peak,
            device=device,
            raised=self.raised,
            unrecorded=self.inside.unrecorded,
        )
        self.steps.append(self.inside.close_line(step))
        self.raised = self.live.last_run = None
        if line is not None:
            self.frame = frame
            self.inside.begin_line()

    def read_inside(self, roots: Sequence[LiveNode]) -> Step:
        assert self.frame is not None
        return dataclasses.replace(self.read(self.frame, roots=roots), values=())

    def read(self, frame: FrameType, last: bool = False, roots: Sequence[LiveNode] = ()) -> Step:
        with undisturbed():
            names = namespace(frame)
            modules: dict[int, str] = {}
            tensors = {variable.name: variable.value for variable in reach(names, modules)}
            self.calls.name(modules)
            nodes = self.live.look(tensors, self.line, last=last, roots=roots)
            variables = tuple(
                self.variable(name, tensor, nodes.get(name)) for name, tensor in tensors.items()
            )
        return Step(
            line=self.line,
            ran=self.line,
            changed=self.live.changed,
            gone=self.live.gone,
            held=self.live.memory.held(),
            gradients=self.live.memory.gradients,
            peak=None,
            device=None,
            variables=variables,
            values=tuple((n, _plain(v)) for n, v in frame.f_locals.items() if type(v) in PLAIN),
        )

    def take_peak(self) -> tuple[int | None, dict[str, int] | None]:
        """Return and reset the peaks of tensors and of PyTorch's counters; None if not measured."""
        if self.live_bytes is None:
            return None, None
        peak, device = self.live_bytes.peak, self.live_bytes.counters.take()
        self.live_bytes.reset_peak()
        return (None, None) if self.line is None else (peak, device)

    def variable(self, name: str, tensor: torch.Tensor, node: int | None) -> Variable:
        grad = gradient_of(tensor)
        row = (
            name,
            tuple(shape_of(tensor)),
            tensor.requires_grad,
            not is_cut_off(tensor) and tensor.is_leaf,
            version_of(tensor),
            None if grad is None else self.text_of(grad, numbers_of),
            node,
            self.live.tensor_of[name],
            self.object(tensor),
            self.text_of(tensor, value_of),
        )
        if row not in self.variables:  # most are as they were a line before
            self.variables[row] = Variable(*row)
        return self.variables[row]

    def object(self, tensor: torch.Tensor) -> int:
        """Return a number that identifies the tensor as long as it exists."""
        number = self.objects.get(tensor)
        if number is None:
            number = self.objects[tensor] = next(self.new_object)
        return number

    def text_of(self, tensor: torch.Tensor, numbers: Callable[[torch.Tensor], str]) -> str:
        version = version_of(tensor)
        known_version, text = self.texts.get(tensor, (None, ""))
        if version is None or version != known_version or self.live.whole:
            text = numbers(tensor)
            self.texts[tensor] = version, text
        return text

    def ended_by(self, exception: Exception, last: int) -> Raised:
        """Return the record of an exception that ended the function.

        ``last`` need not be the line that raised: ``finally`` and ``with`` may have run after it.
        """
        lines = (n for frame, n in walk_tb(exception.__traceback__) if frame.f_code is self.code)
        line = next(lines, last)
        line = self.statement.get(line, line)
        raised = _raised(exception, line)
        recorded = (step.raised for step in reversed(self.steps) if step.raised is not None)
        same = (one for one in recorded if dataclasses.replace(one, node=None) == raised)
        return next(same, raised)

    def first_line(self, frame: FrameType) -> int:
        """Return the first line of the statement that the frame is executing."""
        return self.statement.get(frame.f_lineno, frame.f_lineno)


class CallRecorder(_Recorder):
    """Records the first call of a function that may not be defined yet.

    Run the program inside this context manager, then call :meth:`data`. ``path`` is the function's
    file, as in the ``co_filename`` of its code; ``name`` may be qualified (``Model.forward``).
    """

    def __init__(self, path: str, name: str):
        def wanted(code: CodeType) -> bool:
            return name in (code.co_name, code.co_qualname) and code.co_filename == path

        super().__init__(wanted, name, MAX_STEPS)

    def data(self) -> TraceData | None:
        """Return the first call's trace, None without a call; raise as :func:`gradtrace.trace`."""
        if not self.begun:
            return None
        return self.trace_data(self.steps[-1].raised if self.steps else None)


def _plain(value: bool | int | float | str | None) -> str:
    """Format a value as a short text; numbers are rounded so that every machine agrees."""
    if isinstance(value, float):
        return repr(float(f"{value:.6g}"))
    if isinstance(value, int) and abs(value) >= 2**64:
        return "a large integer"
    return f"{value[:36]!r}…" if isinstance(value, str) and len(value) > 40 else repr(value)
