"""The API reference, from the docstrings, in an environment without torch.

Everything that building the book does not install is mocked.  Names of other libraries stay plain
text: linking them would take their inventories from the network.
"""

import importlib
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.ext.autodoc import FunctionDocumenter
from sphinx.ext.autodoc.mock import _MockObject, mock
from sphinx.util.inspect import signature as signature_of
from sphinx.util.inspect import stringify_signature
from sphinx.util.typing import stringify_annotation

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "src", ROOT / "gradtrace" / "src")
PACKAGES = ("gradtrace", "backward_twice")


def union(mocked: _MockObject, other: object) -> str:
    """Return a union with a mocked class, as an annotation; Sphinx mocks no operators."""
    return f"{mocked!r} | {stringify_annotation(other)}"


def import_public_names(app: Sphinx) -> None:
    """Import all public names, and ignore unresolved references to other names."""
    _MockObject.__or__ = union
    public = []
    with mock(app.config.autodoc_mock_imports):
        for package in map(importlib.import_module, PACKAGES):
            for name in package.__all__:
                getattr(package, name)  # gradtrace imports a public name at its first use
                public.append(rf"{package.__name__}\.(.+\.)?{name}")
    app.config.nitpick_ignore_regex = [("py:.+", rf"(?!({'|'.join(public)})$).+")]


def own_signature(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: dict,
    signature: str | None,
    returns: str | None,
) -> tuple[str, None] | None:
    """Show the signature of ``__init__``, not that of a mocked base class's ``__new__``."""
    if what != "class" or "__init__" not in vars(obj):
        return None
    constructor = signature_of(obj.__init__, bound_method=True)
    text = stringify_signature(
        constructor, show_return_annotation=False, unqualified_typehints=True
    )
    # The default "<factory>" is not Python: Sphinx shows such a signature as it is, with every "~".
    return re.sub(r"~[\w.]+\.", "", text) if "<factory>" in text else text, None


def skip_tuple_fields(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: dict
) -> bool | None:
    """Skip the fields of a NamedTuple, because its docstring describes them."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def setup(app: Sphinx) -> None:
    sys.path[:0] = map(str, SOURCES)
    app.setup_extension("sphinx.ext.napoleon")  # and so autodoc
    app.config.autodoc_mock_imports = ["anywidget", "ipywidgets", "matplotlib", "torch"]
    app.config.autodoc_member_order = "groupwise"
    app.config.napoleon_attr_annotations = False  # the signature has them
    FunctionDocumenter.member_order = 0  # functions before classes
    app.connect("builder-inited", import_public_names)
    app.connect("autodoc-process-signature", own_signature)
    app.connect("autodoc-skip-member", skip_tuple_fields)
