"""The interface of a rule of repair: it receives a failure and yields candidate edits.

These are all of its kind at the lines involved; the judge decides which of them are right.
"""

import ast
import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, NamedTuple

from gradtrace.autograd import syntax
from gradtrace.autograd.syntax import Function, Loop, reads, statements_computing, writes
from gradtrace.repair.edits import Edit, Source, call_of, method_called
from gradtrace.repair.intent import targets_of_calls
from gradtrace.repair.kinds import CREATE_GRAPH, KEEP_GRADIENT, MOVE_DETACH, Repair
from gradtrace.repair.run.observations import GraphVariable, ObservedCall, ProgramLine, ProgramRun

# Silent causes in which each call computes the right gradient.
RIGHT_GRADIENTS = ("graph_grows", "gradient_leaks", "gradients_not_cleared", "in_no_optimizer")
_HEAD_LINES = 5  # of a function with its decorators, before its first statement


class Candidate(NamedTuple):
    """An edit: the complete new text of each file that it changes, by path."""

    repair: Repair
    title: str
    edits: Mapping[str, str]
    question: str | None = None  # the repair holds if the answer is yes
    doubt: str | None = None  # a question that no run of the program answers
    parts: tuple["Candidate", ...] = ()  # of a pair


class Statement(NamedTuple):
    """A statement in one of the program's files, and one of the lines that it covers."""

    source: Source
    node: ast.stmt
    line: ProgramLine


class Failure:
    """The input of the rules: the run that failed, the lines involved, and the program's files."""

    def __init__(self, run: ProgramRun, texts: Mapping[str, str]):
        self.run = run
        self.diagnosis = run.diagnosis or {}
        self.family = self.diagnosis.get("family")
        self.cause = self.diagnosis.get("cause")
        self.facts = self.diagnosis.get("facts", ())
        self.files: dict[str, Source] = {}  # the program's, except those that cannot be parsed
        for path in run.files:
            with contextlib.suppress(OSError, UnicodeDecodeError, SyntaxError):
                self.files[path] = Source(path, texts.get(path))
        self.sources = [*self.files.values()]
        self.call = self._call_involved()
        self.lines = run.raised_at or (() if self.call is None else self.call.site)
        callees = ["", *(line.function for line in self.lines)]
        # The statements in the traceback or, without an error, on the stack of the call.
        self.running = [*filter(None, map(self._statement, self.lines, callees))]

    def _call_involved(self) -> ObservedCall | None:
        """Return the failed call; without an error, the last at ``raised_at`` or ``began_at``."""
        if self.run.status == "raised":
            return next((call for call in self.run.calls if call.failed), None)
        places = [self.diagnosis.get(key) or {} for key in ("began_at", "raised_at")]
        lines = [(place.get("file"), place.get("line")) for place in places]
        calls = [c for line in lines for c in self.run.calls if line in {p[:2] for p in c.site}]
        return calls[-1] if calls else None

    @property
    def carried(self) -> list[str]:
        """The names in ``carried_by`` of the diagnosis."""
        names = self.diagnosis.get("carried_by")
        return names.split(", ") if names else []

    def at(self, key: str, *causes: str) -> list[Statement]:
        """Return the statements at ``began_at``, for example, of a diagnosis with these causes."""
        return self._at(self.diagnosis.get(key)) if self.cause in causes or not causes else []

    def _at(self, place: Mapping[str, Any] | None) -> list[Statement]:
        source = None if place is None else self.files.get(place["file"])
        if place is None or source is None:
            return []
        line = ProgramLine(place["file"], place["line"], "")
        # For a decorator, or the head of a `with`, those of the next line that has any.
        below = map(source.statements_at, range(line.line, line.line + _HEAD_LINES))
        return [Statement(source, node, line) for node in next(filter(None, below), [])]

    @property
    def freed_variables(self) -> list[tuple[GraphVariable, Statement]]:
        """The variables with freed nodes, or that forbid a copy, each with the statement."""
        running = {statement.line: statement for statement in reversed(self.running)}
        is_any = self.cause == "copied_with_graph"
        variables = (v for v in self.run.graph_variables if v.is_freed or is_any)
        return [(v, running[v.frame]) for v in variables if v.frame in running]

    def variables(self, statement: Statement) -> dict[str, str]:
        """Return the kinds of variables, not attributes, with a graph at a statement, by name."""
        return {
            variable.name.partition("[")[0]: variable.kind
            for variable in self.run.graph_variables
            if variable.frame == statement.line and "." not in variable.name
        }

    def roots_of_graphs(self, statement: Statement) -> set[str] | None:
        """Return the variables of a statement's function that reach a graph, if it is running."""
        place = statement.line.file, statement.line.function
        if self.run.status != "raised" or place not in {(p.file, p.function) for p in self.lines}:
            return None
        return {
            re.split(r"\W", variable.name)[0]
            for variable in self.run.graph_variables
            if (variable.frame.file, variable.frame.function) == place
        }

    @property
    def computing(self) -> set[ast.stmt]:
        """The running statements, and the assignments in their blocks that compute operands."""
        computing: set[ast.stmt] = set()
        for source, node, _ in self.running:
            computing |= {node, *statements_computing(source.before(node), reads(node))}
        return computing

    @property
    def cached(self) -> list[Statement]:
        """The statements at ``made_at`` and those that assign their result to a tensor."""
        tensors = {variable.name.rpartition(".")[2] for variable in self.run.graph_variables}
        callers = map(self._at, self.diagnosis.get("made_through", ()))
        statements = {statement.node: statement for statement in self.at("made_at")}
        for statement in itertools.chain(*callers):
            if tensors & {name.rpartition(".")[2] for name in writes(statement.node)}:
                statements.setdefault(statement.node, statement)
        functions = [
            f for s in self.running if isinstance(f := s.source.scope_of(s.node), Function)
        ]
        users: list[tuple[Statement, ast.stmt, list[ast.stmt]]]
        users = [(s, loop, [loop]) for s, loop in self.loops]
        users += ((s, s.node, [*functions]) for s in self.running[1:])
        # They assign what a following loop, or function that is called, reads but does not assign.
        for statement, user, parts in users if self.family == "freed" else ():
            types = self.variables(statement)
            read = {x for x in reads(user, *parts) - writes(*parts) if types.get(x) == "tensor"}
            for node in statement.source.before(user):
                if isinstance(node, ast.Assign) and writes(node) & read:
                    line = statement.line._replace(line=node.lineno)
                    statements.setdefault(node, Statement(statement.source, node, line))
        return list(statements.values())

    @property
    def nearby(self) -> list[Statement]:
        """The statement where the failure began, and those that were running when it was raised."""
        # Of parameters that no loss reaches, also the statements that read them.
        names = {name.rpartition(".")[2] for name in self.carried}
        readers = [
            Statement(source, node, ProgramLine(source.path, node.lineno, ""))
            for source in (self.sources if self.cause == "never_trained" else ())
            for node in source.statements()
            if names & {name.rpartition(".")[2] for name in reads(node)}
        ]
        return [*self.at("began_at"), *self.running, *readers]

    def calls(self, *names: str) -> Iterator[tuple[Source, ast.Call]]:
        """Yield the calls of these names at ``began_at`` or in the traceback, with their files."""
        for source, node, _ in self.nearby if self.run.raised_at else self.at("began_at"):
            yield from ((source, call) for call in source.calls(*names, under=node))

    @property
    def involved(self) -> list[Statement]:
        """The running statements, and those at the lines that the diagnosis names, each once."""
        named = itertools.chain.from_iterable(map(self.at, ("raised_at", "began_at", "made_at")))
        return list({statement.node: statement for statement in (*self.running, *named)}.values())

    @property
    def consumers(self) -> Iterator[tuple[int, Statement]]:
        """The statements by which a loss uses an earlier graph, or networks that it must not train.

        Each comes with the number of that loss's backward call.
        """
        if self.family == "silent" and self.cause != "gradient_leaks":
            return
        targets = targets_of_calls(self.run)
        for call in reversed({call.site: call for call in self.run.calls}.values()):
            meant = targets.get(call.number, set())
            for line in dict.fromkeys(
                line
                for line, optimizers in call.consumers
                if (optimizers or call is self.call) and not optimizers & meant
            ):
                statement = self._statement(line, "")
                if statement is not None:
                    yield call.number, statement

    @property
    def loops(self) -> Iterator[tuple[Statement, Loop]]:
        """The loops around the running statements, each with the statement in it."""
        for statement in self.running:
            for loop in statement.source.loops_around(statement.node):
                yield statement, loop

    def _statement(self, line: ProgramLine, callee: str) -> Statement | None:
        """Return the statement at a line; of several, the one that calls ``callee`` or backward."""
        source = self.files.get(line.file)
        if source is None or not (nodes := source.statements_at(line.line)):
            return None
        calling = (node for node in nodes if call_of(source, node, callee, "backward", "grad"))
        return Statement(source, next(calling, nodes[-1]), line)


EditRule = Callable[[Failure], Iterable[Candidate]]


def edit(
    repair: Repair, title: str, edits: Sequence[Edit], question: str | None = None
) -> Iterator[Candidate]:
    """Yield a candidate that makes these edits, if they change any text."""
    sources = dict.fromkeys(change.source for change in edits)
    texts = {s: s.edited(change for change in edits if change.source is s) for s in sources}
    changed = {source.path: text for source, text in texts.items() if text != source.text}
    if changed:
        yield Candidate(repair, title, changed, question, _doubt(repair, edits))


def _doubt(repair: Repair, edits: Sequence[Edit]) -> str | None:
    """Return a question about an edit that restores gradients inside a custom Function, or None."""
    # Its backward may use copies without a graph, so that a part of it is not differentiated twice,
    # which a run does not reveal.
    if repair in (CREATE_GRAPH, KEEP_GRADIENT, MOVE_DETACH):
        for source, position, *_ in edits:
            for definition in source.all(ast.ClassDef):
                start, end = source.span(definition)
                is_function = any("Function" in source.code(base) for base in definition.bases)
                if is_function and start < position < end and not _has_graph(source, definition):
                    return f"does torch.autograd.gradgradcheck accept {definition.name}.apply?"
    return None


def _has_graph(source: Source, function: ast.ClassDef) -> bool:
    """Whether its methods call only functions of torch and methods of their own tensors."""
    for method in source.all(ast.FunctionDef, function):
        known = {"torch", "F", *writes(method), *(a.arg for a in method.args.args[1:])}
        for call in source.all(ast.Call, method):
            receiver: ast.AST = call
            while isinstance(receiver, ast.Attribute | ast.Call | ast.Subscript):
                receiver = receiver.func if isinstance(receiver, ast.Call) else receiver.value
            names = known if isinstance(call.func, ast.Attribute) else _OF_NUMBERS
            is_known = getattr(receiver, "id", "F") in names
            if not is_known and method_called(call) != "save_for_backward":
                return False
        if syntax.WITHOUT_GRAPH.search(source.code(method)):
            return False
    return True


_OF_NUMBERS = {"enumerate", "len", "max", "min", "range", "reversed", "zip"}  # or of sequences


def counted(items: Sized, noun: str) -> str:
    """Return how many items there are, for texts.

    >>> counted("a", "backward call"), counted("ab", "candidate")
    ('1 backward call', '2 candidates')
    """
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"
