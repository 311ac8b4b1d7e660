"""The rules of repair, by what they edit, and the candidates that they yield.

The diagnosis only says which kinds are tried first.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable

from gradtrace.repair.repairs import RETAIN_GRAPH
from gradtrace.repair.rule import Candidate, Rule, Scene
from gradtrace.repair.rules import in_place, losses, requires_grad, state, switches
from gradtrace.repair.run.observations import Run

RULES: tuple[Rule, ...] = (
    *state.RULES,
    *losses.RULES,
    *in_place.RULES,
    *switches.RULES,
    *requires_grad.RULES,
)
MOST = 40  # candidates that are run


def candidates(run: Run, say: Callable[[str], None]) -> list[Candidate]:
    """The candidates for the run of a program that failed, best first, each text once.

    A rule that fails at what it has never met costs its own candidates only; it is said.
    """
    scene = Scene(run)
    cause = scene.diagnosis.get("cause", "")
    found: dict[tuple[tuple[str, str], ...], Candidate] = {}
    for rule in RULES:
        try:
            for one in rule(scene):
                if all(map(_makes_sense, one.edits.values())):
                    found.setdefault(tuple(sorted(one.edits.items())), one)
        except Exception as error:
            say(f"no more candidates of {rule.__name__}: {type(error).__name__}: {error}")
    ranked = sorted(
        found.values(),
        key=lambda one: (
            one.repair.first_for.get(cause, math.inf),
            one.repair.rank,
        ),
    )
    usual = [one for one in ranked if one.repair == RETAIN_GRAPH][:2]
    return [one for one in ranked if one not in usual][: MOST - len(usual)] + usual


def _makes_sense(text: str) -> bool:
    """Whether it is Python, and calls no method of tensors on a number or a module."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    modules = {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    receivers = (
        node.func.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("clone", "detach", "item")
        and not node.args
    )
    return not any(_is_no_tensor(one, modules) for one in receivers)


def _is_no_tensor(receiver: ast.expr, modules: set[str]) -> bool:
    if isinstance(receiver, ast.UnaryOp):
        receiver = receiver.operand
    path = ast.unparse(receiver)
    is_path = isinstance(receiver, ast.Name | ast.Attribute) and "(" not in path
    return isinstance(receiver, ast.Constant) or (is_path and path.partition(".")[0] in modules)
