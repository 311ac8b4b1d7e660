"""Candidates: edits of the program that could repair it, the usual wrong ones among them.

Each rule looks at the lines involved and yields every edit of its kind that is possible there.  It
does not ask whether the edit is right: the judge does that.  The diagnosis only says which are
tried first.
"""

from __future__ import annotations

import ast
import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import libcst as cst

from gradtrace.repair.edits import Changes, Function, Loop, Small, Source, method_called
from gradtrace.repair.evidence import Place, Run

MOST = 40  # candidates that are run


@dataclass(frozen=True)
class Repair:
    """A kind of repair.

    ``rank`` puts better ones first; ``when`` completes "it is right if …".  One that ``cuts`` takes
    gradients away from something.  One that ``keeps`` the mathematics leaves every loss as it was,
    that of the failing backward, too.
    """

    name: str
    rank: int
    when: str
    cuts: bool = False
    keeps: bool = True


REPAIRS = {
    one.name: one
    for one in (
        Repair("create_graph", 10, "the gradient is to be differentiated"),
        Repair("use_reentrant", 10, "checkpointing is to stay"),
        Repair("number", 11, "the sum is only to be looked at"),
        Repair("out_of_place", 12, "the old value is needed by backward"),
        Repair(
            "clone_written", 13, "what is written there is for this iteration only", keeps=False
        ),
        Repair("clone_used", 14, "backward needs the value as it was then"),
        Repair("detach_state", 15, "the state goes on, and no gradient goes back", cuts=True),
        Repair("detach_stored", 16, "the state goes on, and no gradient goes back", cuts=True),
        Repair("clear", 17, "each iteration begins with an empty list", keeps=False),
        Repair("compute_again", 18, "it depends on what is trained", keeps=False),
        Repair("forward_again", 20, "this loss is to see the weights as they are now", keeps=False),
        Repair("reset_state", 21, "each iteration begins with a new state", keeps=False),
        Repair("own_inputs", 22, "both losses are those of the weights before the steps"),
        Repair("detach_shared", 23, "each loss is to train its own parameters", cuts=True),
        Repair("add_losses", 24, "each loss is to train all that it reaches"),
        Repair("add_rounds", 24, "all rounds are to be one step"),
        Repair("move_detach", 25, "that is what is not to be trained", cuts=True),
        Repair("keep_gradient", 26, "it is to be trained"),
        Repair("no_grad", 27, "the change itself is not to be differentiated"),
        Repair("switch_on", 27, "it is to be trained"),
        Repair("ask_less", 27, "the others are meant to be off"),
        Repair("differentiable", 27, "the loss is meant to be that of this value", keeps=False),
        Repair("optimizer_later", 27, "the optimizer is to hold what is trained"),
        Repair("train_mode", 28, "the forward pass is one of training", keeps=False),
        Repair("switch", 30, "the option is not needed"),
        Repair("reduce", 31, "this is the loss that is meant", keeps=False),
        Repair("step_later", 40, "the later loss is to train these parameters, too"),
        Repair("detach", 50, "it is not to be trained", cuts=True),
        Repair("retain_graph", 90, "both backward calls are to run over the same graph"),
    )
}


class Candidate(NamedTuple):
    """One edit: the whole new text of each file that it changes, by path."""

    repair: Repair
    title: str
    edits: Mapping[str, str]
    question: str | None = None  # it holds if the answer is yes
    doubt: str | None = None  # why running it cannot prove it


# What is tried first, by the cause that was diagnosed.
_FIRST = {
    "hidden_state_carried": ("detach_state", "detach_stored", "reset_state"),
    "computed_once_outside_loop": ("compute_again", "detach"),
    "forward_not_rerun": ("forward_again",),
    "shared_subgraph": ("add_losses", "add_rounds", "detach_shared", "own_inputs", "forward_again"),
    "loss_accumulated": ("number", "detach_state"),
    "replay_keeps_graph": ("detach_stored", "clear"),
    "dataset_tensor_has_graph": ("detach", "compute_again"),
    "buffer_has_graph": ("clone_written", "detach_stored"),
    "optimizer_step_between_backwards": ("forward_again", "own_inputs"),
    "inplace_on_saved": ("out_of_place", "clone_written"),
    "inplace_on_parameter_in_forward": ("clone_used",),
    "detach_wrong_place": ("move_detach", "keep_gradient"),
    "graph_grows": ("number", "detach_state"),
    "never_trained": ("keep_gradient",),
}


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
    repair: str, title: str, source: Source, changes: Changes, question: str | None = None
) -> Iterator[Candidate]:
    """The candidate of changes to one file, if they change it."""
    text = source.edited(changes)
    if text != source.text:
        yield Candidate(
            REPAIRS[repair], title, {source.path: text}, question, _doubt(repair, source, changes)
        )


def _doubt(repair: str, source: Source, changes: Changes) -> str | None:
    """A backward of the program's own may use copies without a graph: then what is differentiated
    twice is not all of it, and nothing that runs shows that."""
    if repair not in ("create_graph", "keep_gradient", "move_detach"):
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
    repair: str, title: str, changes: Mapping[Source, Changes]
) -> Iterator[Candidate]:
    """The candidate of changes to some files."""
    texts = {source.path: source.edited(change) for source, change in changes.items()}
    edits = {s.path: texts[s.path] for s in changes if texts[s.path] != s.text}
    if edits:
        yield Candidate(REPAIRS[repair], title, edits)


def candidates(run: Run, say: Callable[[str], None]) -> list[Candidate]:
    """The candidates for the run of a program that failed, best first, each text once.

    A rule that fails at what it has never met costs its own candidates only; it is said.
    """
    from gradtrace.repair import inplace, losses, state, switches, training

    scene = Scene(run)
    rules = itertools.chain(
        state.RULES, losses.RULES, inplace.RULES, switches.RULES, training.RULES
    )
    first = _FIRST.get(scene.diagnosis.get("cause", ""), ())
    found: dict[tuple[tuple[str, str], ...], Candidate] = {}
    for rule in rules:
        try:
            for one in rule(scene):
                if all(map(_is_python, one.edits.values())):
                    found.setdefault(tuple(sorted(one.edits.items())), one)
        except Exception as error:
            say(f"no more candidates of {rule.__name__}: {type(error).__name__}: {error}")
    ranked = sorted(
        found.values(),
        key=lambda one: (
            first.index(one.repair.name) if one.repair.name in first else len(first),
            one.repair.rank,
        ),
    )
    usual = [one for one in ranked if one.repair.name == "retain_graph"][:2]
    return [one for one in ranked if one not in usual][: MOST - len(usual)] + usual


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


# What gives something else each time: a repair that computes again leaves it alone.
DRAWS = re.compile(r"\b(rand\w*|normal\w*|bernoulli|multinomial|rsample|sample|shuffle|next)\(")

# Names in a piece of code.


def reads(code: str) -> set[str]:
    """Names and attributes (``self.h``) that the code reads; the base of ``x[0] = …`` is read."""
    return _names(code, ast.Load) | {
        ast.unparse(one.target) for one in _walk(code) if isinstance(one, ast.AugAssign)
    }


def writes(code: str) -> set[str]:
    """Names and attributes that the code assigns."""
    return _names(code, ast.Store)


def _names(code: str, context: type[ast.expr_context]) -> set[str]:
    return {
        ast.unparse(one)
        for one in _walk(code)
        if isinstance(one, ast.Name | ast.Attribute) and isinstance(one.ctx, context)
    }


def _walk(code: str) -> Iterator[ast.AST]:
    try:
        yield from ast.walk(ast.parse(textwrap.dedent(code).strip()))
    except SyntaxError:  # the head of a compound statement
        return


def carried_names(source: Source, loop: Loop) -> list[str]:
    """What a loop reads before it assigns it, and assigns: it goes from iteration to iteration."""
    tree = next(_walk(source.code(loop)), None)
    written: set[str] = set()
    early: list[str] = []
    late: set[str] = set()
    assert isinstance(tree, ast.Module)

    def visit(code: ast.AST) -> None:
        text = ast.unparse(code)
        for name in sorted(reads(text) - written):
            if name not in early:
                early.append(name)
        written.update(writes(text))
        late.update(writes(text))

    def go(statements: Iterable[ast.stmt]) -> None:
        for one in statements:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            body = getattr(one, "body", None)
            if body is None:
                visit(one)
                continue
            for head in ("iter", "test", "target"):
                if isinstance(part := getattr(one, head, None), ast.AST):
                    visit(part)
            for item in getattr(one, "items", ()):
                visit(item.context_expr)
            go(body)
            go(getattr(one, "orelse", ()))

    go(tree.body)
    return [name for name in early if name in late]


def loops_of(scene: Scene) -> Iterator[tuple[Statement, Loop]]:
    """The loops around the running statements, each with the statement in it."""
    for one in scene.running:
        for loop in one.source.around(one.node, cst.For, cst.While):
            if isinstance(loop, Loop):
                yield one, loop


def changes_in_place(source: Source, statement: cst.CSTNode) -> set[str]:
    """The names that a statement writes into: ``x[0] = …``, ``x += …``, ``x.mul_(…)``."""
    found: set[ast.expr] = set()
    for one in _walk(source.code(statement)):
        if isinstance(one, ast.AugAssign):
            found.add(one.target)
        elif isinstance(one, ast.Assign):
            found |= {target for target in one.targets if isinstance(target, ast.Subscript)}
        elif (
            isinstance(one, ast.Call)
            and isinstance(one.func, ast.Attribute)
            and one.func.attr.endswith("_")
            and not one.func.attr.endswith("__")
        ):
            found.add(one.func.value)
    names = set()
    for base in found:
        while isinstance(base, ast.Subscript):
            base = base.value
        names.add(ast.unparse(base))
    return names


def value_of(statement: cst.CSTNode) -> cst.BaseExpression | None:
    """What an assignment assigns."""
    if isinstance(statement, cst.Assign | cst.AnnAssign | cst.AugAssign):
        return statement.value
    return None


def assigned(source: Source) -> Iterator[tuple[str, cst.BaseExpression]]:
    """What the file assigns to which name; of ``a, b = f(), g()`` each apart."""
    for assign in source.all(cst.Assign):
        target, value = assign.targets[0].target, assign.value
        if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
            for one, made in zip(target.elements, value.elements, strict=False):
                yield source.code(one.value), made.value
        else:
            yield source.code(target), value


def in_function(source: Source, node: cst.CSTNode, name: str) -> bool:
    function: Function | None = source.function_of(node)
    return function is not None and function.name.value == name


_NO_NAMES = {
    "loss", "losses", "opt", "optim", "optimizer", "optimiser", "err", "error", "self", "net",
    "model", "backward", "total", "cost", "the", "of", "retain", "graph", "true", "inputs", "list",
    "parameters", "weight", "bias",
}  # fmt: skip


def _words(text: str) -> set[str]:
    parts = re.sub(r"([a-z])([A-Z])", r"\1_\2", text)
    return {word.lower() for word in re.findall(r"[A-Za-z]+", parts)} - _NO_NAMES


_Named = TypeVar("_Named")


def named_like(name: str, others: Mapping[_Named, str]) -> _Named | None:
    """The one whose name shares a word, or the beginning of one, with this name; None if not one.

    >>> named_like("g_loss", {1: "opt_d discriminator", 2: "opt_g generator"})
    2
    >>> named_like("loss", {1: "opt_d", 2: "opt_g"})
    """
    words = _words(name)
    fits = [
        key
        for key, other in others.items()
        if any(a.startswith(b) or b.startswith(a) for a in words for b in _words(other))
    ]
    return fits[0] if len(fits) == 1 else None
