"""Questions about the nodes that one line's backward pass runs."""

from dataclasses import dataclass
from typing import ClassVar

from gradtrace.questions.program import Asked, Program, TraceAnswer, line_of
from gradtrace.questions.trace_facts import ending
from gradtrace.tracing.steps import NodeRun, TraceData


@dataclass(frozen=True, kw_only=True)
class _AskedInside(Asked):
    """The base of questions about a line's backward pass, asked before that line runs.

    ``line`` is its number or text; its first run that has a backward pass counts.
    """

    line: int | str

    def _step(self, trace: TraceData) -> int:
        line = line_of(self.line, trace.source)
        for index, step in enumerate(trace.steps):
            if step.ran == line and step.inside:
                return index - 1
        raise ValueError(f"line {line} runs no backward pass")

    def _runs(self, trace: TraceData) -> list[NodeRun]:
        """Return the record of each node's run, in the order in which the nodes ran."""
        node_steps = trace.steps[self._step(trace) + 1].inside
        return [step.run for step in node_steps if step.run is not None]

    def _place_of(self, node: str, trace: TraceData) -> int:
        """Return the position of the first node of this name among the nodes that ran, from 0."""
        labels = [trace.nodes[run.node].label for run in self._runs(trace)]
        if node not in labels:
            raise ValueError(f"the backward pass does not run {node!r}, only {', '.join(labels)}")
        return labels.index(node)


@dataclass(frozen=True, kw_only=True)
class _AskedForNode(_AskedInside):
    """The base of questions whose answer is a node."""

    kind: ClassVar[str] = "node"

    def _labels(self, trace: TraceData) -> dict[int, str]:
        """Return the label of each node that exists before the line."""
        states = trace.states(self._step(trace))
        return {state.node: trace.nodes[state.node].label for state in states}

    def _facts(self, trace: TraceData, runs: str, does_not: str) -> dict[int, str]:
        """Fill one of two texts for each node: with its label and, if it runs, its position."""
        places = {run.node: _ordinal(index) for index, run in enumerate(self._runs(trace))}
        return {
            node: runs.format(label, places[node]) if node in places else does_not.format(label)
            for node, label in self._labels(trace).items()
        }


_ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]


def _ordinal(index: int) -> str:
    return _ORDINALS[index] if index < len(_ORDINALS) else f"as number {index + 1}"


@dataclass(frozen=True, kw_only=True)
class WhichNodeRunsNext(_AskedForNode):
    """Ask which node runs after ``node`` in a line's backward pass.  ``believes`` names nodes.

    >>> import torch
    >>> from gradtrace import trace
    >>> def program():
    ...     w = torch.ones(1, requires_grad=True)
    ...     h = w.exp()
    ...     loss = (h.sin() * h).sum()
    ...     loss.backward()
    >>> ask = WhichNodeRunsNext(line="loss.backward()", node="MulBackward0")
    >>> asked = ask.put_to(Program("program", lambda: trace(program)))
    >>> asked.replies[asked.right[0]], asked.place
    ('SinBackward0 runs third.', 3)
    """

    node: str

    def _answer(self, trace: TraceData, program: Program) -> TraceAnswer:
        runs = self._runs(trace)
        place = self._place_of(self.node, trace) + 1
        if place == len(runs):
            raise ValueError(f"no node runs after {self.node}")
        right = runs[place].node
        labels = self._labels(trace)
        return TraceAnswer(
            prompt=f"{self.node} has just run. Which node runs next?",
            choices=labels,
            right=(right,),
            facts=self._facts(trace, "{} runs {}.", "This line does not run {}."),
            explanation=f"After {self.node}, the engine runs {labels[right]}.",
            place=place + 1,
        )


@dataclass(frozen=True, kw_only=True)
class WhatArrives(_AskedInside):
    """Ask which gradient arrives at ``node``, a node or leaf, in a line's backward pass.

    ``believes`` maps each wrong gradient, as text, to the mistake that leads to it.

    >>> import torch
    >>> from gradtrace import trace
    >>> def program():
    ...     w = torch.ones(2, requires_grad=True)
    ...     (3 * w).sum().backward()
    >>> ask = WhatArrives(line="(3 * w).sum().backward()", node="w",
    ...                   believes={"[1, 1]": "The product multiplies it by 3."})
    >>> ask.put_to(Program("program", lambda: trace(program))).right
    ('[3, 3]',)
    """

    node: str

    def _answer(self, trace: TraceData, program: Program) -> TraceAnswer:
        place = self._place_of(self.node, trace)
        right = ", ".join(filter(None, self._runs(trace)[place].received)) or "no gradient"
        fact = f"{self.node} receives the gradient {right}."
        choices = sorted({right, *self.believes})
        return TraceAnswer(
            prompt=f"Which gradient arrives at `{self.node}`?",
            choices={text: text for text in choices},
            right=(right,),
            facts=dict.fromkeys(choices, fact),
            place=place + 1,
        )


@dataclass(frozen=True, kw_only=True)
class WhereItStops(_AskedForNode):
    """Ask at which node a line's backward pass stops with an error.  ``believes`` names nodes.

    >>> import torch
    >>> from gradtrace import trace
    >>> def program():
    ...     loss = torch.ones(2, requires_grad=True).exp().sum()
    ...     loss.backward()  # first
    ...     loss.backward()
    >>> asked = WhereItStops(line="loss.backward()").put_to(
    ...     Program("program", lambda: trace(program)))
    >>> asked.replies[asked.right[0]].split(":")[0]
    'ExpBackward0 runs second, and the backward pass stops there'
    """

    def _answer(self, trace: TraceData, program: Program) -> TraceAnswer:
        stops = [
            (place, run.node)
            for place, run in enumerate(self._runs(trace), 1)
            if run.passed is None
        ]
        if not stops:
            raise ValueError("the backward pass runs to its end")
        place, right = stops[0]
        labels = self._labels(trace)
        facts = self._facts(
            trace,
            "{} runs {}, and the backward pass continues.",
            "The backward pass stops before it reaches {}.",
        )
        stop = f"{labels[right]} runs {_ordinal(place - 1)}, and the backward pass stops there"
        return TraceAnswer(
            prompt="At which node does this backward pass stop?",
            choices=labels,
            right=(right,),
            facts=facts | {right: f"{stop}: {ending(trace)}"},
            place=place,
        )
