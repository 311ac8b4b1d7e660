"""From a failed backward to its cause, the line where it began, and the fix to prefer.

The error's text gives the family.  For each family there is a class of
:mod:`gradtrace.explaining.evidence`. The first of the :data:`gradtrace.explaining.causes.RULES`
whose evidence holds is the cause; of the cause's fixes the first whose evidence holds is the
advice.  An explanation is certain if the cause is, and if the advice is known to help and to end
nobody's training.  Where nothing decides, the cause is ``"unknown"``.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from traceback import walk_tb
from types import FrameType
from typing import Any

import torch

from gradtrace.autograd.frames import Location, is_users, user_frame
from gradtrace.explaining.causes import (
    CAUSES,
    CERTAIN,
    LIKELY,
    RULES,
    SEEN,
    UNKNOWN,
    Rule,
    family_of,
    told,
)
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.evidence.asked import AskedEvidence
from gradtrace.explaining.evidence.base import Evidence, NoEvidence
from gradtrace.explaining.evidence.freed import FreedEvidence
from gradtrace.explaining.evidence.function import (
    FunctionEvidence,
    NamedEvidence,
    RecomputedEvidence,
    TwiceEvidence,
    node_that_raised,
    outside_of_backward,
)
from gradtrace.explaining.evidence.modified import ModifiedEvidence
from gradtrace.explaining.evidence.no_graph import NoGraphEvidence
from gradtrace.watching.record import BackwardCall, Record

EVIDENCE: dict[str, type[Evidence]] = {
    "freed": FreedEvidence,
    "modified": ModifiedEvidence,
    "no_graph": NoGraphEvidence,
    "unused_input": AskedEvidence,
}
# Of causes that the text decides: what more there is to say.
MORE_ABOUT: dict[str, type[Evidence]] = {
    "once_differentiable": TwiceEvidence,
    "function_backward_failed": NamedEvidence,
    "checkpoint_differs": RecomputedEvidence,
}


def failure(
    record: Record,
    error: BaseException,
    outputs: Any,
    inputs: Sequence[Any],
    call: BackwardCall | None,
) -> Diagnosis | None:
    """Explain ``error``; None when it is not one of autograd's.

    ``outputs`` are what backward was called on, ``inputs`` what it was asked for, and ``call`` is
    that call; None, empty and None for an error that came from elsewhere.
    """
    # Errors of the program's own classes are its own affair, and may quote PyTorch's texts.
    if type(error).__module__.partition(".")[0] not in ("builtins", "torch"):
        return None
    family, cause = family_of(str(error)) if isinstance(error, RuntimeError) else (None, None)
    node = node_that_raised(error) if family is None and call is not None else None
    if family is None and node is None:
        return None
    raised_at, frame = _where_raised(error)
    if frame is None or call is not None:
        frame = user_frame(outside_of_backward(sys._getframe(1)))
        raised_at = Location.of(frame) if frame else raised_at
    outputs = (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs or ())
    text = f"{type(error).__name__}: {error}"
    known = record, outputs, inputs, call, raised_at, frame, text
    if node is not None:
        return decide("function", FunctionEvidence(node, *known))
    assert family is not None
    if cause is not None:
        evidence = MORE_ABOUT.get(cause, Evidence)(*known)
        evidence.exception = error
        return explained(family, Rule(cause, (), CERTAIN), evidence)
    kind = EVIDENCE.get(family) if outputs else None
    found = None
    if kind is not None:
        with contextlib.suppress(NoEvidence):
            found = decide(family, kind(*known))
    if found is None:
        found = explained(family, Rule("unknown", (), UNKNOWN), Evidence(*known))
    elif record.threads > 1:  # each counts its own operations: their order may differ
        found = replace(found, confidence=LIKELY)
    return found


def decide(family: str, evidence: Evidence) -> Diagnosis | None:
    """By the first rule of the family whose evidence holds."""
    rule = next((r for r in RULES[family] if all(map(evidence.holds, r.evidence))), None)
    return None if rule is None else explained(family, rule, evidence)


def explained(family: str, rule: Rule, evidence: Evidence) -> Diagnosis:
    """The cause of the rule, with the first of its fixes whose evidence holds."""
    cause = CAUSES[rule.cause]
    fix = next(one for one in cause.fixes if all(map(evidence.holds, one.needs)))
    confidence = rule.confidence
    if confidence == SEEN:
        confidence = CERTAIN if evidence.seen else LIKELY
    proven = fix.proof is not None and all(map(evidence.holds, fix.proof))
    if confidence == CERTAIN and not proven:
        confidence = LIKELY
    decided = *rule.evidence, *fix.needs
    return Diagnosis(
        cause.family or family,
        rule.cause,
        confidence,
        evidence.raised_at,
        began_at=evidence.began_at,
        made_at=evidence.made_at,
        made_through=evidence.made_through,
        error=evidence.error,
        seen=() if confidence == UNKNOWN else tuple(dict.fromkeys(map(told, decided))),
        advice=fix,
        proven=proven,
        names=evidence.names,
        strict=evidence.timeline.observed,
    )


def _where_raised(error: BaseException) -> tuple[Location | None, FrameType | None]:
    """The innermost line of the user's code in the traceback."""
    found: tuple[Location | None, FrameType | None] = (None, None)
    for frame, line in walk_tb(error.__traceback__):
        if is_users(frame.f_code):
            found = Location(frame.f_code.co_filename, line), frame
    return found
