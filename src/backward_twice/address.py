"""Write what is derived from the repository's address: ``python -m backward_twice.address [URL]``.

The address stands in one place, ``repository`` in ``_config.yml``.  What can read it there does,
such as the book (``book/_ext/published.py``).  What cannot read anything (README, CITATION.cff, the
issue forms, the first code cell of each notebook) holds text derived from it, which this module
rewrites and ``tests/test_address.py`` holds to it.  Without an address that text is empty, rather
than dead links.  A URL given to it becomes the address.  No torch is needed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
import yaml

CONFIG = "_config.yml"
FIRST_CHAPTER = "notebooks/01_two_networks.ipynb"

_URL = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+)")


@dataclass(frozen=True)
class Address:
    """A repository on GitHub (Colab opens notebooks from nowhere else) and what follows from it.

    >>> address = Address("https://github.com/someone/course", "main", "0.1.0")
    >>> address.site
    'https://someone.github.io/course/'
    >>> address.wheel
    'https://someone.github.io/course/gradtrace-0.1.0-py3-none-any.whl'

    Raises:
        ValueError: ``url`` is not ``https://github.com/OWNER/NAME``.
    """

    url: str
    branch: str
    version: str

    def __post_init__(self) -> None:
        if not _URL.fullmatch(self.url):
            raise ValueError(
                f"{self.url!r} is no address of a repository: give https://github.com/OWNER/NAME"
            )

    @property
    def slug(self) -> str:
        """``OWNER/NAME``."""
        return "/".join(_URL.fullmatch(self.url).groups())

    @property
    def site(self) -> str:
        """Where GitHub Pages serves the repository's site."""
        owner, name = self.slug.split("/")
        root = f"{owner.lower()}.github.io"
        return f"https://{root}/" if name.lower() == root else f"https://{root}/{name}/"

    @property
    def wheel(self) -> str:
        """The package, as the deploy workflow publishes it beside the site."""
        return f"{self.site}gradtrace-{self.version}-py3-none-any.whl"

    def colab(self, path: str) -> str:
        return f"https://colab.research.google.com/github/{self.slug}/blob/{self.branch}/{path}"

    def binder(self, path: str) -> str:
        return f"https://mybinder.org/v2/gh/{self.slug}/{self.branch}?urlpath=lab/tree/{path}"


def read_address(root: Path) -> Address | None:
    """The address in ``root``'s ``_config.yml``, if there is one."""
    repository = yaml.safe_load((root / CONFIG).read_text(encoding="utf-8"))["repository"]
    if not repository["url"]:
        return None
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return Address(repository["url"], repository["branch"], project["version"])


def bootstrap(wheel: str | None) -> str:
    """The notebooks' first code cell: install the package from ``wheel`` where it is missing.

    A wheel beside the site, and not the repository at a fixed revision: a notebook cannot name the
    commit that it is itself part of, site and wheel are always of one commit, and nothing has to be
    built.  ``--no-deps`` keeps pip off torch, numpy and ipywidgets, which Colab brings; it may lack
    anywidget and psygnal.
    """
    missing = (
        f'get_ipython().run_line_magic("pip", "install -q --no-deps anywidget psygnal {wheel}")'
        if wheel
        else 'raise ModuleNotFoundError("install the course\'s package: pip install . in a clone")'
    )
    return (
        "# On Colab, install the course's package; PyTorch and NumPy stay as they are.\n"
        "from importlib.util import find_spec\n\n"
        f'if find_spec("backward_twice") is None:\n    {missing}'
    )


def with_bootstrap(notebook: str, address: Address | None) -> str:
    """A stored notebook with the right bootstrap cell, before its other code, hidden in the book.

    Where the cell is there already, only its source is exchanged: it prints nothing where the
    package is installed, so the notebook stays as executed.
    """
    read = nbformat.reads(notebook, as_version=4)
    source = bootstrap(address and address.wheel)
    first = next(i for i, cell in enumerate(read.cells) if cell.cell_type == "code")
    if read.cells[first].id == "bootstrap":
        if read.cells[first].source == source:
            return notebook
        read.cells[first].source = source
    else:
        cell = nbformat.v4.new_code_cell(source, id="bootstrap", metadata={"tags": ["remove-cell"]})
        read.cells.insert(first, cell)
    return nbformat.writes(read) + "\n"


def _readme(address: Address) -> str:
    tests = f"{address.url}/actions/workflows/deploy.yml"  # on the main branch, after the tests
    colab = "https://colab.research.google.com/assets/colab-badge.svg"
    binder = "https://mybinder.org/badge_logo.svg"
    return (
        f"[![Tests]({tests}/badge.svg)]({tests})\n"
        f"[![Open in Colab]({colab})]({address.colab(FIRST_CHAPTER)})\n"
        f"[![Open in Binder]({binder})]({address.binder(FIRST_CHAPTER)})\n\n"
        f"**[Read it online]({address.site})**"
    )


def _citation(address: Address) -> str:
    return f"repository-code: {address.url}\nurl: {address.site}"


def _issue_links(address: Address) -> str:
    return (
        "contact_links:\n"
        "  - name: My program raises an error\n"
        f"    url: {address.site}notebooks/error_atlas.html\n"
        "    about: The error atlas lists the messages of autograd with their causes and fixes."
    )


# Where such text stands, between two marks.
DERIVED = {
    "README.md": _readme,
    "CITATION.cff": _citation,
    ".github/ISSUE_TEMPLATE/config.yml": _issue_links,
}
_MARKED = re.compile(
    r"(?P<begin>^(#|<!--) derived: make address.*\n)(.*\n)*?(?P<end>^(#|<!--) end derived)", re.M
)


def derived(root: Path) -> Iterator[tuple[Path, str]]:
    """Each file that holds derived text, and what all of it should be."""
    address = read_address(root)
    for name, text_of in DERIVED.items():
        text = f"{text_of(address)}\n" if address else ""
        path = root / name
        before = path.read_text(encoding="utf-8")
        yield path, _MARKED.sub(lambda found, new=text: found["begin"] + new + found["end"], before)
    folders = ("notebooks", "solutions", "exercises")
    for path in sorted(path for name in folders for path in (root / name).rglob("*.ipynb")):
        yield path, with_bootstrap(path.read_text(encoding="utf-8"), address)


def main(arguments: list[str], root: Path = Path()) -> None:
    if arguments:
        url = arguments[0].removesuffix(".git").rstrip("/")
        config = root / CONFIG
        text = config.read_text(encoding="utf-8")
        if url:
            Address(url, "", "")  # refuse a bad one before anything is written
        config.write_text(re.sub(r'^  url: ".*"$', f'  url: "{url}"', text, flags=re.M), "utf-8")
    for path, text in derived(root):
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(root)} rewritten")
    address = read_address(root)
    print(f"The address: {address.url if address else 'none, so no link needs one'}")


if __name__ == "__main__":
    main(sys.argv[1:])
