"""Terms of a loss that are constants, although they were computed from trained parameters.

A term such as ``loss + penalty.item()``, or a new leaf made of such a number, is found when the
loss calls backward(). Only then is the line that detached it, or read it as a number, examined: its
next value is stored with the graph that it loses, which shows what the term would train, and
whether another call uses that graph.
"""

import ast
import functools
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from gradtrace import _torch
from gradtrace.autograd import source
from gradtrace.autograd.frames import Location
from gradtrace.autograd.syntax import names
from gradtrace.autograd.tensors import storages_in
from gradtrace.autograd.traversal import leaves_of, roots_of, walk
from gradtrace.watching.cuts import Cut, bounded, uncommon_numbers
from gradtrace.watching.operation_kinds import Operation

_MAX_NUMBERS = 256  # that Python has read, and additions


@dataclass(eq=False)
class Detached:
    """The graphs of the values that a line has detached since the last backward call."""

    first: int  # the number of the first of these cuts
    last_call: int
    roots: set[int] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)
    leaves: set[int] = field(default_factory=set)


class ConstantTerms:
    """The values that lost their graph at the lines which make constant terms of a loss."""

    def __init__(self) -> None:
        self.detached: dict[Location, Detached | None] = {}  # the latest one, None if unknown
        self.added: dict[int, Cut] = {}  # the constants' cuts, by the numbers of the additions
        self.calls: dict[Location, int] = {}  # the first backward call whose loss has the term
        self.subtracted: dict[int, Cut] = {}  # by the numbers of the subtractions
        # By their identity, the leaves made of such values since the last backward call, and the
        # lines of those that the call reached.
        self.leaves: dict[int, Cut] = {}
        self.reached: dict[int, Location] = {}
        self.of_integers: set[Location | None] = set()  # lines whose constants are, such as argmax
        self.used: set[Location] = set()  # whose leaves' gradients the program has read
        self.of_leaves: dict[Location, list[float]] = {}  # the numbers in the first one
        self._read: dict[float, Cut] = {}  # by the number that Python read

    def __len__(self) -> int:
        return len(self.added) + len(self.detached)

    def note_cut(self, tensors: list[torch.Tensor], cut: Cut, last_call: int) -> None:
        """Store the unused graph of values that a line cuts off, if it makes constant terms."""
        if cut.location not in self.detached or not tensors:
            return
        value = self.detached[cut.location]
        if value is None or value.last_call != last_call:
            value = self.detached[cut.location] = Detached(cut.number, last_call)
        roots = roots_of(tensors)
        value.roots.update(map(_torch.sequence_nr, roots))
        live = walk(roots)[0]
        value.leaves |= storages_in(leaves_of(live))
        value.numbers |= {_torch.sequence_nr(n) for n in live if type(n) is not _torch.LEAF}

    def note_read(self, value: object, cut: Cut) -> None:
        """Store the cut of a number that Python has read."""
        # A common one would match the 0.0 with which a sum begins.
        for number in uncommon_numbers(value) if type(value) is float else ():
            bounded(self._read, _MAX_NUMBERS)[number] = cut

    def note_leaf(self, leaf: torch.Tensor, cut: Cut | None) -> None:
        """Store the cut of the values from which a new leaf was made."""
        if cut is not None and cut.location is not None:
            bounded(self.leaves, _MAX_NUMBERS)[_torch.tensor_identity(leaf)] = cut

    def note_subtraction(self, operation: Operation, cut: Cut) -> None:
        """Store the cut of a constant that is subtracted, as a baseline or a maximum is."""
        bounded(self.subtracted, _MAX_NUMBERS)[operation.sequence_nr] = cut

    def note_addition(self, operation: Operation, cut: Cut | None) -> None:
        """Store the cut of the constant in a sum of a value with a graph and a constant."""
        number = next((value for value in operation.args if type(value) is float), None)
        if cut is None and number is not None and self._read:
            read_names, written = _operands_at(Location.of(operation.frame))
            variables = (_value_of(name, operation.frame) for name in read_names)
            values = [float(value) for value in variables if type(value) in (float, int)]
            for value in {number, *values} & self._read.keys():
                if value == number or any(value * f == number for f in (*values, *written)):
                    cut = self._read[value]
        if cut is not None and cut.location is not None:
            self.of_integers |= {cut.location} if cut.to_integers else set()
            bounded(self.added, _MAX_NUMBERS)[operation.sequence_nr] = cut


def _value_of(name: str, frame: FrameType) -> Any:
    """Return the value of a variable or stored attribute, ``self.weight``; no property runs."""
    variable, *attributes = name.split(".")
    value = frame.f_locals.get(variable, frame.f_globals.get(variable))
    for attribute in attributes:
        value = getattr(value, "__dict__", {}).get(attribute)
    return value


@functools.lru_cache(maxsize=1_000)
def _operands_at(place: Location) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the names that the statement at a line reads, and the numbers written in it."""
    statement = source.simple_statement(place.file, place.line)
    if statement is None:
        return (), ()
    constants = [node.value for node in ast.walk(statement) if isinstance(node, ast.Constant)]
    factors = tuple(float(value) for value in constants if isinstance(value, int | float))
    return tuple(names(statement, ast.Load)), factors
