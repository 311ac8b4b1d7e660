"""The graph as plain data: nodes, leaves, saved tensors, their states and their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # a stored trace is read where torch is not installed
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
    """One tensor that a node saved for its backward.

    ``state`` is ``"alive"``, ``"modified"`` (its version is no longer the one that was saved:
    backward will refuse it), ``"packed"`` (a saved-tensor hook or a checkpoint holds something in
    its place), ``"freed"`` or ``"not needed"`` (the node has room for it but never saved it).
    ``role`` says who else holds its memory: ``"leaf"`` (a parameter or another leaf of this
    graph), ``"input"`` (named by the caller) or ``"activation"`` (the graph itself).  What is not
    known, as after freeing, is None.  ``storage`` identifies the storage it lies in within one
    snapshot, and ``storage_nbytes`` is the size of that storage in bytes.
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
        """Bytes of its elements; fewer than ``storage_nbytes`` for a view of something larger."""
        if self.shape is None or self.dtype is None:
            return None
        return self.shape.numel() * self.dtype.itemsize


class Leaf(NamedTuple):
    """The tensor into whose ``.grad`` a leaf node accumulates.  ``storage`` as in SavedTensor.

    ``name`` is that of a parameter of the ``model`` given to :func:`snapshot`, else None.
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
    """One node of the graph.

    ``next`` holds, for each input that needs a gradient, the index of the node that made it in
    ``Graph.nodes``.  ``sequence_nr`` is PyTorch's counter of recorded operations (one for each
    thread), None for leaves.  ``leaf`` describes the leaf tensor of an AccumulateGrad node and is
    None for every other node.  ``state`` is ``"freed"`` when any of its saved tensors is, else the
    first of ``"modified"``, ``"packed"``, ``"alive"`` that applies, else ``"saves nothing"``;
    ``"hidden"`` when PyTorch shows Python nothing of what the node saves.  ``outputs`` are the
    tensors that the operation made, empty where PyTorch does not tell (2.4.1 never does), and in a
    graph of more than 5,000 nodes whose ``model`` is not given: asking takes as long as all else.
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

    ``activations`` are held by the graph; ``leaves`` (parameters and other leaves) and ``inputs``
    are tensors that the program holds anyway: those named to :func:`snapshot`, and what its model
    holds besides (buffers, frozen parameters).
    """

    activations: int
    leaves: int
    inputs: int

    @property
    def total(self) -> int:
        return sum(self)


def state_of(slots: Iterable[str]) -> str:
    """The state of a node whose slots are in these states."""
    states = set(slots)
    for state in (FREED, MODIFIED, PACKED, ALIVE):
        if state in states:
            return state
    return NOTHING_SAVED


def shapes_of(outputs: Sequence[Output]) -> str:
    """The shapes of what an operation made, short; a dtype only where it is not float32.

    >>> import torch
    >>> from gradtrace._torch import Output
    >>> shapes_of([Output(torch.Size((2, 4)), torch.float32)] * 3)
    '3 × [2, 4]'
    >>> shapes_of([Output(torch.Size(()), torch.float64)])
    'scalar float64'
    """
    if not outputs:
        return ""
    shape, dtype = outputs[0]
    text = f"[{', '.join(map(str, shape))}]" if shape else "scalar"
    if str(dtype) != "torch.float32":
        text += f" {str(dtype).removeprefix('torch.')}"
    if len(outputs) == 1:
        return text
    alike = all(output == outputs[0] for output in outputs)
    return f"{len(outputs)} × {text}" if alike else f"{len(outputs)} tensors"
