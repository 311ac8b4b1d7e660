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
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gradtrace.autograd.nodes import ALIVE, FREED, MODIFIED
from gradtrace.player.page import outcome
from gradtrace.tracing.steps import Trace

NO_LINE = "none"
NONE_OF_THEM = "none of them"

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
            choice if choice == NO_LINE else line_of(choice, seen.source): text
            for choice, text in self.believes.items()
        }

    def _found(self, seen: Trace, program: Program) -> _Found:
        lines = _statements(seen)
        right: Choice = NO_LINE if seen.error is None else seen.error.line
        choices: dict[Choice, str] = {line: seen.source[line].strip() for line in lines}
        facts: dict[Choice, str] = {line: _what_it_did(seen, line) for line in lines}
        end = _end(seen)
        facts[right] = end
        if right != NO_LINE and seen.error is not None:
            facts[NO_LINE] = f"Line {right} raises {seen.error.type}."
        return _Found(
            prompt="Which line raises?",
            choices=choices | {NO_LINE: "no line: it runs to the end"},
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
        end = _end(seen)
        return _Found(
            prompt="Does it raise?",
            choices={"raises": "it raises", "runs": "it runs to the end"},
            right=("runs" if seen.error is None else "raises",),
            facts={"raises": end, "runs": end},
            told=end,
        )


@dataclass(frozen=True, kw_only=True)
class WhatIsFreedNext(Asked):
    """Which node lets go next of what it saved, after the line ``after``.

    ``believes`` has names or indices.  Where several let go at one line, each of them is right.

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
                for state in seen.states(self._step(seen))
                if choice in (state.node, _label(seen, state.node))
            ]
            beliefs |= dict.fromkeys(nodes, text) or {choice: text}
        return beliefs

    def _found(self, seen: Trace, program: Program) -> _Found:
        at = self._step(seen)
        there = [state.node for state in seen.states(at)]
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
            prompt="Which node lets go next of what it saved?",
            choices={node: _label(seen, node) for node in there},
            right=right,
            facts=facts,
            told=f"Line {seen.steps[first].ran} frees what {_names(seen, right)} saved.",
        )

    @staticmethod
    def _fact(seen: Trace, at: int, node: int, when: Mapping[int, int]) -> str:
        name, leaf = _label(seen, node), seen.nodes[node].leaf
        state = next(state.state for state in seen.states(at) if state.node == node)
        if node in when:
            return f"Line {seen.steps[when[node]].ran} frees what {name} saved."
        if leaf:
            return f"{name} is a leaf: backward frees nothing there, it adds to its .grad."
        if state == FREED:
            return f"What {name} saved has been freed before."
        if state not in (ALIVE, MODIFIED):
            return f"{name} saves no tensor, so nothing of it can be freed."
        return f"No line frees what {name} saved."


@dataclass(frozen=True, kw_only=True)
class WhichTensorGoesNext(Asked):
    """Which tensor goes next, after the line ``after``: it goes when nothing holds it any more.

    Nodes hold what they saved, variables what they name.  Parameters and other leaves cannot be
    chosen.  ``believes`` has names of variables or indices in ``Trace.tensors``.  Where one line
    lets several go, each of them is right.

    >>> import torch
    >>> from gradtrace import trace
    >>> def program():
    ...     x = torch.ones(2, requires_grad=True)
    ...     y = x.exp() * 2
    ...     loss = y.sum()
    ...     loss.backward()
    >>> ask = WhichTensorGoesNext(after="loss = y.sum()")
    >>> asked = ask.put_to(Program("program", lambda: trace(program)))
    >>> print([choice["label"] for choice in asked.choices], len(asked.right))
    ['y, 8 B', 'loss, 4 B', 'saved by MulBackward0, 8 B', 'saved by ExpBackward0, 8 B'] 2
    """

    kind: ClassVar[str] = "tensor"

    def _beliefs(self, seen: Trace) -> dict[Choice, str]:
        named = {v.name: v.tensor for v in seen.steps[self._step(seen)].variables}
        found: dict[Choice, str] = {}
        for choice, text in self.believes.items():
            tensor = named.get(choice, choice)
            found[choice if tensor is None else tensor] = text
        return found

    def _found(self, seen: Trace, program: Program) -> _Found:
        at = self._step(seen)
        labels = {
            tensor: f"{_holders(holders)}, {seen.tensors[tensor].nbytes:,} B"
            for tensor, holders in _held_by(seen, at).items()
        }
        goes: dict[int, int] = {}
        for index in range(at + 1, len(seen.steps)):
            held = _held_by(seen, index)
            for tensor in labels:
                if tensor not in held:
                    goes.setdefault(tensor, index)
        if not goes:
            raise ValueError(
                f"{self._name} of {program.name}: no tensor that is there after line "
                f"{seen.steps[at].ran} goes later"
            )
        first = min(goes.values())
        last = _held_by(seen, -1)
        facts = {
            tensor: f"Line {seen.steps[goes[tensor]].ran} lets it go: nothing holds it after that."
            if tensor in goes
            else f"It is held to the end: {_holders(last[tensor])}."
            for tensor in labels
        }
        right = tuple(tensor for tensor in labels if goes.get(tensor) == first)
        named = " and ".join(labels[tensor] for tensor in right)
        return _Found(
            prompt="Which tensor goes next?",
            choices=dict(labels),
            right=right,
            facts=facts,
            told=f"Line {seen.steps[first].ran} lets go: {named}.",
        )


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
        at = self._step(seen)
        right = seen.steps[at].held[0]
        numbers = sorted({right, *self.believes})
        fact = _bytes_held(seen, at)
        return _Found(
            prompt=f"How many bytes do saved tensors hold after line {seen.steps[at].ran}?",
            choices={number: f"{number:,} B" for number in numbers},
            right=(right,),
            facts=dict.fromkeys(numbers, fact),
            told=fact,
        )


@dataclass(frozen=True, kw_only=True)
class WhichLineHoldsMost(Asked):
    """After which line saved tensors hold the most bytes of activations.

    ``believes`` names lines by number or text.  Where several lines leave the most, each is right.

    >>> import torch
    >>> from gradtrace import trace
    >>> def program():
    ...     y = torch.ones(2, requires_grad=True).exp()
    ...     y.sum().backward()
    >>> asked = WhichLineHoldsMost().put_to(Program("program", lambda: trace(program)))
    >>> asked.right, asked.replies[3]
    ((2,), 'After line 3 they hold 0 bytes.')
    """

    kind: ClassVar[str] = "line"

    def _beliefs(self, seen: Trace) -> dict[Choice, str]:
        return {line_of(line, seen.source): text for line, text in self.believes.items()}

    def _found(self, seen: Trace, program: Program) -> _Found:
        held: dict[int, int] = {}
        for step in seen.steps:
            if step.ran is not None:
                held[step.ran] = max(step.held[0], held.get(step.ran, 0))
        most = max(held.values(), default=0)
        if most == 0:
            raise ValueError(f"{self._name} of {program.name}: no line leaves an activation saved")
        visits = {line: sum(step.ran == line for step in seen.steps) for line in held}
        facts: dict[Choice, str] = {
            line: f"After line {line} they hold {nbytes:,} bytes"
            + (" at most." if visits[line] > 1 else ".")
            for line, nbytes in sorted(held.items())
        }
        right = tuple(line for line in sorted(held) if held[line] == most)
        lines = " and ".join(map(str, right))
        return _Found(
            prompt="After which line do saved tensors hold the most?",
            choices={line: seen.source[line].strip() for line in sorted(held)},
            right=right,
            facts=facts,
            told=f"They hold the most, {most:,} bytes, after line {lines}.",
        )


@dataclass(frozen=True, kw_only=True)
class WhichGetGradients(Asked):
    """Which leaf tensors that require grad have a gradient at the end, or after the line ``until``.

    ``believes`` has the names of variables, and "none of them".  All right ones are to be chosen.

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
        right = tuple(name for name, grad in leaves.items() if grad is not None) or (NONE_OF_THEM,)
        facts = {
            name: f"{name}.grad is None." if grad is None else f"{name}.grad is {grad}."
            for name, grad in leaves.items()
        }
        whole = " ".join(facts.values())
        return _Found(
            prompt="Which of these get a gradient?",
            choices={name: name for name in leaves} | {NONE_OF_THEM: NONE_OF_THEM},
            right=right,
            facts=facts | {NONE_OF_THEM: whole},
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

    ``believes`` has labels of options, and "none of them".  All right ones are to be chosen.

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
    >>> right = WhichSettings(control="retain", that=lambda seen: seen.error is None)
    >>> right.put_to(program).replies["on"]
    'So it is here.'
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
        so = [label for label, seen in traces.items() if self.that(seen)]
        facts = {label: self._fact(seen) for label, seen in traces.items()}
        right = tuple(so) or (NONE_OF_THEM,)
        named = _listed([f"`{label}`" for label in so]) or NONE_OF_THEM
        return _Found(
            prompt=f"With which {self.control} does it raise?",
            choices={label: label for label in traces} | {NONE_OF_THEM: NONE_OF_THEM},
            right=right,
            facts=facts | {NONE_OF_THEM: f"It is so with {named}."},
            told=f"It is so with {named}.",
        )

    def _fact(self, seen: Trace) -> str:
        """How it ended; of one that ended well, whether what was asked is so there."""
        if self.that is raises or raises(seen):
            return _end(seen)
        return "So it is here." if self.that(seen) else "Here it is not so."


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
            facts=dict.fromkeys(self.statements, "") | {right[0]: "That is what the run shows."},
            told=f"{right[0][:1].upper()}{right[0][1:]}.",
        )


def _end(seen: Trace) -> str:
    """How the program ended, of a long message only the beginning."""
    first, *rest = outcome(seen)
    if seen.error is not None:
        short = seen.error.message.partition(" (")[0].partition(": [")[0].rstrip(".")
        first = f"Line {seen.error.line} raises {seen.error.type}: {short}.".replace(": .", ".")
    return _join(first, *rest)


def _join(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _label(seen: Trace, node: int) -> str:
    return seen.nodes[node].label


def _names(seen: Trace, nodes: Iterable[int]) -> str:
    """Each name once, with how often: "ExpBackward0 and 2 × MulBackward0"; many as a number."""
    count = Counter(_label(seen, node) for node in nodes)
    if len(count) > 3:
        return f"{count.total()} nodes"
    return _listed([name if n == 1 else f"{n} × {name}" for name, n in count.items()])


def _listed(names: Sequence[str]) -> str:
    """In words: "a, b and c"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


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
    visits = [index for index, step in enumerate(seen.steps) if step.ran == line]
    if not visits:
        if seen.error is not None and line > seen.error.line:
            return f"Line {line} is never reached: line {seen.error.line} raises before it."
        return f"Line {line} does not run in this setting."
    freed = [node for node, at in _freed_at(seen).items() if at in visits]
    made = [i for i, node in enumerate(seen.nodes) if node.line == line and not node.leaf]
    did = []
    if made:
        did.append(f"It recorded {_names(seen, made)}.")
    if freed:
        did.append(f"It freed what {_names(seen, freed)} had saved.")
    written, changed = _written(seen, visits)
    if written and not freed:
        did.append(f"It wrote {_some(written, 'gradients')} and freed nothing.")
    if changed:
        did.append(f"It changed {_some(changed, 'tensors')} in place.")
    return _join(f"Line {line} ran.", *(did or ["It changed nothing in the graph."]))


def _written(seen: Trace, visits: Iterable[int]) -> tuple[list[str], list[str]]:
    """The gradients that were written at these steps, and the variables that were changed."""
    written: dict[str, None] = {}
    changed: dict[str, None] = {}
    for index in visits:
        before = {v.name: v for v in seen.steps[index - 1].variables}
        for now in seen.steps[index].variables:
            was = before.get(now.name)
            if was is None or was.shape != now.shape:
                continue
            if was.node != now.node and (was.tensor is None or was.tensor != now.tensor):
                continue  # another tensor; one that has a graph gets a node when it is changed
            if now.grad is not None and now.grad != was.grad:
                written[f"{now.name}.grad"] = None
            if None not in (was.version, now.version) and now.version != was.version:
                changed[now.name] = None
    return list(written), list(changed)


def _some(names: Sequence[str], what: str) -> str:
    """Few by name, many by number."""
    return " and ".join(names) if len(names) <= 2 else f"{len(names)} {what}"


def _freed_at(seen: Trace) -> dict[int, int]:
    """For each node that was freed, the index of the first step at which it was."""
    found: dict[int, int] = {}
    for index, step in enumerate(seen.steps):
        for state in step.changed:
            if state.state == FREED:
                found.setdefault(state.node, index)
    return found


def _held_by(seen: Trace, at: int) -> dict[int, tuple[list[str], list[str]]]:
    """For each tensor that is no leaf, the variables that name it and the nodes that saved it."""
    held: dict[int, tuple[list[str], list[str]]] = {}
    for variable in seen.steps[at].variables:
        if variable.tensor is not None:
            held.setdefault(variable.tensor, ([], []))[0].append(variable.name)
    for state in seen.states(at):
        node = seen.nodes[state.node]
        for slot, (slot_state, _) in zip(node.slots, state.slots, strict=True):
            if slot.tensor is not None and slot_state in (ALIVE, MODIFIED):
                held.setdefault(slot.tensor, ([], []))[1].append(node.label)
    return {tensor: by for tensor, by in held.items() if seen.tensors[tensor].role != "leaf"}


def _holders(held: tuple[list[str], list[str]]) -> str:
    """The names of a tensor; of one without a name, the nodes that saved it."""
    names, nodes = held
    return ", ".join(names) if names else f"saved by {' and '.join(dict.fromkeys(nodes))}"


def _bytes_held(seen: Trace, at: int) -> str:
    """What is held at a step, and by which nodes."""
    holders, total = [], 0
    (activations, _, _) = seen.steps[at].held
    for state in seen.states(at):
        node = seen.nodes[state.node]
        saved = [
            slot
            for slot, (slot_state, _) in zip(node.slots, state.slots, strict=True)
            if slot_state in (ALIVE, MODIFIED) and slot.role == "activation" and slot.nbytes
        ]
        kept = [f"{slot.name} {slot.nbytes:,} B" for slot in saved]
        total += sum(slot.nbytes or 0 for slot in saved)
        if kept:
            holders.append(f"{node.label} ({', '.join(kept)})")
    if not holders:
        return f"{activations:,} bytes are held: no node keeps an activation."
    named = [who if n == 1 else f"{n} × {who}" for who, n in Counter(holders).items()]
    shared = "" if total == activations else " A tensor that several saved is held once."
    return f"{activations:,} bytes are held, by {' and '.join(named)}.{shared}"
