"""A finding of a detector: a diagnosis of the family ``silent``."""

from __future__ import annotations

from collections.abc import Collection

from gradtrace.autograd.frames import Location
from gradtrace.explaining.causes import CAUSES, LIKELY
from gradtrace.explaining.diagnosis import Diagnosis


def finding(
    cause: str,
    raised_at: Location | None,
    began_at: Location | None,
    carried_by: str | None = None,
    made_at: Location | None = None,
    facts: Collection[str] = (),
) -> Diagnosis:
    """Return a diagnosis of the family ``silent``, with the first fix whose facts hold."""
    names = {} if carried_by is None else {"it": carried_by}
    fix = next(fix for fix in CAUSES[cause].fixes if set(fix.needs) <= {*facts})
    return Diagnosis(
        "silent",
        cause,
        LIKELY,
        raised_at,
        proven=fix.proof is not None,
        began_at=began_at,
        made_at=made_at,
        advice=fix,
        names=names,
    )
