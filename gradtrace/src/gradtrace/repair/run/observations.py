"""The record of one run, as plain data that processes exchange; reading it needs no torch."""

import itertools
import math
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gradtrace.explaining.causes import family_of

SAME = 1e-4  # relative; sums of float32 in another order differ by less
ZERO = 1e-7
NOISE = 1e-6  # of the largest gradient


class ProgramLine(NamedTuple):
    """A line of the user's program, and the name of its function; empty if that is not known."""

    file: str
    line: int
    function: str


class Sample(NamedTuple):
    """A tensor's elements; for a large one, sums of many elements with random signs.

    Sampling is linear, so samples can be added and subtracted like the tensors, and the Euclidean
    norm of a sample is about the tensor's.
    """

    values: tuple[float, ...]

    @property
    def norm(self) -> float:
        return math.hypot(*self.values)

    def minus(self, other: "Sample | None") -> "Sample":
        if other is None or len(other.values) != len(self.values):
            return self
        return Sample(tuple(a - b for a, b in zip(self.values, other.values, strict=True)))

    def plus(self, other: "Sample | None") -> "Sample":
        return self if other is None else self.minus(other.times(-1))

    def times(self, factor: float) -> "Sample":
        return Sample(tuple(factor * x for x in self.values))

    def distance(self, other: "Sample") -> float:
        """Return the distance relative to the larger norm: 0 for equal samples, at most 2."""
        if len(self.values) != len(other.values):
            return 2.0
        if not (self.is_finite and other.is_finite):
            return 0.0 if str(self) == str(other) else 2.0
        size = max(self.norm, other.norm)
        return self.minus(other).norm / size if size else 0.0

    def opposes(self, other: "Sample") -> bool:
        """Whether the angle between the samples is above 120°, as for gradients of adversaries."""
        product = sum(a * b for a, b in zip(self.values, other.values, strict=True))
        return product < -0.5 * self.norm * other.norm

    @property
    def is_finite(self) -> bool:
        return all(map(math.isfinite, self.values))


Gradients = dict[str, Sample]  # by the key of the parameter


@dataclass
class ObservedCall:
    """A backward call of the program; parameters are named by their keys (`ProgramRun.names`)."""

    number: int  # from 1
    site: tuple[ProgramLine, ...]  # the user's lines that were running, innermost first
    text: str  # the source of the innermost two
    losses: tuple[Sample, ...]  # of the first four tensors on which backward was called
    operations: Counter[str]  # the types of the nodes in the graph, without leaves
    edges: int  # between the nodes, leaves included
    oldest_node: int  # the sequence number of the oldest node
    leaves: frozenset[str]  # of the graph
    # Those modified after this graph had used them, and after another backward call had run.
    stale_leaves: frozenset[str]
    # Pairs of optimizers: an operation on the second's parameters uses a result of the first's.
    upstream: frozenset[tuple[int, int]]
    # The lines of operations that take a part of the graph that is freed, or older than the last
    # call from this site, or, with these optimizers, computed from the parameters of fewer
    # optimizers than their result.
    consumers: tuple[tuple[ProgramLine, frozenset[int]], ...] = ()
    accumulates: bool = True  # False for autograd.grad, which adds nothing to .grad
    unconnected: bool = False  # its losses depend on none of the tensors of its gradients
    # What it added to .grad; discarded in the middle of a long run.
    gradients: Gradients = field(default_factory=dict)
    # What it would have added without the nodes that are older than the previous call from this
    # site; only of a reference run, for the failing call and for gradients of old weights.
    truncated: Gradients | None = None
    failed: bool = False  # whether it raised
    # Of a reference run, whether an operation before it lost a gradient; None if it may have.
    loses_gradient: bool | None = False

    @property
    def value(self) -> float:
        """The first element of the first loss; NaN if there is no loss."""
        return self.losses[0].values[0] if self.losses and self.losses[0].values else math.nan


@dataclass
class GradientsCleared:
    """A call of ``zero_grad`` that cleared all parameters of these optimizers."""

    optimizers: frozenset[int]


@dataclass
class StepTaken:
    """A step: the gradients that it used, and the backward calls that accumulated each of them."""

    optimizer: int
    gradients: Gradients
    calls: dict[str, tuple[int, ...]]
    closure: bool  # whether the step itself runs backward


@dataclass
class OptimizerInfo:
    """An optimizer: its variable and the keys of its parameters."""

    name: str
    keys: tuple[str, ...]


class GraphVariable(NamedTuple):
    """A variable with a graph."""

    name: str  # its whole path, such as ``state[0]``
    kind: str  # "tensor", the type of the container that it is in, "namedtuple" or "nested"
    frame: ProgramLine  # the line that ran
    is_freed: bool  # whether an earlier backward call freed any of its graph


@dataclass
class ProgramRun:
    """Everything that was observed in a run."""

    status: str = "ended"  # or "raised"; or "enough" or "time", if it was stopped
    error: str | None = None
    raised_at: tuple[ProgramLine, ...] = ()  # in the traceback, innermost first
    torch: str = ""
    events: list[ObservedCall | GradientsCleared | StepTaken] = field(default_factory=list)
    optimizers: list[OptimizerInfo] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  # of parameters, by key
    gradients: Gradients = field(default_factory=dict)  # in .grad at the end
    updated_by_hand: set[str] = field(default_factory=set)  # parameters, after a backward call
    # Parameters that were replaced by another tensor, with the backward call that found it.
    replaced: dict[str, int] = field(default_factory=dict)
    graph_variables: list[GraphVariable] = field(default_factory=list)  # in the traceback's frames
    findings: list[dict[str, Any]] = field(default_factory=list)
    diagnosis: dict[str, Any] | None = None
    explanation: str = ""
    files: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def calls(self) -> list[ObservedCall]:
        return [event for event in self.events if isinstance(event, ObservedCall)]

    @property
    def steps(self) -> list[StepTaken]:
        return [event for event in self.events if isinstance(event, StepTaken)]

    @property
    def numbered_steps(self) -> list[tuple[int, StepTaken]]:
        """The steps, each with the number of backward calls before it."""
        numbers = itertools.accumulate(isinstance(event, ObservedCall) for event in self.events)
        pairs = zip(numbers, self.events, strict=True)
        return [(number, event) for number, event in pairs if isinstance(event, StepTaken)]

    @property
    def iterations(self) -> list[list[ObservedCall]]:
        """The backward calls of each iteration of the training.

        It ends with a step or, without steps, with a call that accumulates gradients, or any call.
        """
        ends = [isinstance(event, StepTaken) for event in self.events]
        if not any(ends):
            ends = [getattr(event, "accumulates", False) for event in self.events]
        has_ends = any(ends)
        iterations: list[list[ObservedCall]] = [[]]
        for event, is_end in zip(self.events, ends, strict=True):
            iterations[-1] += [event] if isinstance(event, ObservedCall) else []
            iterations += [[]] if is_end or not has_ends else []
        return iterations

    @property
    def failing_call(self) -> int:
        """The number of the backward call that raised; if none did, the number of the next call."""
        if self.status != "raised":
            return len(self.calls) + 1
        return len(self.calls) + (0 if self.calls and self.calls[-1].failed else 1)

    @property
    def is_explained(self) -> bool:
        """Whether the program raised an error of autograd that has a diagnosis."""
        family = (self.diagnosis or {}).get("family", "silent")
        return self.status == "raised" and family != "silent"

    @property
    def short_error(self) -> str:
        """The reason to reject a candidate that raised this error: its family or its first line."""
        return _SHORT_ERRORS.get(family_of(self.error or "")[0] or "", f"raises {self.error_line}")

    @property
    def error_line(self) -> str:
        """The first line of the error, shortened; empty if there was none."""
        line = (self.error or "").partition("\n")[0]
        return line if len(line) < 120 else line[:117] + "…"

    def steps_after(self, number: int) -> list[StepTaken]:
        """Return the steps after this many backward calls; if there are fewer, after the last."""
        number = min(number, len(self.calls))
        return [step for calls, step in self.numbered_steps if calls >= number]

    def last_steps_after(self, number: int) -> list[StepTaken]:
        """Return :meth:`steps_after`, and the last step of each optimizer that has none there."""
        late = self.steps_after(number)
        optimizers = {step.optimizer for step in late}
        last = {step.optimizer: step for step in self.steps if step.optimizer not in optimizers}
        return [*late, *last.values()]

    def owners(self, key: str) -> set[int]:
        """Return the optimizers that have this parameter."""
        return {i for i, optimizer in enumerate(self.optimizers) if key in optimizer.keys}

    def use_keys_of(self, other: "ProgramRun") -> None:
        """Replace the keys of parameters by those that another run has for the same names."""
        key_of = {name: key for key, name in other.names.items()}
        keys = {key: key_of.get(name, name) for key, name in self.names.items()}
        for optimizer in self.optimizers:
            optimizer.keys = tuple(keys[key] for key in optimizer.keys)
        for step in self.steps:
            step.gradients = {keys[key]: value for key, value in step.gradients.items()}
            step.calls = {keys[key]: value for key, value in step.calls.items()}
        for call in self.calls:
            call.gradients = {keys[key]: value for key, value in call.gradients.items()}
            call.leaves = frozenset(keys[key] for key in call.leaves)

    def leave_out_repeated(self, program: "ProgramRun") -> None:
        """Remove the calls of ``autograd.grad`` with which a repair computes a value again.

        The other calls get the numbers that they have in the program's run.
        """
        texts = [call.text for call in program.calls]  # an edit shifts lines, but keeps their text
        numbers: dict[int, int] = {}
        for call in self.calls:
            before, following = texts[: len(numbers)], texts[len(numbers) :]
            is_expected = call.accumulates or call.text in following[:1] or not following
            if is_expected or call.text not in before:
                numbers[call.number] = len(numbers) + 1
            else:
                self.events.remove(call)
        for call in self.calls:
            call.number = numbers[call.number]
        for step in self.steps:
            step.calls = {key: tuple(map(numbers.__getitem__, n)) for key, n in step.calls.items()}


class RunLimits(NamedTuple):
    """The limits of a run: a number of calls beyond the failing one, and a time in seconds."""

    failing_call: int | None = None  # None: the calls are not limited
    beyond: int = 8
    seconds: float = 120.0
    stops_if_caught: bool = False  # whether an explained error that is caught ends the run


def noise_of(gradients: Iterable[Sample]) -> float:
    """Return the largest norm of a gradient that is only rounding errors of these others.

    A bias before a normalization has such a gradient.
    """
    norms = (gradient.norm for gradient in gradients if gradient.is_finite)
    return max(ZERO, NOISE * max(norms, default=0.0))


def equal_gradients(first: Gradients, second: Gradients, keys: set[str] | None = None) -> bool:
    """Whether all gradients, or those of ``keys``, are equal up to rounding; a missing one is 0."""
    zero = Sample(())
    keys = first.keys() | second.keys() if keys is None else keys
    pairs = ((first.get(key, zero), second.get(key, zero)) for key in keys)
    noise = noise_of([*first.values(), *second.values()])
    # If one is missing, the other is a gradient that a detach() took away.
    limits = ((ZERO if 0 in (a.norm, b.norm) else noise, a, b) for a, b in pairs)
    return not any(max(a.norm, b.norm) > limit and a.distance(b) >= SAME for limit, a, b in limits)


def is_multiple(first: Gradients, second: Gradients) -> bool:
    """Whether the first gradients are the second ones, all times the same positive number."""
    sizes = [math.hypot(*(g.norm for g in gradients.values())) for gradients in (first, second)]
    if not all(sizes):
        return False
    factor = sizes[0] / sizes[1]
    return equal_gradients(first, {key: g.times(factor) for key, g in second.items()})


def growing_calls(run: ProgramRun) -> Iterator[list[ObservedCall]]:
    """Yield the last calls of a line, at most four, if each has a larger graph, of one origin."""
    latest: dict[object, deque[ObservedCall]] = defaultdict(lambda: deque(maxlen=4))
    for calls in run.iterations:
        # An inner loop unrolls its graph on purpose: of it, only the last call counts.
        last_gradients = {call.site: call for call in calls if not call.accumulates}
        for call in (*last_gradients.values(), *(c for c in calls if c.accumulates)):
            latest[call.site].append(call)
    for last in latest.values():
        pairs = [*itertools.pairwise(call.operations.total() for call in last)]
        if pairs and all(a < b for a, b in pairs) and len({c.oldest_node for c in last}) == 1:
            yield [*last]


def sum_of(first: Gradients, second: Gradients) -> Gradients:
    """Add the gradients of each parameter; a missing gradient is zero."""
    return {**second, **{key: gradient.plus(second.get(key)) for key, gradient in first.items()}}


def is_sum_of(total: ObservedCall, first: ObservedCall, second: ObservedCall) -> bool:
    """Whether a loss is the sum of two, in value and, unless its call failed, in gradient."""
    value = first.value + second.value
    gradients = sum_of(first.gradients, second.gradients)
    is_equal = abs(value - total.value) <= SAME * max(1.0, abs(value))
    return is_equal and (total.failed or equal_gradients(gradients, total.gradients))


def trains_alike(first: ProgramRun, second: ProgramRun, trained: set[str] | None = None) -> bool:
    """Whether the same optimizers stepped in two runs, with equal gradients in their common steps.

    If none stepped, the gradients at the end are compared, of ``trained`` or of all parameters.
    """
    if not first.steps and not second.steps:
        return equal_gradients(first.gradients, second.gradients, trained)
    optimizers = ({step.optimizer for step in run.steps} for run in (first, second))
    return len(set(map(frozenset, optimizers))) == 1 and not [*_different_steps(first, second)]


def _different_steps(first: ProgramRun, second: ProgramRun) -> Iterator[int]:
    """Yield the number of backward calls before each step of ``second`` whose gradients differ."""
    for i in range(len(second.optimizers)):
        if 0 < len(first.optimizers) <= i:  # it trains what no optimizer of the first run trains
            yield from (number for number, step in second.numbered_steps if step.optimizer == i)
        steps = ([s for s in run.numbered_steps if s[1].optimizer == i] for run in (first, second))
        # The nth step of each optimizer is compared with its nth step in the other run.
        for (_, expected), (number, step) in zip(*steps, strict=False):
            # A long run clears the gradients of all but its first and last steps.
            is_kept = all(len(s.gradients) == len(s.calls) for s in (expected, step))
            if is_kept and not equal_gradients(expected.gradients, step.gradients):
                yield number


def last_of_equal_weights(first: ProgramRun, second: ProgramRun) -> int:
    """Return the number of calls in ``second`` before a step makes the runs' weights differ."""
    return min(_different_steps(first, second), default=len(second.calls))


def equal_losses(first: ObservedCall, second: ObservedCall) -> bool:
    return len(first.losses) == len(second.losses) and all(
        a.distance(b) <= SAME for a, b in zip(first.losses, second.losses, strict=True)
    )


def is_repeated(first: ProgramRun, second: ProgramRun) -> bool:
    """Whether two runs of the same program end alike, with equal losses and gradients."""
    ends = [
        # The addresses of objects, which errors show, differ from run to run.
        (run.status, re.sub(r"0x[0-9a-f]+", "0x", run.error or ""), len(run.calls))
        for run in (first, second)
    ]
    is_same_loss = all(map(equal_losses, first.calls, second.calls))
    return ends[0] == ends[1] and is_same_loss and trains_alike(first, second)


_SHORT_ERRORS = {
    "freed": "raises an error: a graph that it needs has been freed",
    "modified": "raises an error: a saved tensor was changed in place",
    "no_graph": "raises an error: the loss has no graph any more",
}
