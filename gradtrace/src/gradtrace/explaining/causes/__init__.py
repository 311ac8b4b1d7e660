"""The table of causes: what can go wrong with a graph, the facts that decide, and the texts.

An error's text gives its *family*.  Within a family the first of its :data:`RULES` whose evidence
holds names the *cause*.  Evidence has a name and a sentence in
:mod:`gradtrace.explaining.causes.facts`; :mod:`gradtrace.explaining.evidence` and
:mod:`gradtrace.explaining.silent` gather it.  The documentation of families, causes and the JSON
report is generated from this package, which therefore needs no PyTorch.
"""

from gradtrace.explaining.causes import freed, modified, no_graph, silent, unsupported
from gradtrace.explaining.causes.errors import FAMILIES, PATTERNS, family_of
from gradtrace.explaining.causes.facts import EVIDENCE, told
from gradtrace.explaining.causes.table import CERTAIN, LIKELY, SEEN, UNKNOWN, Cause, Fix, Rule

__all__ = [
    "CAUSES", "CERTAIN", "EVIDENCE", "FAMILIES", "KEYS", "LIKELY", "PATTERNS", "RULES", "SCHEMA",
    "SEEN", "UNKNOWN", "Cause", "Fix", "Rule", "family_of", "told",
]  # fmt: skip

SCHEMA = 1  # of the JSON report

# What the keys of the JSON report mean.
KEYS = {
    "schema": "number of this contract; it grows when a key changes its meaning or goes",
    "torch": "version of PyTorch; null when the program never imported it",
    "family": "one of the families below; null when no error of autograd ended the program",
    "cause": "one of the causes below",
    "confidence": f'"{CERTAIN}", "{LIKELY}" or "{UNKNOWN}"',
    "raised_at": "file and line of the program that raised",
    "began_at": "file and line where it began: the backward that freed, the write, the cut",
    "made_at": "file and line that made what both need",
    "made_through": "the calls of the program that led to that line, innermost first",
    "carried_by": "the variables or attributes that carried it there",
    "error": "type and text of the error that ended the program",
    "explanation": "what went wrong, in a sentence",
    "seen": "what decided, in sentences",
    "fix": "what to do about it",
    "otherwise": "what to try next, where the fix is not known to help and to harm nothing",
    "warnings": "findings of the family silent, each with the keys above",
}

_MODULES = (freed, modified, no_graph, unsupported, silent)

# For each family, in this order: the first rule whose evidence holds.
RULES = {family: rules for module in _MODULES for family, rules in module.RULES.items()}

CAUSES = {cause.name: cause for module in _MODULES for cause in module.CAUSES}
