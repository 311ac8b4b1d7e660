"""Hooks that gradtrace installs in PyTorch's undocumented places, and removes again.

Tested on torch 2.13.0, and most of it on 2.4.1.
"""

import functools
import importlib
import logging
import math
import sys
from collections.abc import Callable, Iterable
from types import CodeType, ModuleType
from typing import Any

import torch
from torch.autograd import graph as _graph
from torch.jit import _builtins
from torch.overrides import TorchFunctionMode, handle_torch_function
from torch.utils import swap_tensors
from torch.utils._device import DeviceContext
from torch.utils._pytree import tree_leaves

from gradtrace._torch import LEAF, edges_of

# Compiled code (torch.compile) is left alone.

_frames = torch._C._dynamo.eval_frame
_set_eval_frame: Callable[[Any], Any] = getattr(_frames, "set_eval_frame", lambda callback: None)


def never_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a version of ``function`` that ``torch.compile`` skips, with all that it calls."""
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
    """Make the compiler skip a function, or also its calls; return False if this release cannot."""
    code = getattr(function, "__func__", function).__code__
    if hasattr(_frames, "set_code_exec_strategy"):  # since torch 2.7
        actions = _frames._FrameAction
        for_calls = actions.SKIP if and_calls else actions.DEFAULT
        _frames.set_code_exec_strategy(code, _frames._FrameExecStrategy(actions.SKIP, for_calls))
        return True
    if hasattr(_frames, "skip_code") and not and_calls:
        _frames.skip_code(code)
        return True
    return False


# Backward passes: every one starts in the same function, which can log its graph.

RUNS_BACKWARD: CodeType = _graph._engine_run_backward.__code__
_LOGGED = all(
    name in RUNS_BACKWARD.co_names for name in ("log", "_register_logging_hooks_on_whole_graph")
)
_ARGUMENTS = ("grad_tensors", "keep_graph", "create_graph", "inputs")


class BackwardHook:
    """Calls ``before(outputs, keep_graph, create_graph, inputs)`` before each backward pass.

    Afterwards ``after`` receives the result of ``before`` and the exception of the pass, or None.

    ``torch.autograd.graph._engine_run_backward`` reads the level of its module's ``log``; if that
    is DEBUG, it calls ``_register_logging_hooks_on_whole_graph`` before the engine runs, and the
    function returned by that afterwards. Both names are replaced, so no frame of gradtrace is on
    the stack during a backward pass or in a traceback, and others may wrap that function.
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
            raise NotImplementedError(
                f"torch {torch.__version__} runs the backward pass in an unknown way"
            )
        self._log, self._register = _graph.log, _graph._register_logging_hooks_on_whole_graph
        self._exchange(self, self._register_ours)

    def remove(self) -> None:
        """Remove this hook, even if a later one has replaced it."""
        hooks = self._installed_hooks()
        place = hooks.index(self)
        if place == 0:
            self._exchange(self._log, self._register)
        else:
            hooks[place - 1]._log, hooks[place - 1]._register = self._log, self._register

    @staticmethod
    def _installed_hooks() -> "list[BackwardHook]":
        """Return the hooks that are installed now, the latest first."""
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
        self._log.getEffectiveLevel()  # read as without this hook: the compiler may be tracing
        return logging.DEBUG

    def _began(self, outputs: Any) -> Callable[[], None]:
        log = self._log.getEffectiveLevel() <= logging.DEBUG
        unregister = self._register(outputs) if log else None
        caller = sys._getframe(1)
        while caller.f_code is not RUNS_BACKWARD and caller.f_back is not None:
            caller = caller.f_back  # past never_compiled's, and other hooks
        local_variables = caller.f_locals
        arguments = local_variables["args"]
        if len(arguments) < len(_ARGUMENTS):
            positional = dict(zip(_ARGUMENTS, arguments, strict=False))
            named = {**positional, **local_variables["kwargs"]}
            arguments = [named.get(name) for name in _ARGUMENTS]
        _, keep_graph, create_graph, inputs = arguments[: len(_ARGUMENTS)]
        handled = sys.exc_info()[1]  # in an except block that calls backward
        began = self._before(outputs, bool(keep_graph), bool(create_graph), inputs or ())

        return functools.partial(self._end, began, handled, unregister)

    def _ended(
        self, began: Any, handled: BaseException | None, unregister: Callable[[], None] | None
    ) -> None:
        if unregister is not None:
            unregister()
        error = sys.exc_info()[1]
        self._after(began, None if error is handled else error)


def retain_graphs() -> None:
    """Make later backward passes retain their graphs, and later operations save copies."""
    autograd = vars(torch.autograd)
    run_engine = autograd["_engine_run_backward"]

    def retaining(outputs: Any, gradients: Any, _: bool, *others: Any, **named: Any) -> Any:
        return run_engine(outputs, gradients, True, *others, **named)

    autograd["_engine_run_backward"] = retaining
    torch.autograd.graph.saved_tensors_hooks(
        lambda saved: saved.detach().clone(),
        torch.Tensor.clone,  # backward() may change its copy
    ).__enter__()


class AllowRefused(TorchFunctionMode):
    """Runs the operations that autograd refuses, with their gradient where it is defined.

    Each output of a function such as ``chunk`` becomes a view with its own node, which may be
    changed in place; any other view that may not be changed is replaced by the changed copy.
    Inference mode only switches gradients off. Optimizers train results of operations, too, and a
    hook on a tensor without gradient never runs. Any other operation that raises an error runs
    again without gradients, so its value is right. ``loses_gradient`` says whether that lost a
    gradient; it is None if a leaf without ``.grad`` changed, because the program may train its old
    or its new value. With ``spread_nan``, each value whose gradient is lost becomes NaN, which
    spreads to all values that depend on it.
    """

    def __init__(self, spread_nan: bool):
        super().__init__()
        self.loses_gradient: bool | None = False
        self._spread_nan = spread_nan
        vars(torch._C)["_InferenceMode"] = lambda mode: torch.set_grad_enabled(not mode)
        add = torch.optim.Optimizer.add_param_group

        def add_results(self: torch.optim.Optimizer, param_group: dict[str, Any]) -> None:
            for parameter in tree_leaves(param_group["params"]):
                if isinstance(parameter, torch.Tensor) and not parameter.is_leaf:
                    parameter.retain_grad()  # so that it may be trained
            add(self, param_group)

        torch.optim.Optimizer.add_param_group = add_results  # type: ignore[method-assign]

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        try:
            outputs = function(*args, **(kwargs or {}))
        except RuntimeError as error:
            if function.__name__ in ("backward", "grad"):  # they would accumulate twice
                raise
            try:
                if function.__name__ == "detach_":  # of a view
                    return args[0].copy_(args[0].detach())
                if function.__name__ == "register_hook":  # of what gets no gradient
                    return args[0].clone().requires_grad_().register_hook(*args[1:])
                if function.__name__ == "__deepcopy__":  # like that of a leaf: without its graph
                    return args[0].detach().clone()
                return self._without_gradients(function, args, kwargs or {})
            except Exception:
                raise error from None
        return tuple(map(_own_view, outputs)) if type(outputs) is tuple else outputs

    def _without_gradients(self, function: Any, args: Any, kwargs: Any) -> Any:
        operands = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        changed, old, version = operands[0], operands[0].clone(), operands[0]._version
        leaf = changed if changed._base is None else changed._base
        with torch.no_grad():
            result = function(*args, **kwargs)
        is_write = changed._version != version
        value = changed if is_write else result
        if is_write and leaf.is_leaf and leaf.requires_grad:
            # The new value may depend on the old value of the leaf itself.
            operands = [x for x in operands[1:] if not _leaves_of(x) <= {id(leaf)}]
            if leaf.grad is None:  # else it is an update by hand
                self.loses_gradient = self.loses_gradient or None
        elif is_write and changed is args[0]:
            function(old, *args[1:], **kwargs)
            swap_tensors(changed, old)
            value = old.data  # whatever else shares this memory has no gradient of the change
        if torch.is_grad_enabled() and any(operand.requires_grad for operand in operands):
            self.loses_gradient = True
            if self._spread_nan and isinstance(value, torch.Tensor):
                value.detach().fill_(math.nan)
            elif self._spread_nan:
                result = result.copy()  # NumPy's array shares the tensor's memory
                result.fill(math.nan)
        return result


def _leaves_of(tensor: torch.Tensor) -> set[int]:
    """Return the identities of the leaves from which a tensor was computed."""
    nodes = {_graph.get_gradient_edge(tensor).node} if tensor.requires_grad else set()
    pending = [*nodes]
    while pending:
        new = {node for node, _ in edges_of(pending.pop()) if node is not None} - nodes
        nodes |= new
        pending += new
    return {id(node.variable) for node in nodes if isinstance(node, LEAF)}


def _own_view(output: Any) -> Any:
    """Return ``output``, or a view with its own node if it shares its node with other outputs."""
    base, creation = getattr(output, "_base", None), torch._C._autograd._get_creation_meta
    if base is None or creation(output) != _SHARED or base.dtype != output.dtype:
        return output
    return base.as_strided(output.size(), output.stride(), output.storage_offset())


_SHARED = torch._C._autograd.CreationMeta.MULTI_OUTPUT_NODE
_COMPILER = ("torch._dynamo", "torch._C._dynamo")


class _Exchange:
    """Replaces the function ``old`` by ``new`` in modules whose names begin with ``modules``."""

    def __init__(
        self,
        old: Callable[..., Any],
        new: Callable[..., Any],
        modules: str | tuple[str, ...],
        but: tuple[str, ...] = (),
    ):
        self.old, self.new, self._modules, self._but = old, new, modules, but
        self._places: list[tuple[ModuleType, str]] = []
        self._module_count = 0  # of sys.modules when they were last searched
        self.installed = False

    def install(self) -> None:
        self.installed = True
        self._set(self.old, self.new)

    def remove(self) -> None:
        self.installed = False
        self._set(self.new, self.old)

    def _set(self, old: Callable[..., Any], new: Callable[..., Any]) -> None:
        if len(sys.modules) != self._module_count:
            self._module_count = len(sys.modules)
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


class CompiledRegions(_Exchange):
    """Calls ``changed(inside)`` when a thread enters or leaves compiled code.

    The compiler does both with ``set_eval_frame``, which is replaced under each name that it has.
    """

    def __init__(self, changed: Callable[[bool], None]):
        def set_eval_frame(callback: Any) -> Any:
            prior = _set_eval_frame(None)
            if (callback is None) != (prior is None):
                changed(callback is not None)
            if callback is not None:
                _set_eval_frame(callback)
            return prior

        _skip(set_eval_frame)  # but not its calls, whose setting PyTorch would undo
        super().__init__(_set_eval_frame, set_eval_frame, _COMPILER)


_optimizer = importlib.import_module("torch.optim.optimizer")  # torch.optim hides the name


class StepHook:
    """Calls ``function`` before (``"pre"``) or after (``"post"``) each optimizer's step.

    A function that is called before a step may return arguments that replace the step's own.
    ``register_optimizer_step_post_hook`` is not used, because the program's own hooks would get
    other numbers.
    """

    def __init__(self, when: str, function: Callable[..., Any]):
        self._hooks = getattr(_optimizer, f"_global_optimizer_{when}_hooks")
        self._function = never_compiled(function)

    @property
    def installed(self) -> bool:
        return _HOOK in self._hooks

    def install(self) -> None:
        self._hooks[_HOOK] = self._function

    def remove(self) -> None:
        del self._hooks[_HOOK]


_HOOK = "gradtrace"  # the key of this hook


class ParameterHook:
    """Calls ``made(data, parameter)`` when a tensor becomes a parameter, which no mode receives."""

    def __init__(self, made: Callable[[torch.Tensor, torch.Tensor], None]):
        self._made = made
        self._original: Any = None
        self.installed = False

    def install(self) -> None:
        original = self._original = vars(torch.nn.Parameter)["__new__"]
        made = self._made

        @functools.wraps(original.__func__)
        def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
            parameter = original.__func__(cls, *args, **kwargs)
            data = args[0] if args else kwargs.get("data")
            if isinstance(data, torch.Tensor):
                made(data, parameter)
            return parameter

        torch.nn.Parameter.__new__ = new  # type: ignore[method-assign]
        self.installed = True

    def remove(self) -> None:
        torch.nn.Parameter.__new__ = self._original  # type: ignore[method-assign]
        self.installed = False


class PythonFunctions:
    """Runs PyTorch's Python functions under a :class:`Mode` as if no mode were active.

    Such a function asks ``has_torch_function`` whether a mode or a subclass overrides it. If so it
    dispatches the call, and would run a second time inside itself, as tracebacks would show. So
    ``has_torch_function`` is replaced: it returns False if only the mode is active, which then
    receives the operations that the function calls. Functions in ``handed_over`` are dispatched
    themselves. A subclass comes first, as without the mode.
    """

    def __init__(self, handed_over: Iterable[Callable[..., Any]]):
        self._codes = frozenset(function.__code__ for function in handed_over)
        self._exchanges: list[_Exchange] = []
        self.installed = False
        for name, unpack in (("", False), ("_unary", True), ("_variadic", True)):
            original = getattr(torch.overrides, f"has_torch_function{name}")
            # Other modules import it from these.
            homes = ("torch.overrides", "torch._C")
            answer = self._answer(original, unpack)
            self._exchanges.append(_Exchange(original, answer, "torch", homes))
        if hasattr(torch.overrides, "_is_torch_function_mode_enabled"):
            enabled = torch.overrides._is_torch_function_mode_enabled
            self._exchanges.append(_Exchange(enabled, self._enabled(enabled), "torch.overrides"))

    def _answer(self, original: Callable[..., Any], unpack: bool) -> Callable[..., Any]:
        def has_torch_function(*arguments: Any) -> bool:
            if _alone() and sys._getframe(1).f_code not in self._codes:
                operands = arguments if unpack else arguments[0]
                return (
                    not _PLAIN.issuperset(map(type, operands))
                    and torch._C._is_torch_function_enabled()
                    and any(_overrides(type(operand)) for operand in operands)
                )
            return original(*arguments)

        return has_torch_function

    def _enabled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def is_torch_function_mode_enabled() -> bool:
            handling = sys._getframe(1)
            subclasses = handling.f_code is HANDLE and handling.f_locals.get("overloaded_args")
            if subclasses and _alone() and handling.f_back is not None:
                return handling.f_back.f_code in self._codes
            return original()

        return is_torch_function_mode_enabled

    def install(self) -> None:
        self.installed = True
        for exchange in self._exchanges:
            builtin = _builtins._find_builtin(exchange.old)
            if builtin is not None:  # torch.jit.script finds these functions by their identity
                _builtins._get_builtin_table()[id(exchange.new)] = builtin
            exchange.install()

    def remove(self) -> None:
        self.installed = False
        for exchange in self._exchanges:
            exchange.remove()
            _builtins._get_builtin_table().pop(id(exchange.new), None)


def _alone() -> bool:
    """Whether a :class:`Mode` is the only active mode of this thread."""
    return torch._C._len_torch_function_stack() == 1 and isinstance(
        torch._C._get_function_stack_at(0), Mode
    )


_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter, type(None)))


def _overrides(kind: type) -> bool:
    """Whether tensors of this type have their own ``__torch_function__``."""
    method = getattr(kind, "__torch_function__", None)
    return method is not None and kind not in _PLAIN and method is not _DISABLED


_DISABLED = torch._C._disabled_torch_function_impl


# Modes, which receive every operation of a thread.

HANDLE: CodeType = handle_torch_function.__code__  # calls a mode for functions written in Python


class Mode(TorchFunctionMode):
    """A mode below all others, which receives the operations that they pass on.

    The program enters and exits its own modes, which must be at the top of the stack then. Only the
    mode of ``torch.set_default_device`` stays below this one, because it must be the lowest.
    """

    def insert(self) -> None:
        """Put this mode below the program's modes on the thread's stack."""
        modes = _pop_all()
        default = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
        lowest = [mode for mode in modes[:1] if mode is default and _LOWEST_IS_DEFAULT]
        _push_all([*lowest, self, *(mode for mode in modes[len(lowest) :] if mode is not self)])

    def take_out(self) -> None:
        """Remove this mode from the thread's stack, if it is there."""
        _push_all([mode for mode in _pop_all() if mode is not self])


# In torch 2.4 the mode of set_default_device may be anywhere.
_LOWEST_IS_DEFAULT = "_len_torch_function_stack" in DeviceContext.__exit__.__code__.co_names


def _pop_all() -> list[Any]:
    """Pop this thread's modes and return them, the lowest first."""
    depth = torch._C._len_torch_function_stack()
    return [torch._C._pop_torch_function_stack() for _ in range(depth)][::-1]


def _push_all(modes: list[Any]) -> None:
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)
