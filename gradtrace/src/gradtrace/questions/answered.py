"""The questions that a trace answers, one class for each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gradtrace.autograd.nodes import ALIVE, FREED, MODIFIED
from gradtrace.player.prompt import Choice
from gradtrace.questions import trace_facts
from gradtrace.questions.program import Asked, Program, TraceAnswer
from gradtrace.tracing.steps import TraceData, TraceNode, freed_at

NO_LINE = "none"
NONE_OF_THEM = "none of them"


@dataclass(frozen=True, kw_only=True)
class _AskedForSeveral(Asked):
    """The base of questions that may have several right choices, or only "none of them"."""

    kind: ClassVar[str] = "choices"

    def _several(
        self, prompt: str, facts: Mapping[str, str], right: Sequence[str], summary: str
    ) -> TraceAnswer:
        return TraceAnswer(
            prompt=prompt,
            choices={choice: choice for choice in (*facts, NONE_OF_THEM)},
            right=tuple(right) or (NONE_OF_THEM,),
            facts={**facts, NONE_OF_THEM: summary},
            explanation=summary,
        )


@dataclass(frozen=True, kw_only=True)
class WhichLineRaises(Asked):
    """Ask which line raises, if any.  ``believes`` names lines by number or text, or "none".

    >>> import torch
    >>> from gradtrace import trace
    >>> def twice():
    ...     loss = torch.ones(2, requires_grad=True).exp().sum()
    ...     loss.backward(retain_graph=False)
    ...     loss.backward()
    >>> ask = WhichLineRaises(believes={"loss.backward(retain_graph=False)": "It frees."})
    >>> asked = ask.put_to(Program("twice", lambda: trace(twice)))
    >>> asked.right
    (4,)
    >>> print(asked.replies[3])
    Line 3 ran. It freed the saved tensors of ExpBackward0. It frees.
    >>> print(asked.replies["none"])
    Line 4 raises RuntimeError.
    """

    kind: ClassVar[str] = "line"

    def _answer(self, trace: TraceData, program: Program) -> TraceAnswer:
        lines = trace_facts.statement_lines(trace)
        right: Choice = NO_LINE if trace.error is None else trace.error.line
        choices: dict[Choice, str] = {line: trace.source[line].strip() for line in lines}
        facts: dict[Choice, str] = {line: trace_facts.what_it_did(trace, line) for line in lines}
        facts[right] = trace_facts.ending(trace)
        if right != NO_LINE and trace.error is not None:
            facts[NO_LINE] = f"Line {right} raises {trace.error.type}."
        return TraceAnswer(
            prompt="Which line raises?",
            choices=choices | {NO_LINE: "no line: it runs to the end"},
            right=(right,),
            facts=facts,
        )


@dataclass(frozen=True, kw_only=True)
class DoesItRaise(Asked):
    """Ask whether the program raises with this setting.  ``believes`` has "raises" or "runs"."""

    def _answer(self, trace: TraceData, program: Program) -> TraceAnswer:
        end = trace_facts.ending(trace)
        return TraceAnswer(
            prompt="Does it raise?",
            choices={"raises": "it raises", "runs": "it runs to the end"},
            right=("runs" if trace.error is None else "raises",),
            facts={"raises": end, "runs": end},
        )


@dataclass(frozen=True, kw_only=True)
class WhatIsFreedNext(Asked):
    """Ask which node's saved tensors are freed next, after the line ``after``.

    ``believes`` has names or indices.  If one line frees those of several nodes, all are right.

    >>> import torch
    >>> from gradtrace import trace
    >>> def program():
    ...     x = torch.ones(2, requires_grad=True)
    ...     loss = x.exp().mean()
    ...     loss.backward()
    >>> ask = WhatIsFreedNext(after="loss = x.exp().mean()")
    >>> asked = ask.put_to(Program("program", lambda: trace(program)))
    >>> [choice["label"] for choice in asked.choices], asked.right
    (['x', 'MeanBackward0', 'ExpBackward0'], (2,))
    """

    kind: ClassVar[str] = "node"

    def _answer(self, trace: TraceData, program: Program) -> TraceAnswer:
        at = self._step(trace)
        states = {state.node: state.state for state in trace.states(at)}
        freed = freed_at(trace)
        steps = {node: freed[node] for node in states if freed.get(node, at) > at}
        if not steps:
            line = trace.steps[at].ran
            raise ValueError(f"no node that exists after line {line} is freed later")
        first = min(steps.values())
        lines = {node: trace.steps[step].ran for node, step in steps.items()}
        right = tuple(node for node, step in steps.items() if step == first)
        names = trace_facts.names_of_nodes(trace, right)
        return TraceAnswer(
            prompt="Which node's saved tensors are freed next?",
            choices={node: trace.nodes[node].label for node in states},
            right=right,
            facts={
                node: self._fact(trace.nodes[node], state, lines.get(node))
                for node, state in states.items()
            },
            explanation=f"Line {trace.steps[first].ran} frees the saved tensors of {names}.",
        )

    @staticmethod
    def _fact(node: TraceNode, state: str, line: int | None) -> str:
        name = node.label
        if line is not None:
            return f"Line {line} frees the saved tensors of {name}."
        if node.leaf:
            return f"{name} is a leaf: backward adds to its .grad and frees nothing."
        if state == FREED:
            return f"The saved tensors of {name} had been freed before."
        if state not in (ALIVE, MODIFIED):
            return f"{name} saved no tensor, so backward has nothing to free there."
        return f"No line frees the saved tensors of {name}."


@dataclass(frozen=True, kw_only=True)
class WhichTensorGoesNext(Asked):
    """Ask which tensor's last reference is dropped next, after the line ``after``.

    Nodes refer to the tensors that they saved, variables to those that they name. Leaves cannot be
    chosen. ``believes`` has names of variables or indices in ``Trace.tensors``. If one line deletes
    several, all are right.
    """

    kind: ClassVar[str] = "tensor"

    def _misconceptions(self, trace: TraceData, choices: Mapping[Any, str]) -> dict[Choice, str]:
        variables = trace.steps[self._step(trace)].variables
        named = {v.name: v.tensor for v in variables if v.tensor is not None}
        return {named.get(choice, choice): text for choice, text in self.believes.items()}

    def _answer(self, trace: TraceData, program: Program) -> TraceAnswer:
        at = self._step(trace)
        labels = {
            tensor: f"{trace_facts.holder_names(named_by)}, {trace.tensors[tensor].nbytes:,} B"
            for tensor, named_by in trace_facts.holders_by_tensor(trace, at).items()
        }
        deleted: dict[int, int] = {}
        for index in range(at + 1, len(trace.steps)):
            holders = trace_facts.holders_by_tensor(trace, index)
            for tensor in labels:
                if tensor not in holders:
                    deleted.setdefault(tensor, index)
        if not deleted:
            line = trace.steps[at].ran
            raise ValueError(f"no tensor that exists after line {line} is released later")
        first = min(deleted.values())
        last = trace_facts.holders_by_tensor(trace, -1)
        facts = {
            tensor: f"Line {trace.steps[deleted[tensor]].ran} drops its last reference."
            if tensor in deleted
            else f"It stays alive to the end ({trace_facts.holder_names(last[tensor])})."
            for tensor in labels
        }
        right = tuple(tensor for tensor in labels if deleted.get(tensor) == first)
        named = " and ".join(labels[tensor] for tensor in right)
        return TraceAnswer(
            prompt="Which tensor's memory is released next?",
            choices=dict(labels),
            right=right,
            facts=facts,
            explanation=f"Line {trace.steps[first].ran} drops the last reference to: {named}.",
        )


@dataclass(frozen=True, kw_only=True)
class HowManyBytes(Asked):
    """Ask how many bytes of activations saved tensors hold after the line ``after``.

    ``believes`` maps each wrong number of bytes to the misconception that leads to it; the choices
    are these numbers and the right one.  Parameters and inputs, which the program keeps anyway, are
    not counted.

    >>> import torch
    >>> from gradtrace import trace
    >>> def program():
    ...     y = torch.ones(2, requires_grad=True).exp()
    ...     y.sum().backward()
    >>> line = "y = torch.ones(2, requires_grad=True).exp()"
    >>> ask = HowManyBytes(after=line, believes={16: "Input and result: the input is not saved."})
    >>> asked = ask.put_to(Program("program", lambda: trace(program)))
    >>> asked.right, asked.replies[8]
    ((8,), 'ExpBackward0 (result 8 B) keeps 8 bytes alive.')
    """

    def _answer(self, trace: TraceData, program: Program) -> TraceAnswer:
        if self.after is None:
            raise ValueError("say after which line, as after=...")
        if not self.believes:
            raise ValueError("give wrong numbers of bytes as believes={bytes: the misconception}")
        at = self._step(trace)
        right = trace.steps[at].held[0]
        numbers = sorted({right, *self.believes})
        return TraceAnswer(
            prompt=f"How many bytes do saved tensors hold after line {trace.steps[at].ran}?",
            choices={number: f"{number:,} B" for number in numbers},
            right=(right,),
            facts=dict.fromkeys(numbers, trace_facts.bytes_held(trace, at)),
        )


@dataclass(frozen=True, kw_only=True)
class WhichLineHoldsMost(Asked):
    """Ask after which line saved tensors hold the most bytes of activations.

    ``believes`` names lines by number or text.  If several lines leave the most, all are right.

    >>> import torch
    >>> from gradtrace import trace
    >>> def program():
    ...     y = torch.ones(2, requires_grad=True).exp()
    ...     y.sum().backward()
    >>> asked = WhichLineHoldsMost().put_to(Program("program", lambda: trace(program)))
    >>> asked.right, asked.replies[3]
    ((2,), 'After line 3, saved tensors hold 0 bytes.')
    """

    kind: ClassVar[str] = "line"

    def _answer(self, trace: TraceData, program: Program) -> TraceAnswer:
        bytes_by_line: dict[int, int] = {}
        for step in trace.steps:
            if step.ran is not None:
                bytes_by_line[step.ran] = max(step.held[0], bytes_by_line.get(step.ran, 0))
        maximum = max(bytes_by_line.values(), default=0)
        if maximum == 0:
            raise ValueError("no line leaves an activation saved")
        visits = {line: sum(step.ran == line for step in trace.steps) for line in bytes_by_line}
        facts: dict[Choice, str] = {
            line: f"After line {line}, saved tensors hold {nbytes:,} bytes"
            + (" at most." if visits[line] > 1 else ".")
            for line, nbytes in sorted(bytes_by_line.items())
        }
        right = tuple(line for line in sorted(bytes_by_line) if bytes_by_line[line] == maximum)
        lines = " and ".join(map(str, right))
        return TraceAnswer(
            prompt="After which line do saved tensors hold the most?",
            choices={line: trace.source[line].strip() for line in sorted(bytes_by_line)},
            right=right,
            facts=facts,
            explanation=f"Saved tensors hold the most, {maximum:,} bytes, after line {lines}.",
        )


@dataclass(frozen=True, kw_only=True)
class WhichGetGradients(_AskedForSeveral):
    """Ask which leaf variables that require grad have a gradient at the end.

    ``believes`` has the names of variables, or "none of them".  The answer is all right choices.

    >>> import torch
    >>> from gradtrace import trace
    >>> def program():
    ...     x, w = (torch.ones(1, requires_grad=True) for _ in range(2))
    ...     (x.detach() * w).sum().backward()
    >>> ask = WhichGetGradients(believes={"x": "detach() removes it from the graph."})
    >>> asked = ask.put_to(Program("program", lambda: trace(program)))
    >>> asked.right, asked.replies["x"]
    (('w',), 'x.grad is None. detach() removes it from the graph.')
    """

    def _answer(self, trace: TraceData, program: Program) -> TraceAnswer:
        variables = trace.steps[-1].variables
        leaves = {v.name: v.grad for v in variables if v.leaf and v.requires_grad}
        if not leaves:
            raise ValueError("no variable there is a leaf that requires grad")
        right = [name for name, grad in leaves.items() if grad is not None]
        facts = {name: f"{name}.grad is {grad}." for name, grad in leaves.items()}
        return self._several(
            "Which of these get a gradient?", facts, right, " ".join(facts.values())
        )


def raises(trace: TraceData) -> bool:
    """Whether the traced program ended with an exception."""
    return trace.error is not None


@dataclass(frozen=True, kw_only=True)
class WhichSettings(_AskedForSeveral):
    """Ask for which options of one control the program raises, or another condition holds.

    Args:
        control: the name of the control; ``setting`` gives the options of the others.
        that: the condition on the trace of each option; if you give one, give a ``prompt``, too.
        options: the labels to choose from; by default all that the control has.

    ``believes`` has labels of options, or "none of them".  The answer is all right choices.

    >>> import torch
    >>> from gradtrace import trace
    >>> def twice(retain):
    ...     loss = torch.ones(2, requires_grad=True).exp().sum()
    ...     loss.backward(retain_graph=retain)
    ...     loss.backward()
    >>> program = Program("twice", lambda retain: trace(twice, retain),
    ...                   {"retain": [("off", False), ("on", True)]}, {"retain": False})
    >>> asked = WhichSettings(control="retain").put_to(program)
    >>> asked.right, asked.replies["on"]
    (('off',), 'Ends without an error.')
    """

    control: str
    that: Callable[[TraceData], bool] = raises
    options: Sequence[str] = ()

    def _answer(self, trace: TraceData, program: Program) -> TraceAnswer:
        if self.control not in program.options:
            controls = ", ".join(program.options) or "none"
            raise ValueError(f"there is no control {self.control!r}; its controls: {controls}")
        setting = self._whole(program)
        options = dict(program.options[self.control])
        for label in self.options:
            if label not in options:
                raise ValueError(
                    f"{self.control} has no option {label!r}; its options: {', '.join(options)}"
                )
        traces = {
            label: program.trace(**setting | {self.control: options[label]})
            for label in self.options or options
        }
        matching = [label for label, trace in traces.items() if self.that(trace)]
        facts = {label: self._fact(label, trace) for label, trace in traces.items()}
        named = trace_facts.listed([f"`{label}`" for label in matching]) or NONE_OF_THEM
        summary = f"{'It raises' if self.that is raises else 'That is true'} with {named}."
        return self._several(f"With which {self.control} does it raise?", facts, matching, summary)

    def _fact(self, label: str, trace: TraceData) -> str:
        """State how a trace ended if it raised or raising is asked, else whether ``that`` holds."""
        if self.that is raises or raises(trace):
            return trace_facts.ending(trace)
        return f"That is {'true' if self.that(trace) else 'not true'} with `{label}`."


@dataclass(frozen=True, kw_only=True)
class WhichIsTrue(Asked):
    """Ask which one of some statements is true.

    Args:
        statements: maps each statement to a check of it.  The check is called with the program's
            ``trace``, which takes a setting by name, so a statement may compare settings.

    Each false statement needs an entry in ``believes``, because a trace cannot explain why somebody
    would choose its words.

    Raises:
        ValueError: not exactly one statement is true, or a false one has no entry.

    >>> from gradtrace import trace
    >>> ask = WhichIsTrue(prompt="What happens?", statements={
    ...     "it raises": lambda trace: trace().error is not None,
    ...     "nothing": lambda trace: trace().error is None,
    ... }, believes={"it raises": "It never calls backward()."})
    >>> ask.put_to(Program("fine", lambda: trace(lambda: 1))).right
    ('nothing',)
    """

    statements: Mapping[str, Callable[[Callable[..., TraceData]], bool]]

    def _answer(self, trace: TraceData, program: Program) -> TraceAnswer:
        right = tuple(text for text, check in self.statements.items() if check(program.trace))
        if len(right) != 1:
            raise ValueError(
                f"{len(right)} of its statements are true ({'; '.join(right) or 'none'}), but "
                "exactly one must be"
            )
        for text in self.statements:
            if text not in right and text not in self.believes:
                raise ValueError(
                    f"{text!r} is false: give the misconception of a learner who chooses it in "
                    "believes="
                )
        return TraceAnswer(
            prompt="Which is true?",
            choices={text: text for text in self.statements},
            right=right,
            facts=dict.fromkeys(self.statements, "") | {right[0]: "The run shows this."},
            explanation=trace_facts.joined(
                f"The right answer is: {right[0]}.",
                *(() if self.why else self.believes.values()),
            ),
        )
