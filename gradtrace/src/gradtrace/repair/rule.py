"""What a rule of repair is: it looks at the failure and yields candidates, edits of the program.

A rule yields every edit of its kind that is possible at the lines involved.  It does not ask
whether the edit is right: the judge does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

import libcst as cst

from gradtrace.repair.edits import Changes, Loop, Small, Source, method_called
from gradtrace.repair.repairs import CREATE_GRAPH, KEEP_GRADIENT, MOVE_DETACH, Repair
from gradtrace.repair.run.observations import Place, Run


class Candidate(NamedTuple):
    """One edit: the whole new text of each file that it changes, by path."""

    repair: Repair
    title: str
    edits: Mapping[str, str]
    question: str | None = None  # it holds if the answer is yes
    doubt: str | None = None  # why running it cannot prove it


class Statement(NamedTuple):
    """A statement of the program that was running when it failed."""

    source: Source
    node: Small
    place: Place


class Scene:
    """What the rules look at: the run that failed, the lines involved, and the program's files."""

    def __init__(self, run: Run):
        self.run = run
        self.diagnosis = run.diagnosis or {}
        self.family = self.diagnosis.get("family")  # it follows from the error's text
        self._sources: dict[str, Source | None] = {}
        places = run.raised
        self.running = [
            found
            for i, place in enumerate(places)
            if (found := self._statement(place, places[i - 1].function if i else "")) is not None
        ]

    def source(self, path: str) -> Source | None:
        """The file, if it is one of the program's and can be read."""
        if path not in self._sources:
            try:
                self._sources[path] = Source(path) if path in self.run.files else None
            except (OSError, UnicodeDecodeError, cst.ParserSyntaxError):
                self._sources[path] = None
        return self._sources[path]

    @property
    def carried(self) -> list[str]:
        """The variables that carried it, as the diagnosis names them."""
        return (self.diagnosis.get("carried_by") or "").split(", ")

    @property
    def sources(self) -> list[Source]:
        return [source for path in self.run.files if (source := self.source(path)) is not None]

    def at(self, key: str) -> list[Statement]:
        """The statements at ``began_at``, ``made_at`` or ``raised_at`` of the diagnosis."""
        where = self.diagnosis.get(key)
        if where is None or (source := self.source(where["file"])) is None:
            return []
        place = Place(where["file"], where["line"], "")
        return [Statement(source, node, place) for node in source.statements_at(where["line"])]

    @property
    def involved(self) -> list[Statement]:
        """All statements that the failure names, each once."""
        found = [*self.running, *self.at("raised_at"), *self.at("began_at"), *self.at("made_at")]
        return list({one.node: one for one in found}.values())

    def _statement(self, place: Place, calls: str) -> Statement | None:
        """The statement that runs there: of several on a line the one that makes the call."""
        source = self.source(place.file)
        found = [] if source is None else source.statements_at(place.line)
        if source is None or not found:
            return None
        for node in found:
            made = {method_called(call) for call in source.all(cst.Call, node)}
            if made & {calls, "backward", "grad"}:
                return Statement(source, node, place)
        return Statement(source, found[-1], place)


class Rule(Protocol):
    """Yields the edits of one kind that are possible where the program failed."""

    __name__: str

    def __call__(self, scene: Scene, /) -> Iterable[Candidate]: ...


def one_file(
    repair: Repair, title: str, source: Source, changes: Changes, question: str | None = None
) -> Iterator[Candidate]:
    """The candidate of changes to one file, if they change it."""
    text = source.edited(changes)
    if text != source.text:
        yield Candidate(
            repair, title, {source.path: text}, question, _doubt(repair, source, changes)
        )


def _doubt(repair: Repair, source: Source, changes: Changes) -> str | None:
    """A backward of the program's own may use copies without a graph: then what is differentiated
    twice is not all of it, and nothing that runs shows that."""
    if repair not in (CREATE_GRAPH, KEEP_GRADIENT, MOVE_DETACH):
        return None
    for node in changes:
        kind = source.class_of(node)
        bases = "" if kind is None else " ".join(source.code(base) for base in kind.bases)
        if "Function" in bases:
            return (
                "runs, but whether this Function can be differentiated twice, running it cannot "
                "tell: compare with torch.autograd.gradgradcheck"
            )
    return None


def several_files(
    repair: Repair, title: str, changes: Mapping[Source, Changes]
) -> Iterator[Candidate]:
    """The candidate of changes to some files."""
    texts = {source.path: source.edited(change) for source, change in changes.items()}
    edits = {s.path: texts[s.path] for s in changes if texts[s.path] != s.text}
    if edits:
        yield Candidate(repair, title, edits)


def loops_of(scene: Scene) -> Iterator[tuple[Statement, Loop]]:
    """The loops around the running statements, each with the statement in it."""
    for one in scene.running:
        for loop in one.source.around(one.node, cst.For, cst.While):
            if isinstance(loop, Loop):
                yield one, loop
