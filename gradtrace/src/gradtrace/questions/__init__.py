"""Questions that a player asks before it shows the run; the trace gives the answers.

An author writes the misconception of each wrong choice, never the right answer. A reply says what
the run did at that choice, then quotes the author.
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
from gradtrace.questions.backward_nodes import WhatArrives, WhereItStops, WhichNodeRunsNext
from gradtrace.questions.program import Asked, Program, line_of, place

__all__ = [
    "Asked", "DoesItRaise", "HowManyBytes", "Program", "Question", "WhatArrives", "WhatIsFreedNext",
    "WhereItStops", "WhichGetGradients", "WhichIsTrue", "WhichLineHoldsMost", "WhichLineRaises",
    "WhichNodeRunsNext", "WhichSettings", "WhichTensorGoesNext", "line_of", "place", "raises",
]  # fmt: skip
