"""What a player asks before it shows: the answer computed from the trace, a reply to each choice.

An author names what may be chosen and what a wrong choice *believes*; nobody types what is right.
:class:`WhichLineRaises` and its siblings are such questions.  Put to a :class:`Program` they become
a :class:`Question`: plain data for the front end, with the right choices taken from the trace and a
reply to every choice.  A reply begins with what the run did at that choice, always from the trace;
what the author wrote follows it.
"""

from __future__ import annotations

import ast
import dataclasses
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gradtrace.graph import ALIVE, FREED, MODIFIED
from gradtrace.page import outcome
from gradtrace.steps import Step, Trace

NONE = "none"

Choice = int | str


@dataclass(frozen=True)
class Question:
    """A question as the front end gets it: JSON-ready once :func:`dataclasses.asdict` has run.

    ``kind`` says where the answer is taken: at a ``"line"``, a ``"node"`` or a ``"tensor"`` of the
    picture, or as one of some words (``"choice"``), or several of them (``"choices"``).
    ``setting`` holds the index of each control's option, ``at`` the last step that may be seen
    before the answer.
    ``choices`` are ``{"id", "label"}``; an id is a line number, a node's or tensor's index, or a
    word.  ``right`` lists the ids that are right: any of them, or for ``"choices"`` all of them.
    ``replies`` holds the answer to each choice, ``told`` what is said to those who would rather be
    told.
    """

    kind: str
    prompt: str
    setting: tuple[int, ...]
    at: int
    choices: tuple[dict[str, Any], ...]
    right: tuple[Choice, ...]
    replies: dict[Choice, str]
    told: str


@dataclass(frozen=True)
class Program:
    """What a question is put to: a function that can be traced for each setting of its controls.

    ``options`` maps each control to its ``(label, value)`` pairs, ``initial`` to the value that it
    begins with.  ``trace`` takes a setting by name and gives its trace.
    """

    name: str
    trace: Callable[..., Trace]
    options: Mapping[str, Sequence[tuple[str, Any]]] = field(default_factory=dict)
    initial: Mapping[str, Any] = field(default_factory=dict)

    def indices(self, setting: Mapping[str, Any]) -> tuple[int, ...]:
        """The index of each control's option in ``setting``; what is not named begins as it begins.

        Raises:
            ValueError: ``setting`` names no control, or a value that is none of its options.
        """
        for name in setting:
            if name not in self.options:
                known = ", ".join(self.options) or "none"
                raise ValueError(
                    f"the question to {self.name} is about {name}={setting[name]!r}, but there is "
                    f"no such control; its controls: {known}"
                )
        found = []
        for name, options in self.options.items():
            value = setting.get(name, self.initial[name])
            index = place(value, options)
            if index is None:
                raise ValueError(
                    f"the question to {self.name} is about {name}={value!r}, which is none of its "
                    f"options: {', '.join(label for label, _ in options)}"
                )
            found.append(index)
        return tuple(found)


def place(value: Any, options: Sequence[tuple[str, Any]]) -> int | None:
    """The place of ``value`` among ``(label, value)`` pairs, if it is there; ``1`` is not ``True``.

    >>> place(1, [("a", True), ("b", 1)])
    1
    """
    for i, (_, option) in enumerate(options):
        if option is value or (type(option) is type(value) and option == value):
            return i
    return None


def line_of(where: int | str, source: Mapping[int, str]) -> int:
    """The number of a line, given as its number or as its text without the indentation.

    Raises:
        ValueError: no line has this number or text, or several have this text.

    >>> line_of("y = 2", {7: "x = 1", 8: "    y = 2"})
    8
    """
    if isinstance(where, int):
        if where not in source:
            raise ValueError(
                f"there is no line {where}: the function has the lines "
                f"{min(source)} to {max(source)}"
            )
        return where
    found = [n for n, text in source.items() if text.strip() == where.strip()]
    if len(found) == 1:
        return found[0]
    if found:
        numbers = " and ".join(map(str, found))
        raise ValueError(f"lines {numbers} all read {where!r}: give the number of one")
    raise ValueError(f"no line reads {where!r}: give the whole line, or its number")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What all questions share.

    Args:
        prompt: the question in words; each kind has words of its own.
        believes: what a wrong choice believes and why it is not so, in words that are said after
            what the run did there.
        why: said after what the run did at the right choice.
        setting: the setting that is asked about, as far as it is not the one a player begins with.
        after: the line, as number or text, after which the question is asked: what has happened
            before may be seen.  None asks before the first line.
    """

    prompt: str = ""
    believes: Mapping[Any, str] = field(default_factory=dict)
    why: str = ""
    setting: Mapping[str, Any] = field(default_factory=dict)
    after: int | str | None = None

    kind: ClassVar[str] = "choice"

    def put_to(self, program: Program) -> Question:
        """The question as data, answered from the program's own trace.

        Raises:
            ValueError: a belief about something that cannot be chosen (a line that does not exist),
                or on the right answer; a setting that is none of the controls'; or the trace does
                not hold the answer.
        """
        indices = program.indices(self.setting)
        seen = program.trace(**self._whole(program))
        found = self._found(seen, program)
        beliefs = self._beliefs(seen)
        for choice in beliefs:
            if choice in found.right:
                raise ValueError(
                    f"{self._name} of {program.name}: {choice!r} is right ({found.facts[choice]}), "
                    "so nobody is mistaken who chooses it: say it in why="
                )
            if choice not in found.choices:
                raise ValueError(
                    f"{self._name} of {program.name}: there is a belief about {choice!r}, which "
                    f"cannot be chosen; what can be: {', '.join(map(str, found.choices))}"
                )
        said = {choice: self.why for choice in found.right} | beliefs
        return Question(
            kind=self.kind,
            prompt=self.prompt or found.prompt,
            setting=indices,
            at=self._step(seen),
            choices=tuple({"id": id, "label": label} for id, label in found.choices.items()),
            right=found.right,
            replies={id: _join(found.facts[id], said.get(id, "")) for id in found.choices},
            told=_join(found.told, self.why),
        )

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _whole(self, program: Program) -> dict[str, Any]:
        return {name: self.setting.get(name, value) for name, value in program.initial.items()}

    def _step(self, seen: Trace) -> int:
        """The index of the step at which the question is asked."""
        if self.after is None:
            return 0
        line = line_of(self.after, seen.source)
        for index, step in enumerate(seen.steps):
            if step.ran == line:
                return index
        raise ValueError(f"{self._name}: line {line} does not run, so nothing comes after it")

    def _beliefs(self, seen: Trace) -> dict[Choice, str]:
        return dict(self.believes)

    def _found(self, seen: Trace, program: Program) -> _Found:
        raise NotImplementedError


@dataclass(frozen=True)
class _Found:
    """What a trace answers: label and fact of each choice, what is right, the whole in words."""

    prompt: str
    choices: dict[Any, str]
    right: tuple[Choice, ...]
    facts: dict[Any, str]
    told: str


@dataclass(frozen=True, kw_only=True)
class WhichLineRaises(Asked):
    """Which line raises; or that none does.  ``believes`` names lines by number or text, or "none".

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
    Line 3 ran. It freed what ExpBackward0 had saved. It frees.
    >>> print(asked.replies["none"])
    Line 4 raises RuntimeError.
    """

    kind: ClassVar[str] = "line"

    def _beliefs(self, seen: Trace) -> dict[Choice, str]:
        return {
            choice if choice == NONE else line_of(choice, seen.source): text
            for choice, text in self.believes.items()
        }

    def _found(self, seen: Trace, program: Program) -> _Found:
        lines = _statements(seen)
        right: Choice = NONE if seen.error is None else seen.error.line
        choices: dict[Choice, str] = {line: seen.source[line].strip() for line in lines}
        facts: dict[Choice, str] = {line: _what_it_did(seen, line) for line in lines}
        end = " ".join(outcome(seen))
        facts[right] = end
        if right != NONE and seen.error is not None:
            facts[NONE] = f"Line {right} raises {seen.error.type}."
        return _Found(
            prompt="Which line raises?",
            choices=choices | {NONE: "no line: it runs to the end"},
            right=(right,),
            facts=facts,
            told=end,
        )


@dataclass(frozen=True, kw_only=True)
class DoesItRaise(Asked):
    """Whether the program raises with this setting.  ``believes`` has "raises" or "runs".

    >>> from gradtrace import trace
    >>> ask = DoesItRaise(believes={"raises": "Nothing here goes backward."})
    >>> asked = ask.put_to(Program("fine", lambda: trace(lambda: 1)))
    >>> asked.right, asked.replies["raises"]
    (('runs',), 'Ends without an error. Nothing here goes backward.')
    """

    def _found(self, seen: Trace, program: Program) -> _Found:
        end = " ".join(outcome(seen))
        return _Found(
            prompt="Does it raise?",
            choices={"raises": "it raises", "runs": "it runs to the end"},
            right=("runs" if seen.error is None else "raises",),
            facts={"raises": end, "runs": end},
            told=end,
        )


@dataclass(frozen=True, kw_only=True)
class WhatIsFreedNext(Asked):
    """Which node is freed next, after the line ``after``.  ``believes`` has names or indices.

    Where one line frees several nodes, each of them is right.

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
    >>> print(asked.replies[1])
    MeanBackward0 saves no tensor, so nothing of it can be freed.
    """

    kind: ClassVar[str] = "node"

    def _beliefs(self, seen: Trace) -> dict[Choice, str]:
        beliefs: dict[Choice, str] = {}
        for choice, text in self.believes.items():
            nodes = [
                state.node
                for state in seen.steps[self._step(seen)].nodes
                if choice in (state.node, _label(seen, state.node))
            ]
            beliefs |= dict.fromkeys(nodes, text) or {choice: text}
        return beliefs

    def _found(self, seen: Trace, program: Program) -> _Found:
        at = self._step(seen)
        there = [state.node for state in seen.steps[at].nodes]
        when = {node: step for node, step in _freed_at(seen).items() if step > at}
        first = min((when[node] for node in there if node in when), default=None)
        if first is None:
            raise ValueError(
                f"{self._name} of {program.name}: nothing that is there after line "
                f"{seen.steps[at].ran} is freed later"
            )
        right = tuple(node for node in there if when.get(node) == first)
        facts = {node: self._fact(seen, at, node, when) for node in there}
        return _Found(
            prompt="Which node is freed next?",
            choices={node: _label(seen, node) for node in there},
            right=right,
            facts=facts,
            told=f"Line {seen.steps[first].ran} frees {_names(seen, right)}.",
        )

    @staticmethod
    def _fact(seen: Trace, at: int, node: int, when: Mapping[int, int]) -> str:
        name, leaf = _label(seen, node), seen.nodes[node].leaf
        state = next(state.state for state in seen.steps[at].nodes if state.node == node)
        if node in when:
            return f"{name} is freed by line {seen.steps[when[node]].ran}."
        if leaf:
            return f"{name} is a leaf: backward frees nothing there, it adds to its .grad."
        if state == FREED:
            return f"{name} has been freed before."
        if state not in (ALIVE, MODIFIED):
            return f"{name} saves no tensor, so nothing of it can be freed."
        return f"{name} is not freed by any line."


@dataclass(frozen=True, kw_only=True)
class HowManyBytes(Asked):
    """How many bytes of activations saved tensors hold after the line ``after``.

    ``believes`` maps each wrong number of bytes to what it believes; the choices are these and the
    right one.  What the program keeps anyway (parameters, its inputs) is not counted.

    >>> import torch
    >>> from gradtrace import trace
    >>> def program():
    ...     y = torch.ones(2, requires_grad=True).exp()
    ...     y.sum().backward()
    >>> line = "y = torch.ones(2, requires_grad=True).exp()"
    >>> ask = HowManyBytes(after=line, believes={16: "Input and result: the input is not saved."})
    >>> asked = ask.put_to(Program("program", lambda: trace(program)))
    >>> asked.right, asked.replies[8]
    ((8,), '8 bytes are held, by ExpBackward0 (result 8 B).')
    """

    def _found(self, seen: Trace, program: Program) -> _Found:
        if self.after is None:
            raise ValueError(f"{self._name} of {program.name}: say after which line, as after=...")
        if not self.believes:
            raise ValueError(
                f"{self._name} of {program.name}: give the numbers of bytes to choose from as "
                "believes={bytes: what that belief is}"
            )
        step = seen.steps[self._step(seen)]
        right = step.held[0]
        numbers = sorted({right, *self.believes})
        fact = _bytes_held(seen, step)
        return _Found(
            prompt=f"How many bytes do saved tensors hold after line {step.ran}?",
            choices={number: f"{number:,} B" for number in numbers},
            right=(right,),
            facts=dict.fromkeys(numbers, fact),
            told=fact,
        )


@dataclass(frozen=True, kw_only=True)
class WhichGetGradients(Asked):
    """Which leaf tensors that require grad have a gradient at the end, or after the line ``until``.

    ``believes`` has the names of variables, and "none".  All that are right are to be chosen.

    >>> import torch
    >>> from gradtrace import trace
    >>> def program():
    ...     x, w = (torch.ones(1, requires_grad=True) for _ in range(2))
    ...     (x.detach() * w).sum().backward()
    >>> ask = WhichGetGradients(believes={"x": "detach() cut it off."})
    >>> asked = ask.put_to(Program("program", lambda: trace(program)))
    >>> asked.right, asked.replies["x"]
    (('w',), 'x.grad is None. detach() cut it off.')
    """

    until: int | str | None = None

    kind: ClassVar[str] = "choices"

    def _found(self, seen: Trace, program: Program) -> _Found:
        last = seen.steps[-1]
        if self.until is not None:
            last = seen.steps[dataclasses.replace(self, after=self.until)._step(seen)]
        leaves = {v.name: v.grad for v in last.variables if v.leaf and v.requires_grad}
        if not leaves:
            raise ValueError(
                f"{self._name} of {program.name}: no variable there is a leaf that requires grad"
            )
        right = tuple(name for name, grad in leaves.items() if grad is not None) or (NONE,)
        facts = {
            name: f"{name}.grad is None." if grad is None else f"{name}.grad is {grad}."
            for name, grad in leaves.items()
        }
        whole = " ".join(facts.values())
        return _Found(
            prompt="Which of these get a gradient?",
            choices={name: name for name in leaves} | {NONE: "none of them"},
            right=right,
            facts=facts | {NONE: whole},
            told=whole,
        )


def raises(seen: Trace) -> bool:
    """Whether the traced program ended with an exception."""
    return seen.error is not None


@dataclass(frozen=True, kw_only=True)
class WhichSettings(Asked):
    """For which options of one control something is so; by itself, that the program raises.

    Args:
        control: the name of the control; the others stand as ``setting`` says.
        that: what is asked of the trace of each option.

    ``believes`` has labels of options, and "none".  All that are right are to be chosen.

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
    (('off',), 'retain = on: Ends without an error.')
    """

    control: str
    that: Callable[[Trace], bool] = raises

    kind: ClassVar[str] = "choices"

    def _found(self, seen: Trace, program: Program) -> _Found:
        if self.control not in program.options:
            raise ValueError(
                f"{self._name} of {program.name}: there is no control {self.control!r}; its "
                f"controls: {', '.join(program.options) or 'none'}"
            )
        whole = self._whole(program)
        options = program.options[self.control]
        traces = {label: program.trace(**whole | {self.control: value}) for label, value in options}
        facts = {
            label: f"{self.control} = {label}: {' '.join(outcome(seen))}"
            for label, seen in traces.items()
        }
        right = tuple(label for label, seen in traces.items() if self.that(seen)) or (NONE,)
        named = " and ".join(right) if right != (NONE,) else "none of them"
        return _Found(
            prompt=f"With which {self.control} does it raise?",
            choices={label: label for label in traces} | {NONE: "none of them"},
            right=right,
            facts=facts | {NONE: f"It is so with {named}."},
            told=f"It is so with {named}.",
        )


@dataclass(frozen=True, kw_only=True)
class WhichIsTrue(Asked):
    """Which one of some statements is true.

    Args:
        statements: maps each statement to a check of it.  The check is called with the program's
            ``trace``, which takes a setting by name, so a statement may compare settings.

    Each statement that turns out false needs its entry in ``believes``: a trace cannot say what its
    words believe.

    Raises:
        ValueError: not exactly one is true, or a false one has no entry.

    >>> from gradtrace import trace
    >>> ask = WhichIsTrue(prompt="What happens?", statements={
    ...     "it raises": lambda trace: trace().error is not None,
    ...     "nothing": lambda trace: trace().error is None,
    ... }, believes={"it raises": "Nothing here goes backward."})
    >>> ask.put_to(Program("fine", lambda: trace(lambda: 1))).right
    ('nothing',)
    """

    statements: Mapping[str, Callable[[Callable[..., Trace]], bool]]

    def _found(self, seen: Trace, program: Program) -> _Found:
        right = tuple(text for text, check in self.statements.items() if check(program.trace))
        if len(right) != 1:
            raise ValueError(
                f"{self._name} of {program.name}: {len(right)} of its statements are true "
                f"({'; '.join(right) or 'none'}), but one is to be chosen"
            )
        for text in self.statements:
            if text not in right and text not in self.believes:
                raise ValueError(
                    f"{self._name} of {program.name}: {text!r} is false: say in believes= what "
                    "those believe who choose it"
                )
        return _Found(
            prompt="Which is true?",
            choices={text: text for text in self.statements},
            right=right,
            facts=dict.fromkeys(self.statements, ""),
            told=f"{right[0][:1].upper()}{right[0][1:]}.",
        )


def _join(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _label(seen: Trace, node: int) -> str:
    return seen.nodes[node].label


def _names(seen: Trace, nodes: Iterable[int]) -> str:
    """Each name once, with how often: "ExpBackward0 and 2 × MulBackward0"."""
    count: dict[str, int] = {}
    for node in nodes:
        count[_label(seen, node)] = count.get(_label(seen, node), 0) + 1
    *most, last = [name if n == 1 else f"{n} × {name}" for name, n in count.items()]
    return f"{', '.join(most)} and {last}" if most else last


def _statements(seen: Trace) -> list[int]:
    """The first line of each statement of the function; where it cannot be parsed, what ran."""
    first = min(seen.source, default=0)
    text = textwrap.dedent("\n".join(seen.source[n] for n in sorted(seen.source)))
    ran = {step.ran for step in seen.steps if step.ran is not None}
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return sorted(ran)
    function = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)), None)
    if function is None:
        return sorted(ran)
    return sorted(
        ran
        | {
            first + node.lineno - 1
            for statement in function.body
            for node in ast.walk(statement)
            if isinstance(node, ast.stmt) and not _runs_nothing(node)
        }
    )


def _runs_nothing(node: ast.stmt) -> bool:
    """A docstring, ``pass``, or a definition."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, (ast.Pass, ast.FunctionDef, ast.ClassDef))


def _what_it_did(seen: Trace, line: int) -> str:
    """What a line did that is not the one that raised."""
    freed = [node for node, at in _freed_at(seen).items() if seen.steps[at].ran == line]
    made = [index for index, node in enumerate(seen.nodes) if node.line == line and not node.leaf]
    if not any(step.ran == line for step in seen.steps):
        if seen.error is not None and line > seen.error.line:
            return f"Line {line} is never reached: line {seen.error.line} raises before it."
        return f"Line {line} does not run in this setting."
    if freed:
        return f"Line {line} ran. It freed what {_names(seen, freed)} had saved."
    if made:
        return f"Line {line} ran. It recorded {_names(seen, made)}."
    return f"Line {line} ran. It changed nothing in the graph."


def _freed_at(seen: Trace) -> dict[int, int]:
    """For each node that was freed, the index of the first step at which it was."""
    found: dict[int, int] = {}
    for index, step in enumerate(seen.steps):
        for state in step.nodes:
            if state.state == FREED:
                found.setdefault(state.node, index)
    return found


def _bytes_held(seen: Trace, step: Step) -> str:
    """What is held at a step, and by which nodes."""
    holders = []
    for state in step.nodes:
        node = seen.nodes[state.node]
        kept = [
            f"{slot.name} {slot.nbytes:,} B"
            for slot, (slot_state, _) in zip(node.slots, state.slots, strict=True)
            if slot_state in (ALIVE, MODIFIED) and slot.role == "activation" and slot.nbytes
        ]
        if kept:
            holders.append(f"{node.label} ({', '.join(kept)})")
    if not holders:
        return f"{step.held[0]:,} bytes are held: no node keeps an activation."
    return f"{step.held[0]:,} bytes are held, by {' and '.join(holders)}."
