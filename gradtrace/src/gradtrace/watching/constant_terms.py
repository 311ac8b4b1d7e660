"""Terms of a loss that are constants, although they were computed from trained parameters.

A term such as ``loss + penalty.item()`` is found when the loss calls backward(). Only then is the
line that detached it, or read it as a number, examined: its next value is stored with the graph
that it loses, which shows what the term would train, and whether another call uses that graph.
"""

import ast
import functools
from dataclasses import dataclass

import torch

from gradtrace import _torch
from gradtrace.autograd import source
from gradtrace.autograd.frames import Location
from gradtrace.autograd.syntax import names
from gradtrace.autograd.tensors import storage_of
from gradtrace.autograd.traversal import roots_of, walk
from gradtrace.watching.operation_kinds import Operation

_MAX_NUMBERS = 256  # that Python has read, and additions


@dataclass(eq=False)
class Detached:
    """The graph of a value that was detached: its root, its nodes and leaves' storages."""

    root: int
    numbers: frozenset[int]
    leaves: frozenset[int]


class ConstantTerms:
    """The values that lost their graph at the lines which make constant terms of a loss."""

    def __init__(self) -> None:
        self.detached: dict[Location, Detached | None] = {}  # None if unknown
        self.added: dict[int, Location] = {}  # by the number of the addition's node
        self.calls: dict[Location, int] = {}  # the first backward call whose loss has the term
        self._read: dict[float, Location] = {}  # the numbers that Python read

    def note_cut(self, tensors: list[torch.Tensor], location: Location | None) -> None:
        """Store the unused graph of values that a line cuts off, if it makes constant terms."""
        if location not in self.detached or not tensors:
            return
        live = walk(roots_of(tensors))[0]
        leaves = frozenset(storage_of(n.variable)[0] for n in live if isinstance(n, _torch.LEAF))
        numbers = [_torch.sequence_nr(n) for n in live if not isinstance(n, _torch.LEAF)]
        self.detached[location] = Detached(numbers[0], frozenset(numbers), leaves)

    def note_read(self, value: object, location: Location | None) -> None:
        """Store a number that Python read at this line."""
        if type(value) is float and location is not None:
            if len(self._read) >= _MAX_NUMBERS:
                del self._read[next(iter(self._read))]
            self._read[value] = location

    def note_addition(self, operation: Operation, place: Location | None) -> None:
        """Store the place of the constant in a sum of a value with a graph and a constant."""
        numbers = [value for value in operation.args if type(value) is float]
        if place is None and numbers and self._read:
            variables = operation.frame.f_locals
            computed = (variables.get(name) for name in _names_at(Location.of(operation.frame)))
            numbers += [value for value in computed if type(value) is float]
            place = next((self._read[n] for n in numbers if n in self._read), None)
        if place is not None:
            if len(self.added) >= _MAX_NUMBERS:
                del self.added[next(iter(self.added))]
            self.added[operation.sequence_nr] = place


@functools.lru_cache(maxsize=1_000)
def _names_at(place: Location) -> tuple[str, ...]:
    """Return the names that the statement at a line reads."""
    statement = source.simple_statement(place.file, place.line)
    return () if statement is None else tuple(names(statement, ast.Load))
