"""Run one function line by line and record the autograd graph between the lines.

:func:`trace` calls the function for real, under ``sys.settrace``.  Python reports each line just
before it runs; at each report, and once more when the function ends, the tensors that the live
variables reach are collected and :mod:`gradtrace.graph` reads the graph behind them.  The result
is a :class:`~gradtrace.Trace`.

A node is recognised from one line to the next by a number in ``node.metadata``, a dict that lives
as long as the node itself.  A hook before each node remembers which one ran last, so that an error
in backward can be laid at its door; it goes when the function ends.  Neither keeps the graph alive
nor changes what it computes.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import sys
import textwrap
from collections.abc import Callable
from traceback import walk_tb
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakIdKeyDictionary

from gradtrace.frames import PLAIN, namespace, reach
from gradtrace.graph import (
    FREED,
    FREED_TAG,
    HIDDEN,
    NOT_NEEDED,
    describe,
    has_graph,
    root_node,
    shape_of,
    state_of,
    undisturbed,
    walk,
)
from gradtrace.steps import NodeState, Raised, Slot, Step, Trace, TraceNode, Variable

MAX_STEPS = 250

# Private to PyTorch.  Without it, nodes that hide what they save stay "hidden" when freed.
_keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)

_NUMBER_TAG = "gradtrace.number"
_numbers = itertools.count()
_MAX_HOOKED = 2_000  # nodes: a hook costs a Python call in each backward


def trace(fn: Callable, /, *args: Any, max_steps: int = MAX_STEPS, **kwargs: Any) -> Trace:
    """Run ``fn(*args, **kwargs)`` and record the autograd graph before and after each of its lines.

    Only the lines of ``fn`` itself are steps; what it calls runs as one.  An exception that ends
    ``fn`` becomes part of the trace and is not raised.

    Args:
        fn: a Python function, method, module (its ``forward`` is traced) or other object that can
            be called, with source code.
        max_steps: how many line events to record.  Later ones run at full speed, unrecorded.

    Raises:
        TypeError: ``fn`` is not a Python function, or is a generator or coroutine function.
        ValueError: the source of ``fn`` cannot be found, none of its lines ran, or it switched
            tracing off.
        RuntimeError: gradtrace itself failed while it read the program's state.
        KeyboardInterrupt, SystemExit: passed on; nothing is recorded.

    >>> import torch
    >>> def twice():
    ...     x = torch.ones(3, requires_grad=True)
    ...     y = x.exp().sum()
    ...     y.backward()
    ...     y.backward()
    >>> seen = trace(twice)
    >>> seen.error.type, seen.source[seen.error.line].strip()
    ('RuntimeError', 'y.backward()')
    >>> [seen.nodes[node].name for node in seen.freed]
    ['ExpBackward0']
    """
    recorder = _Recorder(_code(fn), _name(fn), max_steps)
    error = None
    try:
        with recorder:
            fn(*args, **kwargs)
    except Exception as exception:
        if not recorder.steps:  # wrong arguments: the function never began
            raise
        error = recorder.ended_by(exception)
    except BaseException as exception:
        exception.add_note("gradtrace.trace() was stopped by this; it recorded nothing.")
        raise
    return recorder.trace(error)


class CallRecorder:
    """Records the first call of the function ``name`` that is defined in ``code``.

    A context manager: run the program inside, then ask for the :meth:`trace`.

    Raises:
        ValueError: no function of that name is defined in ``code``.
    """

    def __init__(self, code: CodeType, name: str):
        pending = [code]
        for candidate in pending:
            pending.extend(inner for inner in candidate.co_consts if isinstance(inner, CodeType))
        found = [candidate for candidate in pending[1:] if name in _names(candidate)]
        if not found:
            raise ValueError(f"no function {name!r} is defined in {code.co_filename}")
        self._recorder = _Recorder(found[0], name, MAX_STEPS)

    def __enter__(self) -> CallRecorder:
        self._recorder.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._recorder.__exit__(*exception)

    def trace(self) -> Trace | None:
        """The trace of the first call; None when there was none."""
        if not self._recorder.steps:
            return None
        return self._recorder.trace(self._recorder.steps[-1].raised)


def _names(code: CodeType) -> tuple[str, str]:
    return code.co_name, code.co_qualname


def _name(fn: object) -> str:
    return getattr(fn, "__qualname__", None) or type(fn).__name__


def _code(fn: Callable) -> CodeType:
    """The code object whose lines are traced when ``fn`` is called."""
    inner = fn
    if isinstance(inner, torch.nn.Module):
        inner = inner.forward
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = inspect.unwrap(inner)
    if not isinstance(inner, (FunctionType, MethodType, type)):  # an object that can be called
        inner = inspect.getattr_static(type(inner), "__call__", inner)
    inner = getattr(inner, "__func__", inner)
    if not isinstance(inner, FunctionType):
        raise TypeError(
            f"trace() runs a Python function line by line, but {_name(fn)} "
            f"({type(fn).__name__}) has no Python lines: put the call into a function with def"
        )
    for test, kind in (
        (inspect.isgeneratorfunction, "generator"),
        (inspect.iscoroutinefunction, "coroutine"),
        (inspect.isasyncgenfunction, "asynchronous generator"),
    ):
        if test(inner):
            raise TypeError(
                f"calling the {kind} function {_name(fn)} runs none of its lines: trace a "
                "function that consumes it"
            )
    return inner.__code__


def _source(name: str, code: CodeType) -> tuple[dict[int, str], dict[int, int]]:
    """The lines of the function, without its decorators, and its statements of several lines."""
    try:
        lines, first = inspect.getsourcelines(code)
    except (OSError, TypeError):
        raise ValueError(
            f"the source of {name} cannot be found (it was typed at a prompt or made by "
            "exec): put it into a file or a notebook cell"
        ) from None
    text = textwrap.dedent("".join(lines))
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a lambda in the middle of an expression
        tree = ast.Module([], [])
    begin = tree.body[0].lineno if tree.body else 1  # the line of def: decorators come before
    statements = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno  # of its head, if it has a body
            if last > node.lineno:
                statements[first + node.lineno - 1] = first + last - 1
    numbered = enumerate(text.splitlines(), first)
    return {number: line for number, line in numbered if number - first + 1 >= begin}, statements


def _raised(exception: BaseException, line: int, node: int | None = None) -> Raised:
    try:
        message = str(exception)
    except Exception:
        message = "(its message cannot be printed)"
    return Raised(type(exception).__name__, message, line, node)


class _Recorder:
    """Receives the line events of one call and turns each into a :class:`~gradtrace.steps.Step`."""

    def __init__(self, code: CodeType, name: str, max_steps: int):
        self.code = code
        self.name = name
        self.source, self.statements = _source(name, code)
        self.statement = {
            line: first
            for first, last in self.statements.items()
            for line in range(first, last + 1)
        }
        self.max_steps = max_steps
        self.steps: list[Step] = []
        self.nodes: list[TraceNode] = []
        self.unrecorded = 0
        self.failure: Exception | None = None  # of the recorder itself
        self.hooks: list[RemovableHandle] = []
        self.begun = False
        self.line: int | None = None  # about to run, or running
        self.raised: Raised | None = None  # by that line
        self.last_run: int | None = None  # number of the node that backward ran last
        self.indices: dict[int, int] = {}  # node number → index in self.nodes
        self.leaf_numbers = WeakIdKeyDictionary()

    def __enter__(self) -> None:
        self.previous = sys.gettrace()
        sys.settrace(self.on_call)

    def __exit__(self, *exception: Any) -> None:
        sys.settrace(self.previous)
        for hook in self.hooks:
            hook.remove()

    def trace(self, error: Raised | None) -> Trace:
        """What was recorded, once the program has ended."""
        if self.failure is not None:
            raise RuntimeError(
                f"gradtrace could not read the state of {self.name} before line {self.line}; the "
                "program itself ran on. This is a bug of gradtrace: please report it with the "
                "program"
            ) from self.failure
        if not self.steps:
            raise ValueError(
                f"none of the lines of {self.name} ran in this thread (was it compiled, or is it "
                "run elsewhere?): trace the plain Python function"
            )
        if self.steps[-1].line is not None:
            raise ValueError(
                f"{self.name} switched the tracing of its lines off after line {self.line} "
                "(sys.settrace, or a tool that uses it): trace it without that"
            )
        return Trace(
            function=self.code.co_name,
            source=self.source,
            statements=self.statements,
            nodes=tuple(self.nodes),
            steps=tuple(self.steps),
            error=error,
            unrecorded=self.unrecorded,
        )

    def on_call(self, frame: FrameType, event: str, arg: Any) -> Callable | None:
        if frame.f_code is not self.code or self.begun:
            return None
        self.begun = True
        return self.on_event

    def on_event(self, frame: FrameType, event: str, arg: Any) -> Callable | None:
        # An exception that leaves this method would look like one of the program's own.
        try:
            self.take(frame, event, arg)
        except Exception as failure:
            self.failure = failure
            return None
        return self.on_event

    def take(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "line":
            line = self.first_line(frame)
            if len(self.steps) >= self.max_steps:
                self.unrecorded += 1
                self.line, self.raised = line, None
                return
            # A statement of several lines reports several of them: it is one step.
            if not (line == self.line and line in self.statement):
                self.record(frame, line)
                self.line = line
        elif event == "exception":
            if not isinstance(arg[1], StopIteration):  # the ordinary end of a for loop
                node = self.indices.get(self.last_run)
                self.raised = _raised(arg[1], self.first_line(frame), node)
        elif event == "return":
            self.record(frame, None)

    def record(self, frame: FrameType, line: int | None) -> None:
        with undisturbed():
            tensors = {found.name: found.value for found in reach(namespace(frame))}
            variables, states, held = self.read(tensors)
        values = tuple((n, _plain(v)) for n, v in frame.f_locals.items() if type(v) in PLAIN)
        self.steps.append(Step(line, self.line, states, held, variables, values, self.raised))
        self.raised = self.last_run = None

    def ended_by(self, exception: Exception) -> Raised:
        """The exception that left the function; finally and with may have run after its line."""
        lines = (n for frame, n in walk_tb(exception.__traceback__) if frame.f_code is self.code)
        line = next(lines, self.line)
        line = self.statement.get(line, line)
        seen = (step.raised for step in reversed(self.steps) if step.raised is not None)
        raised = _raised(exception, line)
        return next((r for r in seen if dataclasses.replace(r, node=None) == raised), raised)

    def first_line(self, frame: FrameType) -> int:
        """The first line of the statement that the frame is at."""
        return self.statement.get(frame.f_lineno, frame.f_lineno)

    def read(self, tensors: dict[str, torch.Tensor]):
        roots = {name: root_node(t) for name, t in tensors.items() if has_graph(t)}
        live, links = walk(roots.values())
        inputs = [t for t in tensors.values() if t.is_leaf and not t.requires_grad]
        graph = describe(live, links, inputs)
        names = {id(tensor): name for name, tensor in reversed(tensors.items())}
        first_new = len(self.nodes)
        hooked = len(live) <= _MAX_HOOKED
        indices = [
            self.index(node, described, hooked)
            for node, described in zip(live, graph.nodes, strict=True)
        ]
        for index, node, described in zip(indices, live, graph.nodes, strict=True):
            if index >= first_new:
                self.nodes[index] = self.new_node(node, described, indices, names)
        states = tuple(
            _state(index, self.nodes[index], node)
            for index, node in sorted(zip(indices, graph.nodes, strict=True))
        )
        where = dict(zip(live, indices, strict=True))
        variables = tuple(
            _variable(name, tensor, where.get(roots.get(name))) for name, tensor in tensors.items()
        )
        return variables, states, tuple(graph.held)

    def index(self, node, described, hooked: bool) -> int:
        """The node's place in ``self.nodes``; a new node gets one, to be filled in."""
        if described.leaf is not None:  # PyTorch makes a new AccumulateGrad when the old one died
            number = self.leaf_numbers.get(node.variable)
            if number is None:
                number = self.leaf_numbers[node.variable] = next(_numbers)
        else:
            number = node.metadata.get(_NUMBER_TAG)
            if number is None:
                number = node.metadata[_NUMBER_TAG] = next(_numbers)
        if number not in self.indices:
            self.indices[number] = len(self.nodes)
            self.nodes.append(None)
            if described.leaf is None and hooked:
                self.hooks.append(node.register_prehook(self.before_node))
                if described.state == HIDDEN:
                    self.hooks.append(node.register_hook(_after_hidden_node))
        return self.indices[number]

    def before_node(self, grad_outputs: Any) -> None:
        self.last_run = torch._C._current_autograd_node().metadata.get(_NUMBER_TAG)

    def new_node(self, node, described, indices: list[int], names: dict[int, str]) -> TraceNode:
        label = described.name
        if described.leaf is not None:
            label = names.get(id(node.variable), "a leaf no variable holds")
        return TraceNode(
            name=described.name,
            label=label,
            leaf=described.leaf is not None,
            line=self.line,
            next=tuple(indices[i] for i in described.next),
            slots=tuple(
                Slot(
                    saved.name,
                    saved.state == NOT_NEEDED,
                    None if saved.shape is None else tuple(saved.shape),
                    saved.dtype and str(saved.dtype).removeprefix("torch."),
                    saved.storage_nbytes,
                    saved.version,
                    saved.role,
                )
                for saved in described.saved
            ),
        )


def _after_hidden_node(grad_inputs: Any, grad_outputs: Any) -> None:
    if not _keeps_graph():
        torch._C._current_autograd_node().metadata[FREED_TAG] = True


def _state(index: int, known: TraceNode, node) -> NodeState:
    """The slots in the order they were first seen: a freed list no longer tells its items."""
    now = {saved.name: saved for saved in node.saved}
    slots = []
    for slot in known.slots:
        saved = now.get(slot.name) or now.get(slot.name.partition("[")[0])
        slots.append((saved.state, saved.version) if saved is not None else (FREED, None))
    # A torch.autograd.Function calls itself freed even when it had saved nothing.
    state = state_of(state for state, _ in slots) if node.saved else node.state
    return NodeState(index, state, tuple(slots))


def _variable(name: str, tensor: torch.Tensor, node: int | None) -> Variable:
    grad = tensor.grad if tensor.is_leaf or tensor.retains_grad else None
    return Variable(
        name,
        tuple(shape_of(tensor)),
        tensor.requires_grad,
        tensor.is_leaf,
        None if tensor.is_inference() else tensor._version,
        None if grad is None else _short(grad),
        node,
    )


def _short(grad: torch.Tensor) -> str:
    """Few numbers as they are, many by their norm, rounded so that every machine agrees."""
    try:
        grad = grad.detach()
        values = grad.to_dense() if grad.layout is not torch.strided else grad
        if values.numel() <= 4:
            text = ", ".join(f"{value:.3g}" for value in values.flatten().tolist())
            return f"[{text}]" if values.dim() else text
        precise = torch.complex128 if values.is_complex() else torch.float64
        return f"norm {torch.linalg.vector_norm(values.to(precise)).item():.3g}"
    except Exception:  # the meta device, fake tensors, whatever subclasses say instead
        return "without values"


def _plain(value: bool | int | float | str | None) -> str:
    """A short text.  Numbers are rounded so that every machine agrees."""
    if isinstance(value, float):
        return repr(float(f"{value:.6g}"))
    if isinstance(value, int) and abs(value) >= 2**64:
        return "a large integer"
    return f"{value[:36]!r}…" if isinstance(value, str) and len(value) > 40 else repr(value)
