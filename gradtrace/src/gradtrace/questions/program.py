"""The base of all questions: the program that each is about, and the replies to its choices."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gradtrace.player.prompt import Choice, Question
from gradtrace.questions.trace_facts import joined
from gradtrace.tracing.steps import TraceData


@dataclass(frozen=True)
class Program:
    """The subject of a question: a function that can be traced for each setting of its controls."""

    name: str
    trace: Callable[..., TraceData]  # takes a setting as keyword arguments
    options: Mapping[str, Sequence[tuple[str, Any]]] = field(default_factory=dict)  # by control
    initial: Mapping[str, Any] = field(default_factory=dict)  # the value of each control

    def indices(self, setting: Mapping[str, Any]) -> tuple[int, ...]:
        """Return each control's option as an index; one not in ``setting`` has its initial value.

        Raises:
            ValueError: ``setting`` names an unknown control, or a value that is not an option.
        """
        for name in setting:
            if name not in self.options:
                names = ", ".join(self.options) or "none"
                raise ValueError(f"there is no control {name!r} to set; its controls: {names}")
        chosen = []
        for name, options in self.options.items():
            value = setting.get(name, self.initial[name])
            index = place(value, options)
            if index is None:
                labels = ", ".join(label for label, _ in options)
                raise ValueError(f"{value!r} is not an option of {name}; its options: {labels}")
            chosen.append(index)
        return tuple(chosen)


def place(value: Any, options: Sequence[tuple[str, Any]]) -> int | None:
    """Return the index of ``value`` among ``(label, value)`` pairs, if any; 1 is not ``True``.

    >>> place(1, [("a", True), ("b", 1)])
    1
    """
    for i, (_, option) in enumerate(options):
        if option is value or (type(option) is type(value) and option == value):
            return i
    return None


def line_of(where: int | str, source: Mapping[int, str]) -> int:
    """Return the number of a line, given as its number or as its text without the indentation.

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
    lines = [n for n, text in source.items() if text.strip() == where.strip()]
    if len(lines) == 1:
        return lines[0]
    if lines:
        numbers = " and ".join(map(str, lines))
        raise ValueError(f"lines {numbers} all read {where!r}: give the number of one of them")
    raise ValueError(f"no line reads {where!r}: give the whole line, or its number")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The base class of all questions.

    Args:
        prompt: the text of the question; each class has a default.
        believes: for each wrong choice, the misconception that leads to it and its correction.  The
            reply appends this text to the fact about the run.
        why: text that the reply to the right choice appends to the fact about the run.
        setting: the controls whose value differs from the player's initial setting.
        after: the line, as number or text, after which the question is asked: the player shows the
            steps up to it.  None asks before the first line.
    """

    prompt: str = ""
    believes: Mapping[Any, str] = field(default_factory=dict)
    why: str = ""
    setting: Mapping[str, Any] = field(default_factory=dict)
    after: int | str | None = None

    kind: ClassVar[str] = "choice"

    def put_to(self, program: Program) -> Question:
        """Return the question as data, answered from the program's own trace.

        Raises:
            ValueError: a misconception belongs to the right answer, or to a choice that does not
                exist; a setting names no control; or the trace does not contain the answer.
        """
        try:
            return self._question(program)
        except ValueError as error:
            raise ValueError(f"{type(self).__name__} of {program.name}: {error}") from error

    def _question(self, program: Program) -> Question:
        indices = program.indices(self.setting)
        trace = program.trace(**self._whole(program))
        answer = self._answer(trace, program)
        beliefs = self._misconceptions(trace, answer.choices)
        for choice in beliefs:
            if choice in answer.right:
                raise ValueError(
                    f"{choice!r} is right ({answer.facts[choice]}), so it is no misconception: "
                    "move the text to why="
                )
            if choice not in answer.choices:
                choices = ", ".join(map(str, answer.choices))
                raise ValueError(f"believes= names {choice!r}, not one of the choices: {choices}")
        remarks = {choice: self.why for choice in answer.right} | beliefs
        return Question(
            kind=self.kind,
            prompt=self.prompt or answer.prompt,
            setting=indices,
            at=self._step(trace),
            choices=tuple({"id": id, "label": label} for id, label in answer.choices.items()),
            right=answer.right,
            replies={id: joined(answer.facts[id], remarks.get(id, "")) for id in answer.choices},
            explanation=joined(answer.explanation or answer.facts[answer.right[0]], self.why),
            place=answer.place,
        )

    def _whole(self, program: Program) -> dict[str, Any]:
        return {name: self.setting.get(name, value) for name, value in program.initial.items()}

    def _step(self, trace: TraceData) -> int:
        """Return the index of the step at which the question is asked."""
        if self.after is None:
            return 0
        line = line_of(self.after, trace.source)
        for index, step in enumerate(trace.steps):
            if step.ran == line:
                return index
        raise ValueError(f"line {line} does not run, so no step comes after it")

    def _misconceptions(self, trace: TraceData, choices: Mapping[Any, str]) -> dict[Choice, str]:
        """Return the misconceptions by choice; the keys of ``believes`` may be labels, too."""
        beliefs: dict[Choice, str] = {}
        for name, text in self.believes.items():
            named = [choice for choice, label in choices.items() if name in (choice, label)]
            beliefs |= dict.fromkeys(named or [name], text)
        return beliefs

    def _answer(self, trace: TraceData, program: Program) -> "TraceAnswer":
        raise NotImplementedError


@dataclass(frozen=True)
class TraceAnswer:
    """The answer that a trace gives: label and fact of each choice, and which choices are right."""

    prompt: str
    choices: dict[Any, str]
    right: tuple[Choice, ...]
    facts: dict[Any, str]
    explanation: str = ""  # else the fact about the first right choice
    place: int = 0
