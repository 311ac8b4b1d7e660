"""Values that have lost their graph, and the lines that cut it off.

A value loses its graph when it is detached, read by Python, or computed where gradients are off.
The tables follow it from there: into results without a graph, into memory that it is written to,
through Python's numbers, and into the operation that combines it with values that have a graph.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import TypeVar

import torch

from gradtrace import _torch
from gradtrace.autograd.frames import Location
from gradtrace.autograd.tensors import storage_of

K = TypeVar("K")
V = TypeVar("V")

_MAX_CUTS = 20_000  # entries of each table
_MAX_NUMBERS = 64  # of one list
_SAMPLE = 64  # elements of a tensor that are compared with the numbers that Python read
_COMMON = 1_000  # a number with at most three decimals may be written in the program


@dataclass(eq=False)
class Cut:
    """The place where a tensor lost its graph; ``cut_by_<how>`` is the name of the evidence."""

    how: str
    location: Location | None
    shape: tuple[int, ...] | None = None  # of a value that was read, to recognize it as a tensor
    of: frozenset[int] = frozenset()  # the storages that a gradient, or a detached value, is of
    through: frozenset[int] = frozenset()  # the storages of the leaves of a gradient's graph
    function: str | None = None  # the custom function that cut a gradient off
    intermediate: bool = False  # computed in a custom forward, by a differentiable operation
    unused: bool = False  # of a value that was read: it has a graph that no backward call has used
    to_integers: bool = False  # by an operation that returns integers
    feeds: bool = False  # a leaf's operation used the value, or a forward pass read it
    origins: "tuple[Cut, ...]" = ()  # the cuts that the value, or its inputs, had before
    number: int = field(default_factory=itertools.count().__next__)  # in order of time


def with_origins(cuts: Iterable[Cut]) -> set[Cut]:
    """Return these cuts, and the earlier ones of the same values."""
    collected = {*cuts}
    pending = [*collected]
    for cut in pending:
        new = {*cut.origins} - collected
        collected |= new
        pending += new
    return collected


class Cuts:
    """The tensors that have no graph, and why.

    Tensors are identified by their addresses, because PyTorch does not swap tensors with a weak
    reference. An address is forgotten when another tensor is created there.
    """

    def __init__(self) -> None:
        # The third value is whether gradients were off where the tensor was computed.
        self._cuts: dict[int, tuple[torch.Size, Cut, bool]] = {}
        self._memory: dict[int, tuple[_torch.StorageReference, Cut]] = {}  # by storage
        self._read: dict[float, Cut] = {}  # by the number that Python read
        self.used: dict[int, list[Cut]] = {}  # by the number of the node that used the values

    def get(self, tensor: torch.Tensor) -> Cut | None:
        shape, cut, _ = self._cuts.get(_torch.tensor_identity(tensor)) or (None, None, False)
        return cut if cut is not None and shape == tensor.shape else None

    def computed_without_gradients(self, tensor: torch.Tensor) -> bool:
        """Whether gradients were off where a tensor with a cut was computed."""
        *_, off = self._cuts.get(_torch.tensor_identity(tensor)) or (False,)
        return off

    def of(self, storages: Collection[int]) -> Cut | None:
        """Return the latest cut of a gradient or detached copy of these storages, or None."""
        cuts = (cut for _, cut, _ in reversed(self._cuts.values()) if cut.of & {*storages})
        return next(cuts, None)

    def set(self, tensor: torch.Tensor, cut: Cut) -> None:
        key, off = _torch.tensor_identity(tensor), not torch.is_grad_enabled()
        bounded(self._cuts)[key] = tensor.shape, cut, off

    def forget(self, tensor: torch.Tensor, inputs: Iterable[torch.Tensor] = ()) -> None:
        """Delete the cut stored for a result's address, unless the result is one of the inputs."""
        key = _torch.tensor_identity(tensor)
        if key in self._cuts and not any(tensor is operand for operand in inputs):
            del self._cuts[key]

    def __len__(self) -> int:
        return len(self._cuts)

    def set_memory(self, tensor: torch.Tensor, cut: Cut) -> None:
        """Store the cut of the values that were written into a tensor's storage."""
        alive = _torch.StorageReference(tensor.untyped_storage())
        bounded(self._memory)[storage_of(tensor)[0]] = alive, cut

    def of_memory(self, tensor: torch.Tensor) -> Cut | None:
        """Return the cut of the values that were written into a tensor's storage, or None."""
        if not self._memory:
            return None
        alive, cut = self._memory.get(storage_of(tensor)[0]) or (None, None)
        return None if alive is None or alive.expired() else cut

    def set_read(self, values: object, cut: Cut) -> None:
        for number in uncommon_numbers(values):
            bounded(self._read)[number] = cut

    def of_read(self, values: object) -> Cut | None:
        """Return the cut of the first of these numbers that Python had read, or None."""
        numbers = uncommon_numbers(values) if self._read else ()
        return next((self._read[number] for number in numbers if number in self._read), None)

    def use(self, node: _torch.LiveNode, cuts: list[Cut]) -> None:
        """Record that a node's operation used values with these cuts."""
        bounded(self.used)[_torch.sequence_nr(node)] = cuts


def elements_of(tensor: torch.Tensor) -> list[float]:
    """Return the first elements of a tensor as numbers."""
    return tensor.detach().flatten()[:_SAMPLE].tolist()


def uncommon_numbers(values: object) -> Iterator[float]:
    """Yield the numbers in nested lists; not 0.5 or 3.0, which a program also writes itself."""
    pending = [values]
    for value in pending:
        if len(pending) < _MAX_NUMBERS and isinstance(value, (list, tuple)):
            pending += value[:_MAX_NUMBERS]
        elif type(value) is float and isfinite(value) and not (value * _COMMON).is_integer():
            yield value


def bounded(table: dict[K, V], size: int | None = None) -> dict[K, V]:
    """Return a table of cuts in which there is room for one more entry; the oldest one may go."""
    if len(table) >= (size or _MAX_CUTS):
        del table[next(iter(table))]
    return table
