"""What gradtrace needs of PyTorch that is not documented: the one file to look at for a new torch.

Every such name stands here, with what to do where it is missing.  The rest of gradtrace asks this
module.  Seen on torch 2.13.0, and most of it on 2.4.1.
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
import threading
from collections.abc import Callable, Iterable
from operator import attrgetter, methodcaller
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

import torch
from torch.autograd import graph as _graph
from torch.jit import _builtins
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode, handle_torch_function
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.weak import TensorWeakRef, WeakIdKeyDictionary

__all__ = [
    "TensorWeakRef",
    "TorchDispatchMode",
    "WeakIdKeyDictionary",  # a tensor may be its key, by identity
]

LiveNode = Any  # a torch.autograd.graph.Node: its declared type knows little of what it has

# Nodes.

# The number that the next recorded operation of this thread will get; each thread counts its own.
# Without it lines and edits cannot be put in order, and explanations say less.
next_sequence_nr: Callable[[], int] = getattr(torch.autograd, "_get_sequence_nr", lambda: 0)


# The code that runs whenever a module is called, hooks and all.
MODULE_CALL = torch.nn.Module._call_impl.__code__

# The number of the operation that made a node; all leaves have the same, a huge one.
sequence_nr: Callable[[Any], int] = methodcaller("_sequence_nr")


class _Pending(threading.local):
    """What a thread has still to release of the graph that it frees now."""

    def __init__(self) -> None:
        self.edges: list[tuple[tuple[LiveNode, int], ...]] = []
        self.releasing = False


class _Edges:
    """Edges that queue themselves when they are freed; the outermost call empties the queue."""

    __slots__ = ("next_functions",)

    def __init__(self, next_functions: tuple[tuple[LiveNode, int], ...]):
        self.next_functions = next_functions

    # The default outlives this module's globals, which an ending interpreter clears.
    def __del__(self, pending: _Pending = _Pending()) -> None:  # noqa: B008
        pending.edges.append(self.next_functions)
        del self.next_functions  # else this object, and not the queue, frees them
        if not pending.releasing:
            pending.releasing = True
            try:
                while pending.edges:
                    pending.edges.pop()
            finally:
                pending.releasing = False


# PyTorch frees a deep graph in a loop, because each node's edge is the last reference to the next
# node.  A node that Python has looked at (``grad_fn``, ``next_functions``) has a second reference
# from its Python object, so that loop passes over it, and its destructor runs inside the previous
# node's: a deep graph overflows the stack.  So the edges of each such node also lie in its
# ``metadata``, which is cleared after the edges and thus holds the last references.  Python 3.11
# and 3.12 free nested tuples in a loop beyond 50 levels, whatever lies between the levels, at next
# to no cost.  Since 3.13 they recurse as deep as a main thread's stack allows, which is too deep
# for a thread's own.
hold_edges: Callable[[tuple[tuple[LiveNode, int], ...]], Any] = (
    tuple if sys.version_info < (3, 13) else _Edges
)
EDGES = "gradtrace.edges"  # on node.metadata: its edges, held


def edges_of(node: LiveNode) -> tuple[tuple[LiveNode | None, int], ...]:
    """The ``next_functions`` of a node: for each input the node that made it, and which output.

    Every look at a node's inputs goes through here (the hot loop of a plain watch does the same
    itself), and every look at a tensor's node through :func:`grad_fn_of`, so that a graph that was
    looked at can be freed at any depth.
    """
    if type(node) is LEAF:
        return ()
    metadata = node.metadata
    edges = metadata.get(EDGES)
    if edges is None:
        edges = metadata[EDGES] = hold_edges(node.next_functions)
    return edges if type(edges) is tuple else edges.next_functions


def grad_fn_of(tensor: torch.Tensor) -> LiveNode | None:
    """The node that made a tensor; None for a leaf."""
    if tensor.is_leaf:
        return None
    edges_of(node := tensor.grad_fn)
    return node


class Output(NamedTuple):
    """One tensor that an operation made."""

    shape: torch.Size
    dtype: torch.dtype


def outputs_of(node: Any) -> tuple[Output, ...]:
    """What the operation of a node made; empty where PyTorch does not tell.

    2.4.1 never does, 2.13.0 does but for nested tensors.
    """
    try:
        return tuple(Output(torch.Size(made.shape), made.dtype) for made in node._input_metadata)
    except (AttributeError, RuntimeError):
        return ()


# A node's attributes of this prefix are handles of what it saved.  A node without them saves
# nothing that can be seen.
RAW_SAVED = "_raw_saved_"
# Without ``data`` (2.10 has none, 2.13 does) a handle is unpacked as backward would.
SAVED_TENSORS_SHOW_THEIR_DATA = hasattr(torch._C._autograd.SavedTensor, "data")


def packed_by_checkpoint(packed: Any) -> bool:
    """Whether a checkpoint without reentry put this in a saved tensor's place."""
    return type(packed).__module__ == "torch.utils.checkpoint"


# The node that backward runs now.
current_node: Callable[[], Any] = torch._C._current_autograd_node
# Whether the backward that runs now keeps the graph.  Without it, nodes that hide what they save
# stay "hidden" when freed.
keeps_graph: Callable[[], bool] = getattr(
    torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True
)

# What tells two storages apart: the address of the C++ object.
storage_identity: Callable[[torch.UntypedStorage], int] = attrgetter("_cdata")


def version_of(tensor: torch.Tensor) -> int | None:
    """How often ``tensor`` was written in place; inference tensors do not count it."""
    try:
        return tensor._version
    except RuntimeError:
        return None


# AccumulateGrad: the nodes of leaves.
LEAF: type[LiveNode] = type(_graph.get_gradient_edge(torch.zeros((), requires_grad=True)).node)
CUSTOM = torch.autograd.function.BackwardCFunction  # what a torch.autograd.Function's nodes are


def result_shapes(node: Any) -> list[tuple[int, ...]] | None:
    """The shapes of what the node's operation returned; None where PyTorch does not tell (2.4)."""
    made = getattr(node, "_input_metadata", None)
    return None if made is None else [tuple(one.shape) for one in made]


def function_of(node: Any) -> type | None:
    """The torch.autograd.Function that a node belongs to; None for PyTorch's own operations."""
    return getattr(type(node), "_forward_cls", None) if isinstance(node, CUSTOM) else None


def saved_by_function(node: Any) -> tuple[torch.Tensor, ...]:
    """What a custom function's forward gave to save_for_backward, as its backward will see it.

    None where hooks would run, or it cannot be had.
    """
    try:
        handles = getattr(node, f"{RAW_SAVED}tensors", ())
        if any(getattr(handle, "unpack_hook", None) is not None for handle in handles):
            return ()
        return tuple(one for one in node.saved_tensors if one is not None)
    except RuntimeError:  # freed, or changed in place
        return ()


def kept_by_function(node: Any) -> list[torch.Tensor]:
    """The floating-point tensors that a custom function's forward left for its backward."""
    kept = (*saved_by_function(node), *vars(node).values())
    return [one for one in kept if isinstance(one, torch.Tensor) and one.is_floating_point()]


def has_warned(text: str) -> bool:
    """Whether PyTorch's code has warned so: Python keeps a registry in the module that did."""
    modules = [module for name, module in sys.modules.items() if name.startswith("torch.utils.")]
    registries = (vars(module).get("__warningregistry__") for module in modules)
    return any(
        isinstance(key, tuple) and str(key[0]).startswith(text)
        for registry in registries
        for key in registry or ()
    )


def is_distributed() -> bool:
    """Whether several processes train together."""
    distributed = torch.distributed
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


def is_averaged(module: Any) -> bool:
    """Whether it is a DistributedDataParallel, and not told to leave gradients as they are."""
    parallel = sys.modules.get("torch.nn.parallel.distributed")
    return (
        parallel is not None
        and isinstance(module, parallel.DistributedDataParallel)
        and bool(getattr(module, "require_backward_grad_sync", True))
    )


def _never(ctx: Any) -> None: ...


_ONCE = torch.autograd.function.once_differentiable(_never).__code__


def is_once_differentiable(function: type) -> bool:
    """Whether the backward of a custom function is marked so."""
    return getattr(getattr(function, "backward", None), "__code__", None) is _ONCE


# The code that runs a custom function, and its backward.
APPLY_BACKWARD: CodeType = CUSTOM.apply.__code__
_apply: Any = torch.autograd.Function.apply
_APPLY: CodeType | None = getattr(getattr(_apply, "__func__", None), "__code__", None)


def caller_of_forward(frame: FrameType) -> FrameType | None:
    """Whoever called the custom function that this frame runs; None if it runs none.

    Until 2.14 its ``apply`` is written in Python; since then the frame is that of its forward, told
    by the ``ctx`` that it is given (a forward without one is not).
    """
    code = frame.f_code
    if _APPLY is not None:
        return frame.f_back if code is _APPLY else None
    if code.co_name != "forward" or not code.co_argcount:
        return None
    return frame.f_back if isinstance(frame.f_locals.get(code.co_varnames[0]), CUSTOM) else None


AUTOGRAD_FILE: str = torch.autograd.__file__
CHECKPOINT_FILE: str = torch.utils.checkpoint.__file__
GRAD_MODE_FILE: str = torch.autograd.grad_mode.__file__
GRAD_SCALER_FILE: str = torch.amp.grad_scaler.__file__
OPTIMIZERS: str = torch.optim.__path__[0]  # the folder of PyTorch's optimizers


# Compiled code (torch.compile) is left alone.

_frames = torch._C._dynamo.eval_frame


_set_eval_frame: Callable[[Any], Any] = getattr(_frames, "set_eval_frame", lambda callback: None)


def never_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, which PyTorch's compiler does not look into, nor into what it calls."""
    if _skip(function, and_calls=True):
        return function

    def uncompiled(*args: Any, **kwargs: Any) -> Any:
        compiling = _set_eval_frame(None)
        try:
            return function(*args, **kwargs)
        finally:
            if compiling is not None:
                _set_eval_frame(compiling)

    _skip(uncompiled)
    return uncompiled


def _skip(function: Callable[..., Any], and_calls: bool = False) -> bool:
    """Tell the compiler to leave the function alone, ``and_calls``: what it calls, too.

    False where it cannot be told that.
    """
    code = getattr(function, "__func__", function).__code__
    if hasattr(_frames, "set_code_exec_strategy"):  # since torch 2.7
        actions = _frames._FrameAction
        inside = actions.SKIP if and_calls else actions.DEFAULT
        _frames.set_code_exec_strategy(code, _frames._FrameExecStrategy(actions.SKIP, inside))
        return True
    if hasattr(_frames, "skip_code") and not and_calls:
        _frames.skip_code(code)
        return True
    return False


# Backward: all of them pass one function, which can log what it runs.

RUNS_BACKWARD: CodeType = _graph._engine_run_backward.__code__
_LOGGED = all(
    name in RUNS_BACKWARD.co_names for name in ("log", "_register_logging_hooks_on_whole_graph")
)
_ARGUMENTS = ("grad_tensors", "keep_graph", "create_graph", "inputs")


class BackwardHook:
    """Has ``before(outputs, keep_graph, create_graph, inputs)`` called before every backward.

    After it ``after`` is called with what that returned, and the exception that ended the backward
    or None.

    ``torch.autograd.graph._engine_run_backward`` asks its module's ``log`` whether to log, and then
    calls ``_register_logging_hooks_on_whole_graph`` before the engine runs, and what that returned
    after it.  Both names are exchanged here.  So nothing of gradtrace is on the stack while a
    backward runs, in a traceback, or in the way of others who wrap that function.
    """

    def __init__(
        self,
        before: Callable[[Any, bool, bool, tuple[Any, ...]], Any],
        after: Callable[[Any, BaseException | None], None],
    ):
        self._before, self._after = before, after
        self._register_ours = never_compiled(self._began)
        self._end = never_compiled(self._ended)
        _skip(self.getEffectiveLevel)
        self._log, self._register = _graph.log, _graph._register_logging_hooks_on_whole_graph

    @property
    def installed(self) -> bool:
        return self in self._installed_hooks()

    def install(self) -> None:
        if not _LOGGED:
            raise NotImplementedError(f"torch {torch.__version__} runs backward in an unknown way")
        self._log, self._register = _graph.log, _graph._register_logging_hooks_on_whole_graph
        self._exchange(self, self._register_ours)

    def remove(self) -> None:
        """Take this hook out, also where a later one stands before it."""
        hooks = self._installed_hooks()
        place = hooks.index(self)
        if place == 0:
            self._exchange(self._log, self._register)
        else:
            hooks[place - 1]._log, hooks[place - 1]._register = self._log, self._register

    @staticmethod
    def _installed_hooks() -> list[BackwardHook]:
        """The hooks that stand in PyTorch's place now, the latest first."""
        hooks = []
        log = vars(_graph)["log"]
        while isinstance(log, BackwardHook):
            hooks.append(log)
            log = log._log
        return hooks

    def _exchange(self, log: Any, register: Callable[..., Any]) -> None:
        vars(_graph).update(log=log, _register_logging_hooks_on_whole_graph=register)

    # In place of the module's ``log``.

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def getEffectiveLevel(self) -> int:
        self._log.getEffectiveLevel()  # asked as without us: the compiler may be looking
        return logging.DEBUG

    def _began(self, outputs: Any) -> Callable[[], None]:
        log = self._log.getEffectiveLevel() <= logging.DEBUG
        unregister = self._register(outputs) if log else None
        caller = sys._getframe(1)
        while caller.f_code is not RUNS_BACKWARD and caller.f_back is not None:
            caller = caller.f_back  # past never_compiled's, and other hooks
        called_with = caller.f_locals
        given = called_with["args"]
        if len(given) < len(_ARGUMENTS):
            named = {**dict(zip(_ARGUMENTS, given, strict=False)), **called_with["kwargs"]}
            given = [named.get(name) for name in _ARGUMENTS]
        handled = sys.exc_info()[1]  # by whoever calls backward in an except block
        began = self._before(outputs, bool(given[1]), bool(given[2]), given[3] or ())

        return functools.partial(self._end, began, handled, unregister)

    def _ended(
        self, began: Any, handled: BaseException | None, unregister: Callable[[], None] | None
    ) -> None:
        if unregister is not None:
            unregister()
        error = sys.exc_info()[1]
        self._after(began, None if error is handled else error)


_COMPILER = ("torch._dynamo", "torch._C._dynamo")


class CompiledRegions:
    """Has ``changed(inside)`` called when a thread enters or leaves what is compiled.

    The compiler does both by ``set_eval_frame``, which its modules have imported, under that name
    or another: it is exchanged wherever it stands.
    """

    def __init__(self, changed: Callable[[bool], None]):
        def set_eval_frame(callback: Any) -> Any:
            prior = _set_eval_frame(None)
            if (callback is None) != (prior is None):
                changed(callback is not None)
            if callback is not None:
                _set_eval_frame(callback)
            return prior

        _skip(set_eval_frame)  # not what it calls: PyTorch would undo what that sets
        self._exchange = _Exchange(_set_eval_frame, set_eval_frame, _COMPILER)

    @property
    def installed(self) -> bool:
        return _frames.set_eval_frame is self._exchange.new

    def install(self) -> None:
        self._exchange.on()

    def remove(self) -> None:
        self._exchange.off()


class _Exchange:
    """Lets a name in PyTorch's modules stand for ``new`` where it stood for ``old``, and back."""

    def __init__(
        self,
        old: Callable[..., Any],
        new: Callable[..., Any],
        modules: str | tuple[str, ...],
        but: tuple[str, ...] = (),
    ):
        self.old, self.new, self._modules, self._but = old, new, modules, but
        self._places: list[tuple[ModuleType, str]] = []
        self._known = 0  # modules looked through

    def on(self) -> None:
        self._set(self.old, self.new)

    def off(self) -> None:
        self._set(self.new, self.old)

    def _set(self, old: Callable[..., Any], new: Callable[..., Any]) -> None:
        if len(sys.modules) != self._known:
            self._known = len(sys.modules)
            self._places = [
                (module, attribute)
                for name, module in list(sys.modules.items())
                if isinstance(module, ModuleType) and name not in self._but
                if str(name).startswith(self._modules)
                for attribute, value in list(vars(module).items())
                if value is old
            ]
        for module, attribute in self._places:
            setattr(module, attribute, new)


_optimizer = importlib.import_module("torch.optim.optimizer")  # torch.optim hides the name


class StepHook:
    """Has ``function`` called ``"pre"`` or ``"post"`` every optimizer's step.

    Not by ``register_optimizer_step_post_hook``: that would use up numbers of hooks.
    """

    def __init__(self, when: str, function: Callable[..., None]):
        self._hooks = getattr(_optimizer, f"_global_optimizer_{when}_hooks")
        self._function = never_compiled(function)

    @property
    def installed(self) -> bool:
        return _HOOK in self._hooks

    def install(self) -> None:
        self._hooks[_HOOK] = self._function

    def remove(self) -> None:
        del self._hooks[_HOOK]


_HOOK = "gradtrace"  # the key of ours


class PythonFunctions:
    """While a :class:`Mode` is on, PyTorch's functions in Python run as if it were not.

    Such a function asks ``has_torch_function`` whether a mode or subclass wants its call, and hands
    it over: it would run twice, one inside the other, and be so in every traceback.  That question
    is exchanged where it is asked, and answered with no where nobody else is there.  The mode sees
    what the function does instead, but for those of ``handed_over``.

    Where a subclass is there, it is asked first, as without the mode.
    """

    def __init__(self, handed_over: Iterable[Callable[..., Any]]):
        self._codes = frozenset(function.__code__ for function in handed_over)
        self._exchanges: list[_Exchange] = []
        self._installed = False
        for name, unpack in (("", False), ("_unary", True), ("_variadic", True)):
            theirs = getattr(torch.overrides, f"has_torch_function{name}")
            # Other modules import it from these.
            but = ("torch.overrides", "torch._C")
            self._exchanges.append(_Exchange(theirs, self._answer(theirs, unpack), "torch", but))
        if hasattr(torch.overrides, "_is_torch_function_mode_enabled"):
            enabled = torch.overrides._is_torch_function_mode_enabled
            self._exchanges.append(_Exchange(enabled, self._enabled(enabled), "torch.overrides"))

    def _answer(self, theirs: Callable[..., Any], unpack: bool) -> Callable[..., Any]:
        def has_torch_function(*arguments: Any) -> bool:
            if _alone() and sys._getframe(1).f_code not in self._codes:
                given = arguments if unpack else arguments[0]
                return (
                    not _PLAIN.issuperset(map(type, given))
                    and torch._C._is_torch_function_enabled()
                    and any(_overrides(type(one)) for one in given)
                )
            return theirs(*arguments)

        return has_torch_function

    def _enabled(self, theirs: Callable[..., Any]) -> Callable[..., Any]:
        def is_torch_function_mode_enabled() -> bool:
            handling = sys._getframe(1)
            subclasses = handling.f_code is HANDLE and handling.f_locals.get("overloaded_args")
            if subclasses and _alone() and handling.f_back is not None:
                return handling.f_back.f_code in self._codes
            return theirs()

        return is_torch_function_mode_enabled

    @property
    def installed(self) -> bool:
        return self._installed

    def install(self) -> None:
        self._installed = True
        for one in self._exchanges:
            builtin = _builtins._find_builtin(one.old)
            if builtin is not None:  # torch.jit.script knows these functions by their identity
                _builtins._get_builtin_table()[id(one.new)] = builtin
            one.on()

    def remove(self) -> None:
        self._installed = False
        for one in self._exchanges:
            one.off()
            _builtins._get_builtin_table().pop(id(one.new), None)


def _alone() -> bool:
    """Whether a :class:`Mode` is the only one that is on in this thread."""
    return torch._C._len_torch_function_stack() == 1 and isinstance(
        torch._C._get_function_stack_at(0), Mode
    )


_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter, type(None)))


def _overrides(kind: type) -> bool:
    """Whether tensors of this type have their own ``__torch_function__``."""
    method = getattr(kind, "__torch_function__", None)
    return method is not None and kind not in _PLAIN and method is not _DISABLED


_DISABLED = torch._C._disabled_torch_function_impl


# Modes: what sees every operation of a thread.

HANDLE: CodeType = handle_torch_function.__code__  # calls a mode for functions written in Python


class Mode(TorchFunctionMode):
    """A mode below all others: it sees what they make of an operation, and none misses its place.

    Modes are entered and left like brackets, by this thread's program too, which must find its own
    on top.  Only that of ``torch.set_default_device`` stays below: it expects to be the lowest.
    """

    def insert(self) -> None:
        """Put it on this thread's stack, if it is not there."""
        others = _pop_all()
        default = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
        lowest = [mode for mode in others[:1] if mode is default and _LOWEST_IS_DEFAULT]
        _push_all([*lowest, self, *(mode for mode in others[len(lowest) :] if mode is not self)])

    def take_out(self) -> None:
        """Take it off this thread's stack, if it is there."""
        _push_all([mode for mode in _pop_all() if mode is not self])


# In torch 2.4 it is a bracket as any other.
_LOWEST_IS_DEFAULT = "_len_torch_function_stack" in DeviceContext.__exit__.__code__.co_names


def _pop_all() -> list[Any]:
    """This thread's modes, the lowest first."""
    depth = torch._C._len_torch_function_stack()
    return [torch._C._pop_torch_function_stack() for _ in range(depth)][::-1]


def _push_all(modes: list[Any]) -> None:
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)


# Contexts in which tensors are read past their subclass and past the modes of the program.
no_torch_function = torch._C.DisableTorchFunction
no_dispatch_modes = _disable_current_modes


def tracing() -> bool:
    """Whether torch.jit.trace records what runs."""
    return torch._C._get_tracing_state() is not None


def others_drive() -> bool:
    """Whether what runs now is looked at, transformed or recorded by others of PyTorch's kind.

    Fake and functional tensors, torch.func, torch.jit.trace, torch.export and so on: what they pass
    around is not the program's.
    """
    return bool(
        torch._C._len_torch_dispatch_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or tracing()
    )


# What tells two tensors apart while both live: the address of the C++ object.
tensor_identity: Callable[[torch.Tensor], int] = attrgetter("_cdata")


class StorageReference:
    """Tells whether a storage still lives, without keeping its memory.

    As long as this is there, PyTorch gives no other storage the same identity.
    """

    def __init__(self, storage: torch.UntypedStorage):
        self._reference = StorageWeakRef(storage)

    @classmethod
    def at(cls, identity: int) -> StorageReference:
        """The reference to a storage that lives now, by its ``storage_identity``."""
        return cls(torch.UntypedStorage._new_with_weak_ptr(identity))

    def expired(self) -> bool:
        return self._reference.expired()
