"""The rules of repair: each public function of the modules of this package is one."""

import difflib
from collections.abc import Callable, Mapping

from gradtrace.repair.rule import Candidate, EditRule, Failure
from gradtrace.repair.rules import (
    functions,
    in_place,
    losses,
    moves,
    requires_grad,
    returned,
    state,
    switches,
)
from gradtrace.repair.run.observations import ProgramRun

RULES: list[EditRule] = [
    function
    for module in (state, losses, in_place, switches, returned, requires_grad, moves, functions)
    for name, function in vars(module).items()
    if not name.startswith("_") and getattr(function, "__module__", None) == module.__name__
]
_MAX_CANDIDATES = 40  # that are run


def candidates(
    run: ProgramRun, texts: Mapping[str, str], report: Callable[[str], None]
) -> list[Candidate]:
    """Return at most 40 candidates for a run that failed, each text once, the best first.

    Textbook idioms come first, and among edits of one kind the smallest.  If a rule fails on
    unexpected code, only its own candidates are lost, and this is reported.  The
    program ran with these ``texts`` in place of its files'.
    """
    failure = Failure(run, texts)
    by_text: dict[tuple[tuple[str, str], ...], Candidate] = {}
    for rule in RULES:
        try:
            for candidate in rule(failure):
                if all(map(_compiles, candidate.edits.values())):
                    by_text.setdefault(tuple(sorted(candidate.edits.items())), candidate)
        except Exception as error:
            report(f"no further candidates of {rule.__name__}: {type(error).__name__}: {error}")
    ranked = sorted(by_text.values(), key=lambda c: (c.repair.rank, _changed_lines(failure, c)))
    return ranked[: _MAX_CANDIDATES - 2] + ranked[_MAX_CANDIDATES - 2 :][-2:]  # retain_graph=True


def _changed_lines(failure: Failure, candidate: Candidate) -> int:
    """Return the number of lines that an edit changes, removes and adds."""
    count = 0
    for path, text in candidate.edits.items():
        source = failure.files.get(path)
        old = [] if source is None else source.text.splitlines()
        changes = difflib.SequenceMatcher(None, old, text.splitlines()).get_opcodes()
        count += sum(max(b - a, d - c) for kind, a, b, c, d in changes if kind != "equal")
    return count


def _compiles(text: str) -> bool:
    try:
        compile(text, "<candidate>", "exec")
        return True
    except (SyntaxError, ValueError):
        return False
