"""From a failed backward to its cause, the line where it began, and the fix to prefer.

The error's text gives the family.  For each family there is a class of :mod:`gradtrace.evidence`.
The first of the :data:`gradtrace.causes.RULES` whose evidence holds is the cause; of the cause's
fixes the first whose evidence holds is the advice.  An explanation is certain if the cause is, and
if the advice is known to help and to end nobody's training.  Where nothing decides, the cause is
``"unknown"``.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from traceback import walk_tb
from types import FrameType
from typing import Any

import torch

from gradtrace.causes import CAUSES, CERTAIN, LIKELY, RULES, SEEN, UNKNOWN, family_of, told
from gradtrace.diagnosis import Diagnosis
from gradtrace.evidence.base import Evidence, NoEvidence
from gradtrace.evidence.freed import FreedEvidence
from gradtrace.evidence.modified import ModifiedEvidence
from gradtrace.evidence.no_graph import NoGraphEvidence
from gradtrace.frames import Location, is_users, user_frame
from gradtrace.record import BackwardCall, Record

EVIDENCE: dict[str, type[Evidence]] = {
    "freed": FreedEvidence,
    "modified": ModifiedEvidence,
    "no_graph": NoGraphEvidence,
}


def failure(
    record: Record, error: BaseException, outputs: Any, call: BackwardCall | None
) -> Diagnosis | None:
    """Explain ``error``; None when it is not one of autograd's.

    ``outputs`` are what backward was called on and ``call`` is that call; both are None for an
    error that came from elsewhere.
    """
    if not isinstance(error, RuntimeError):  # PyTorch's are; others may quote their texts
        return None
    family, cause = family_of(str(error))
    if family is None:
        return None
    raised_at, frame = _where_raised(error)
    if frame is None or call is not None:
        frame = user_frame(sys._getframe(1))
        raised_at = Location.of(frame) if frame else raised_at
    text = f"{type(error).__name__}: {error}"
    if cause is not None:
        return Diagnosis(family, cause, CERTAIN, raised_at, error=text)
    strict = record.timeline.observed
    unknown = Diagnosis(family, "unknown", UNKNOWN, raised_at, error=text, strict=strict)
    kind = EVIDENCE.get(family)
    if outputs is None or kind is None:
        return unknown
    outputs = (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)
    try:
        evidence = kind(record, outputs, call, raised_at, frame, text)
    except NoEvidence:
        return unknown
    found = decide(family, evidence)
    if found is None:
        return unknown
    several = record.threads > 1  # each counts its own operations: their order may differ
    return replace(found, confidence=LIKELY) if several else found


def decide(family: str, evidence: Evidence) -> Diagnosis | None:
    """By the first rule of the family whose evidence holds, and the first such fix."""
    rule = next((r for r in RULES[family] if all(map(evidence.holds, r.evidence))), None)
    if rule is None:
        return None
    cause = CAUSES[rule.cause]
    fix = next(one for one in cause.fixes if all(map(evidence.holds, one.needs)))
    confidence = rule.confidence
    if confidence == SEEN:
        confidence = CERTAIN if evidence.seen else LIKELY
    proven = fix.proof is not None and all(map(evidence.holds, fix.proof))
    return Diagnosis(
        cause.family or family,
        rule.cause,
        confidence if proven else LIKELY,
        evidence.raised_at,
        began_at=evidence.began_at,
        made_at=evidence.made_at,
        made_through=evidence.made_through,
        error=evidence.error,
        seen=tuple(told(name) for name in (*rule.evidence, *fix.needs)),
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
