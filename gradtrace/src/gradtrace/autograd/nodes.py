"""The graph as plain data: nodes, leaves, saved tensors, their states and their bytes."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from gradtrace._torch import Output

ALIVE = "alive"
MODIFIED = "modified"
PACKED = "packed"
FREED = "freed"
NOT_NEEDED = "not needed"
NOTHING_SAVED = "saves nothing"
HIDDEN = "hidden"


class SavedTensor(NamedTuple):
    """A tensor that a node saved for the backward pass.

    ``state`` is ``"alive"``, ``"modified"`` (its version differs from the saved one, so backward
    will refuse it), ``"packed"`` (a saved-tensor hook or a checkpoint stores something in its
    place), ``"freed"`` or ``"not needed"`` (the node has a slot for it but saved nothing). ``role``
    is ``"leaf"`` (a parameter or another leaf of this graph), ``"input"`` (passed to
    :func:`snapshot`, or the model's; in a trace, of a variable without a graph) or
    ``"activation"`` (any other tensor, even if a variable holds it, too). Unknown values are None,
    for instance after freeing. ``storage`` identifies the storage within one snapshot, and
    ``storage_nbytes`` is the size of that storage in bytes.
    """

    name: str
    state: str
    shape: torch.Size | None = None
    dtype: torch.dtype | None = None
    device: torch.device | None = None
    version: int | None = None
    storage: int | None = None
    storage_nbytes: int | None = None
    role: str | None = None

    @property
    def nbytes(self) -> int | None:
        """Bytes of the tensor's elements; fewer than ``storage_nbytes`` for a partial view."""
        if self.shape is None or self.dtype is None:
            return None
        return self.shape.numel() * self.dtype.itemsize


class Leaf(NamedTuple):
    """The tensor into whose ``.grad`` a leaf node accumulates.

    ``storage`` is as in :class:`SavedTensor`; ``name`` is its name in the ``model``, or None.
    """

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    version: int | None
    storage: int
    storage_nbytes: int
    has_grad: bool
    name: str | None = None


class Node(NamedTuple):
    """A node of the graph.

    ``next`` holds, for each input that needs a gradient, the index in ``Graph.nodes`` of the node
    that computed it. ``sequence_nr`` is PyTorch's counter of recorded operations (one for each
    thread), None for leaves. ``leaf`` describes the leaf tensor of an AccumulateGrad node and is
    None for every other node. ``state`` is ``"freed"`` if any saved tensor is freed, else the first
    of ``"modified"``, ``"packed"``, ``"alive"`` that applies, else ``"saves nothing"``; it is
    ``"hidden"`` if PyTorch does not expose the node's saved tensors to Python. ``outputs`` are the
    shapes and dtypes of the operation's results, or of the leaf. Those of an operation are empty in
    PyTorch 2.4.1, which does not report them, for nested tensors, and in a graph of more than 5,000
    nodes without a ``model``, because reading them takes as long as reading all the rest.
    """

    name: str
    state: str
    next: tuple[int, ...]
    saved: tuple[SavedTensor, ...]
    sequence_nr: int | None
    leaf: Leaf | None
    outputs: tuple[Output, ...] = ()


class HeldBytes(NamedTuple):
    """Bytes of the storages that saved tensors keep alive, each storage counted once.

    ``leaves`` counts parameters and other leaves, ``inputs`` the tensors passed to :func:`snapshot`
    and the model's buffers and frozen parameters; the program keeps both alive anyway.
    ``activations`` counts all other saved tensors, even those that a variable holds, too.
    """

    activations: int
    leaves: int
    inputs: int


def state_of(slots: Iterable[str]) -> str:
    """Return the state of a node from the states of its slots."""
    states = set(slots)
    ranked = (FREED, MODIFIED, PACKED, ALIVE)
    return next((state for state in ranked if state in states), NOTHING_SAVED)


def shapes_of(outputs: Sequence[Output]) -> str:
    """Format the shapes of an operation's outputs; a dtype is included unless it is float32.

    >>> shapes_of([Output(torch.Size((2, 4)), torch.float64)] * 3)
    '3 × [2, 4] float64'
    """
    if not outputs:
        return ""
    shape, dtype = outputs[0]
    text = f"[{', '.join(map(str, shape))}]" if shape else "scalar"
    if str(dtype) != "torch.float32":
        text += f" {str(dtype).removeprefix('torch.')}"
    if len(outputs) == 1:
        return text
    all_equal = all(output == outputs[0] for output in outputs)
    return f"{len(outputs)} × {text}" if all_equal else f"{len(outputs)} tensors"
