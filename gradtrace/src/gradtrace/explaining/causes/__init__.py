"""The table of causes: the failures of a graph, the facts that entail them, and the texts.

The text of an error gives its *family*. Within a family the first of its :data:`CRITERIA` whose
facts hold gives the *cause*. Each fact has a name and, in ``texts.toml``, a sentence;
:mod:`gradtrace.explaining.evidence` and :mod:`gradtrace.explaining.silent` establish it. The
documentation of families, causes and the JSON report is generated from this package, which
therefore needs no PyTorch.
"""

from gradtrace.explaining.causes import freed, modified, no_graph, silent, unsupported
from gradtrace.explaining.causes.errors import PATTERNS, family_of, read_table

__all__ = ["CAUSES", "CRITERIA", "FACTS", "FAMILIES", "KEYS", "PATTERNS", "SCHEMA", "family_of"]

SCHEMA = 1  # of the JSON report

FAMILIES, FACTS, KEYS = (read_table("texts")[name] for name in ("families", "facts", "keys"))

_MODULES = (freed, modified, no_graph, unsupported, silent)

# Of each family the first criterion whose facts hold gives the cause.
CRITERIA = {family: criteria for module in _MODULES for family, criteria in module.CRITERIA.items()}

CAUSES = {cause.name: cause for module in _MODULES for cause in module.CAUSES}
