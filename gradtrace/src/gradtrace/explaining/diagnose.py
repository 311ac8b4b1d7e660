"""Diagnose a failed backward call: its cause, the line where it began, and the best repair.

An explanation is certain if the cause is certain and the advice is proven: it helps, and no
parameter loses its gradient.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from gradtrace.autograd.frames import Location, user_frame
from gradtrace.explaining.causes import CAUSES, CRITERIA, family_of
from gradtrace.explaining.causes.table import CERTAIN, LIKELY, OBSERVED, UNKNOWN, Criterion
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.evidence import function, modified, no_graph, scaler
from gradtrace.explaining.evidence.base import Evidence, NoEvidence, where_raised
from gradtrace.explaining.evidence.reuse import ReuseEvidence
from gradtrace.watching.record import BackwardCall, Record

EVIDENCE: dict[str, type[Evidence]] = {
    "freed": ReuseEvidence,
    "modified": modified.ModifiedEvidence,
    "no_graph": no_graph.NoGraphEvidence,
    "unused_input": no_graph.AskedEvidence,
    "function": function.FunctionEvidence,
}
# The classes by name: the table has one for each cause that the text decides.
CLASSES: dict[str, Any] = vars(function) | vars(modified) | vars(no_graph) | vars(scaler)
# The errors that PyTorch raises outside of a backward pass; the last one is a GradScaler's.
_KINDS = (RuntimeError, AttributeError, TypeError, ValueError, AssertionError)


def failure(
    record: Record,
    error: BaseException,
    outputs: Any,
    inputs: Sequence[Any],
    call: BackwardCall | None,
) -> Diagnosis | None:
    """Return the diagnosis of ``error``, or None if autograd did not raise it."""
    # An exception class of the program may quote PyTorch's texts, but is not autograd's error.
    if type(error).__module__.partition(".")[0] not in ("builtins", "torch"):
        return None
    is_known = isinstance(error, _KINDS if call is None else RuntimeError)
    family, cause = family_of(str(error)) if is_known else (None, None)
    if family is None and call is not None:
        if function.node_that_raised(error) is not None:
            family = "function"
        elif function.raised_again(error):
            family, cause = "unsupported", "checkpoint_raises"
    if family is None:
        return None
    raised_at, frame = where_raised(error)
    if frame is None or call is not None:
        frame = user_frame(function.outside_of_backward(sys._getframe(1)))
        raised_at = Location.of(frame) if frame else raised_at
    outputs = (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs or ())
    facts = record.timeline, outputs, inputs, call, raised_at, frame, error
    try:
        if cause is not None:
            evidence = CLASSES[CAUSES[cause].evidence or "Evidence"](*facts)
            return build_diagnosis(family, Criterion(cause, (), CERTAIN), evidence)
        if not outputs:
            raise NoEvidence
        diagnosis = decide(family, EVIDENCE[family](*facts))
    except NoEvidence:
        if cause is not None:
            return None
        return build_diagnosis(family, Criterion("unknown", (), UNKNOWN), Evidence(*facts))
    if record.threads > 1:  # each thread numbers its own operations, so their order is not known
        return replace(diagnosis, confidence=LIKELY)
    return diagnosis


def decide(family: str, evidence: Evidence) -> Diagnosis:
    """Return the diagnosis by the family's first criterion whose facts hold; the last has none."""
    holding = (c for c in CRITERIA[family] if all(map(evidence.holds, c.facts)))
    return build_diagnosis(family, next(holding), evidence)


def build_diagnosis(family: str, criterion: Criterion, evidence: Evidence) -> Diagnosis:
    """Return a diagnosis with the criterion's cause, and the first fix whose facts hold."""
    cause = CAUSES[criterion.cause]
    fix = next(fix for fix in cause.fixes if all(map(evidence.holds, fix.needs)))
    confidence = criterion.confidence
    if confidence == OBSERVED:
        confidence = CERTAIN if evidence.observed else LIKELY
    proven = fix.is_provable and all(map(evidence.holds, fix.proof or ()))
    if confidence == CERTAIN and not proven:
        confidence = LIKELY
    facts = () if confidence == UNKNOWN else (*criterion.facts, *fix.needs)
    return Diagnosis(
        cause.family or family,
        criterion.cause,
        confidence,
        evidence.raised_at,
        began_at=evidence.began_at,
        began_through=evidence.began_through,
        made_at=evidence.made_at,
        made_through=evidence.made_through,
        stored_at=evidence.stored_at,
        error=evidence.error,
        facts=facts,
        advice=fix,
        proven=proven,
        names=evidence.names,
        strict=evidence.timeline.observed,
    )
