"""Undocumented facts that gradtrace reads from PyTorch: the first file to check for a new release.

Each name is defined once, with a replacement if a release lacks it. gradtrace's changes to PyTorch
are in :mod:`gradtrace._torch_hooks`. Tested on torch 2.13.0, and most of it on 2.4.1.
"""

import inspect
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import attrgetter, methodcaller
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import graph as _graph
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.weak import TensorWeakRef, WeakIdKeyDictionary

__all__ = [
    "TensorWeakRef",
    "TorchDispatchMode",
    "WeakIdKeyDictionary",  # a tensor may be its key, by identity
]

LiveNode = Any  # a torch.autograd.graph.Node: its declared type knows little of what it has

# The number that the next recorded operation of this thread will get; each thread counts its own.
# Without it lines and edits cannot be put in order, and explanations say less.
next_sequence_nr: Callable[[], int] = getattr(torch.autograd, "_get_sequence_nr", lambda: 0)


# The code that runs whenever a module is called, hooks and all.
MODULE_CALL = torch.nn.Module._call_impl.__code__

# The number of the operation that created a node; all leaves have the same, a huge one.
sequence_nr: Callable[[Any], int] = methodcaller("_sequence_nr")


class _Pending(threading.local):
    """The edges of a graph that a thread is freeing and has yet to release."""

    def __init__(self) -> None:
        self.edges: list[tuple[tuple[LiveNode, int], ...]] = []
        self.releasing = False


class _Edges:
    """Edges that are freed from a queue, so that freeing a deep graph does not recurse."""

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


# PyTorch frees a deep graph in a loop. But that loop passes over a node to which Python has a
# reference (``grad_fn``, ``next_functions``), so its destructor runs inside the previous node's,
# and a deep graph overflows the stack. So the edges of each such node also lie in its ``metadata``,
# which is cleared after the edges and thus holds the last references. Python 3.11 and 3.12 free
# nested tuples in a loop beyond 50 levels; since 3.13 they recurse too deep for a thread's stack.
hold_edges: Callable[[tuple[tuple[LiveNode, int], ...]], Any] = (
    tuple if sys.version_info < (3, 13) else _Edges
)
EDGES = "gradtrace.edges"  # on node.metadata: its edges, kept alive


def edges_of(node: LiveNode) -> tuple[tuple[LiveNode | None, int], ...]:
    """Return the ``next_functions`` of a node: for each input, its node and its output number.

    All code reads a node's inputs here (the hot loop of a plain watch does the same itself), and a
    tensor's node with :func:`grad_fn_of`, so that a graph can still be freed at any depth.
    """
    if type(node) is LEAF:
        return ()
    metadata = node.metadata
    edges = metadata.get(EDGES)
    if edges is None:
        edges = metadata[EDGES] = hold_edges(node.next_functions)
    return edges if type(edges) is tuple else edges.next_functions


SUMS = {"AddBackward0": 1, "SubBackward0": -1}  # with the sign of the second input


def summands(node: LiveNode) -> list[tuple[tuple[LiveNode, int], int]]:
    """Return the edges of an addition or subtraction with their signs; none with ``alpha=``."""
    signs = (1, SUMS[type(node).__name__]) if node._saved_alpha == 1 else ()
    signed = zip(edges_of(node), signs, strict=False)
    return [((inner, place), factor) for (inner, place), factor in signed if inner is not None]


def grad_fn_of(tensor: torch.Tensor) -> LiveNode | None:
    """Return the node that computed a tensor; None for a leaf, or for a view that lost its node."""
    try:
        if tensor.is_leaf:
            return None
    except RuntimeError:  # a view from no_grad() whose base was changed since: it has no node
        return None
    edges_of(node := tensor.grad_fn)
    return node


def is_leaf_of_transform(tensor: Any) -> bool:
    """Whether a tensor is a leaf of a finished torch.func transform, so that its node is hidden."""
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.is_leaf
        and torch._C._functorch.maybe_get_level(tensor) == -2  # the level of a finished transform
    )


class Output(NamedTuple):
    """The shape and dtype of a tensor that an operation returned."""

    shape: torch.Size
    dtype: torch.dtype


def outputs_of(node: Any) -> tuple[Output, ...]:
    """Return the outputs of a node's operation; none on 2.4.1, and on 2.13.0 for nested tensors."""
    try:
        outputs = node._input_metadata
        return tuple(Output(torch.Size(output.shape), output.dtype) for output in outputs)
    except (AttributeError, RuntimeError):
        return ()


# A node's attributes with this prefix are handles of its saved tensors.  A node without them saves
# none that Python can read.
RAW_SAVED = "_raw_saved_"
# Whether a handle has the saved tensor as its ``data`` (2.10 lacks it, 2.13 has it).
SAVED_TENSORS_SHOW_THEIR_DATA = hasattr(torch._C._autograd.SavedTensor, "data")


def slot_getters(slot: str, is_custom: bool) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return two functions of a node: one reads the handles in a slot, the other unpacks them.

    To read runs no hook. Where a handle does not show its tensor, reading unpacks it, but stops the
    first Python function that is called meanwhile: it is the unpack hook.
    """
    unpacked = attrgetter("saved_tensors" if is_custom else f"_saved_{slot}")
    if SAVED_TENSORS_SHOW_THEIR_DATA:
        return attrgetter(RAW_SAVED + slot), unpacked

    def handles(node: LiveNode) -> Any:
        tracer = sys.gettrace()
        sys.settrace(None)
        try:  # call_tracing, because Python does not trace what a trace function calls
            value = sys.call_tracing(_unpack, (unpacked, node))
        except _IsPacked as error:
            (packed,) = error.args
            return packed if type(packed) is _Handle else _Handle(packed, unpacked)
        finally:
            sys.settrace(tracer)
        return tuple(map(_Handle, value)) if type(value) is tuple else _Handle(value)

    return handles, unpacked


class _Handle(NamedTuple):
    """A stand-in for PyTorch's handle of a saved tensor; ``error`` is that of unpacking it."""

    data: Any
    unpack_hook: Any = None
    error: str = ""


class _IsPacked(Exception):
    """Raised in place of an unpack hook, with what it would unpack."""


def _unpack(unpacked: Callable[[LiveNode], Any], node: LiveNode) -> Any:
    sys.settrace(_stop_hook)
    try:
        return unpacked(node)
    finally:
        sys.settrace(None)


def _stop_hook(frame: FrameType, event: str, argument: Any) -> None:
    sys.settrace(None)
    if frame.f_code.co_name != "__torch_dispatch__":  # of a subclass, which detaches the tensor
        raise _IsPacked(next(iter(frame.f_locals.values()), None))


def show_changed(node: LiveNode) -> None:
    """Make the handles of a node show its tensors that were changed in place.

    Unpacking them fails, and always will, because version counters only grow. Where a handle does
    not show its tensor, a hook takes it out, which fails with the same error when it is unpacked.
    """
    for name in () if SAVED_TENSORS_SHOW_THEIR_DATA else dir(node):
        if name.startswith(RAW_SAVED):
            try:
                slot_getters(name.removeprefix(RAW_SAVED), isinstance(node, CUSTOM))[0](node)
            except RuntimeError as error:
                with suppress(RuntimeError):  # freed, or a view that was a leaf when it was saved
                    raw = getattr(node, name)
                    raw = raw if type(raw) is tuple else (raw,)
                    # Of several, others may be unchanged.
                    if len(raw) == 1 and "inplace operation" in str(error):
                        raw[0].register_hooks(partial(_Handle, error=str(error)), _fail)


def _fail(changed: _Handle) -> None:
    raise RuntimeError(changed.error)


def packed_by_checkpoint(packed: Any) -> bool:
    """Whether a non-reentrant checkpoint packed a saved tensor into this object."""
    return type(packed).__module__ == "torch.utils.checkpoint"


# The node that the backward pass is executing.
current_node: Callable[[], Any] = torch._C._current_autograd_node
# Whether the running backward pass keeps the graph.  Without this function, nodes that hide their
# saved tensors stay "hidden" when freed.
keeps_graph: Callable[[], bool] = getattr(
    torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True
)

# The identity of a storage: the address of its C++ object.
storage_identity: Callable[[torch.UntypedStorage], int] = attrgetter("_cdata")


def version_of(tensor: torch.Tensor) -> int | None:
    """Return the version counter of ``tensor``; None for inference tensors, which have none."""
    try:
        return tensor._version
    except RuntimeError:
        return None


def has_hooks(tensor: torch.Tensor) -> bool:
    """Whether a hook of the program receives the gradient of ``tensor``."""
    return bool(tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None))


_version = attrgetter("_version")
# The tensor that a view was made of; None if it is no view.
base_of: Callable[[torch.Tensor], torch.Tensor | None] = attrgetter("_base")
# The objects that a module has registered: dicts of its parameters, modules and buffers.
registered_by = attrgetter("_parameters", "_modules", "_buffers")
# Values and indices of a sparse tensor; the public methods need a coalesced one.
coo_values, coo_indices = methodcaller("_values"), methodcaller("_indices")


def versions_of(tensors: list[torch.Tensor]) -> list[int | None]:
    """Return the version counters of tensors, as :func:`version_of` does."""
    try:
        return [*map(_version, tensors)]
    except RuntimeError:
        return [*map(version_of, tensors)]


# AccumulateGrad, the type of the nodes of leaves.
LEAF: type[LiveNode] = type(_graph.get_gradient_edge(torch.zeros((), requires_grad=True)).node)
CUSTOM = torch.autograd.function.BackwardCFunction  # the type of a torch.autograd.Function's nodes


def function_of(node: Any) -> type | None:
    """Return the torch.autograd.Function of a node; None for PyTorch's own operations."""
    return getattr(type(node), "_forward_cls", None) if isinstance(node, CUSTOM) else None


def inputs_of_function(function: Any) -> list[str]:
    """Return the names of the inputs of a custom function's forward, without ``ctx``."""
    base, names = torch.autograd.Function, [*inspect.signature(function.forward).parameters]
    return names[1:] if function.setup_context is base.setup_context else names


def kept_by_function(node: Any) -> list[torch.Tensor]:
    """Return the floating-point tensors without a graph that a custom function's forward stored.

    Inputs that require grad and outputs have a graph. Of the tensors passed to save_for_backward
    there is none if hooks would run, or if they have been freed or modified in place.
    """
    values = [*vars(node).values()]
    with suppress(RuntimeError):  # freed, or changed in place
        handles = slot_getters("tensors", True)[0](node)
        if type(handles) is tuple and all(handle.unpack_hook is None for handle in handles):
            values += node.saved_tensors
    values += [item for value in values if isinstance(value, (list, tuple)) for item in value]
    tensors = (value for value in values if isinstance(value, torch.Tensor))
    return [t for t in tensors if t.is_floating_point() and not t.requires_grad]


def has_warned(text: str) -> bool:
    """Whether a module of ``torch.utils`` has issued a warning that begins with ``text``."""
    # Python keeps a registry of the warnings in the module that issued them.
    modules = [module for name, module in sys.modules.items() if name.startswith("torch.utils.")]
    registries = (vars(module).get("__warningregistry__") for module in modules)
    return any(
        isinstance(key, tuple) and str(key[0]).startswith(text)
        for registry in registries
        for key in registry or ()
    )


def _never(ctx: Any) -> None: ...


_ONCE = torch.autograd.function.once_differentiable(_never).__code__


def is_once_differentiable(function: type) -> bool:
    """Whether the backward of a custom function is decorated with ``once_differentiable``."""
    return getattr(getattr(function, "backward", None), "__code__", None) is _ONCE


# The code that runs a custom function, and its backward.
APPLY_BACKWARD: CodeType = CUSTOM.apply.__code__
_apply: Any = torch.autograd.Function.apply
_APPLY: CodeType | None = getattr(getattr(_apply, "__func__", None), "__code__", None)


def caller_of_forward(frame: FrameType) -> FrameType | None:
    """Return the frame that called the custom function run by this frame; None if it runs none.

    Until 2.14 the function's ``apply`` is written in Python; since then the frame is that of its
    forward, which is recognized by its argument ``ctx``.
    """
    code = frame.f_code
    if _APPLY is not None:
        return frame.f_back if code is _APPLY else None
    if code.co_name != "forward" or not code.co_argcount:
        return None
    return frame.f_back if isinstance(frame.f_locals.get(code.co_varnames[0]), CUSTOM) else None


AUTOGRAD_FILE: str = torch.autograd.__file__
# Not imported: on 2.4.1 that imports SymPy, which takes a second and filters warnings. Not from
# `torch.utils.__path__`, which is empty where `make book` builds the API page without PyTorch.
CHECKPOINT_FILE: str = str(Path(torch.__file__).parent / "utils" / "checkpoint.py")
GRAD_SCALER_FILE: str = torch.amp.grad_scaler.__file__
OPTIMIZERS: str = torch.optim.__path__[0]  # the folder of PyTorch's optimizers
CLIP_GRAD_FILE: str = torch.nn.utils.clip_grad.__file__
UNSCALE = torch._amp_foreach_non_finite_check_and_unscale_  # a GradScaler calls it
LAYERS: str = torch.nn.__path__[0]  # the folder of its layers and their functions


# Contexts in which tensors are read past their subclass and past the modes of the program.
no_torch_function = torch._C.DisableTorchFunction
no_dispatch_modes = _disable_current_modes
no_transforms = temporarily_clear_interpreter_stack


def is_intercepted() -> bool:
    """Whether a dispatch mode, a torch.func transform or torch.jit.trace handles each operation.

    Such code passes fake and functional tensors, which are not the program's.
    """
    return bool(
        torch._C._len_torch_dispatch_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None  # torch.jit.trace
    )


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in the wrappers that torch.func transforms put around it."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


# The identity of a live tensor: the address of its C++ object.
tensor_identity: Callable[[torch.Tensor], int] = attrgetter("_cdata")


class StorageReference(StorageWeakRef):
    """A weak reference to a storage, whose identity no other storage gets while this exists."""

    @classmethod
    def at(cls, identity: int) -> "StorageReference":
        """Return a reference to the live storage with this ``storage_identity``."""
        return cls(torch.UntypedStorage._new_with_weak_ptr(identity))
