"""The table of causes: the failures of a graph, the facts that entail them, and the texts.

The text of an error gives its *family*. Within a family the first of its :data:`CRITERIA` whose
facts hold gives the *cause*. Each fact has a name and, in ``facts.toml``, a sentence;
:mod:`gradtrace.explaining.evidence` and :mod:`gradtrace.explaining.silent` establish it. The
documentation of families, causes and the JSON report is generated from this package, which
therefore needs no PyTorch.
"""

import tomllib
from pathlib import Path

from gradtrace.explaining.causes import freed, modified, no_graph, silent, unsupported
from gradtrace.explaining.causes.errors import FAMILIES, PATTERNS, family_of
from gradtrace.explaining.causes.table import (
    CERTAIN,
    LIKELY,
    OBSERVED,
    UNKNOWN,
    Cause,
    Criterion,
    Fix,
)

__all__ = [
    "CAUSES", "CERTAIN", "CRITERIA", "FACTS", "FAMILIES", "KEYS", "LIKELY", "OBSERVED", "PATTERNS",
    "SCHEMA", "UNKNOWN", "Cause", "Criterion", "Fix", "family_of",
]  # fmt: skip

SCHEMA = 1  # of the JSON report

# What the keys of the JSON report mean.
KEYS = {
    "schema": "number of this contract; it grows when a key is removed or changes its meaning",
    "torch": "version of PyTorch; null when the program never imported it",
    "family": "one of the families below; null when no error of autograd ended the program",
    "cause": "one of the causes below",
    "confidence": f'"{CERTAIN}", "{LIKELY}" or "{UNKNOWN}"',
    "raised_at": "file and line of the program that raised",
    "began_at": "file and line where the failure began: the backward call that freed the graph, the"
    " in-place change, or the line that detached a tensor",
    "made_at": "file and line that computed the tensor involved",
    "made_through": "the calls of the program that led to that line, innermost first",
    "carried_by": "the variables or attributes that hold the tensor",
    "error": "type and text of the error that ended the program",
    "explanation": "what went wrong, in a sentence",
    "facts": "the names of the facts that decided",
    "seen": "these facts, in sentences",
    "fix": "what to change in the program",
    "otherwise": "the alternative to try next, where the fix is not proven",
    "warnings": "findings of the family silent, each with the keys above",
}

FACTS = tomllib.loads(Path(__file__).with_name("facts.toml").read_text(encoding="utf-8"))

_MODULES = (freed, modified, no_graph, unsupported, silent)

# Of each family the first criterion whose facts hold gives the cause.
CRITERIA = {family: criteria for module in _MODULES for family, criteria in module.CRITERIA.items()}

CAUSES = {cause.name: cause for module in _MODULES for cause in module.CAUSES}
