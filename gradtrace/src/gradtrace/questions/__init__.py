"""What a player asks before it shows: the answer computed from the trace, a reply to each choice.

An author names what may be chosen and what a wrong choice *believes*; nobody types what is right.
:class:`WhichLineRaises` and its siblings are such questions.  Put to a :class:`Program` they become
a :class:`Question`: plain data for the front end, with the right choices taken from the trace and a
reply to every choice.  A reply begins with what the run did at that choice, always from the trace;
what the author wrote follows it.
"""

from gradtrace.player.prompt import Question
from gradtrace.questions.answered import (
    DoesItRaise,
    HowManyBytes,
    WhatIsFreedNext,
    WhichGetGradients,
    WhichIsTrue,
    WhichLineHoldsMost,
    WhichLineRaises,
    WhichSettings,
    WhichTensorGoesNext,
    raises,
)
from gradtrace.questions.inside import WhatArrives, WhereItStops, WhichNodeRunsNext
from gradtrace.questions.program import Asked, Program, line_of, place

__all__ = [
    "Asked",
    "DoesItRaise",
    "HowManyBytes",
    "Program",
    "Question",
    "WhatArrives",
    "WhatIsFreedNext",
    "WhereItStops",
    "WhichGetGradients",
    "WhichIsTrue",
    "WhichLineHoldsMost",
    "WhichLineRaises",
    "WhichNodeRunsNext",
    "WhichSettings",
    "WhichTensorGoesNext",
    "line_of",
    "place",
    "raises",
]
