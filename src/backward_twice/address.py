"""Write texts derived from the repository's address: ``python -m backward_twice.address [URL]``.

The address stands in one place, ``repository`` in ``_config.yml``.  Files that cannot read it (the
READMEs, metadata, issue forms, the first code cell of each notebook) contain text derived from it
(``address.yml``), which this module rewrites.  Without an address that text has no links, so that
none is dead.  A URL argument becomes the address.  Neither torch nor gradtrace is needed.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import nbformat
import yaml

CONFIG = "_config.yml"
FIRST_CHAPTER = "notebooks/00_life_of_a_graph.ipynb"

_URL = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+)")
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.M)


@dataclass(frozen=True)
class Address:
    """A GitHub repository (Colab requires GitHub), and the addresses that follow from it.

    Raises:
        ValueError: ``url`` is not ``https://github.com/OWNER/NAME``.
    """

    url: str
    branch: str
    versions: Mapping[str, str]  # of the distributions, by the names of their wheels

    def __post_init__(self) -> None:
        if not _URL.fullmatch(self.url):
            raise ValueError(
                f"{self.url!r} is not the address of a repository: give https://github.com/OWNER/NAME"
            )

    @property
    def slug(self) -> str:
        """``OWNER/NAME``."""
        return "/".join(_URL.fullmatch(self.url).groups())

    @property
    def site(self) -> str:
        """The address at which GitHub Pages serves the repository's site."""
        owner, name = self.slug.split("/")
        root = f"{owner.lower()}.github.io"
        return f"https://{root}/" if name.lower() == root else f"https://{root}/{name}/"

    @property
    def wheels(self) -> tuple[str, ...]:
        """The addresses of the packages that the deploy workflow publishes beside the site."""
        return tuple(
            f"{self.site}{name}-{version}-py3-none-any.whl"
            for name, version in self.versions.items()
        )

    def colab(self, path: str) -> str:
        return f"https://colab.research.google.com/github/{self.slug}/blob/{self.branch}/{path}"

    def binder(self, path: str) -> str:
        return f"https://mybinder.org/v2/gh/{self.slug}/{self.branch}?urlpath=lab/tree/{path}"


def read_address(root: Path) -> Address | None:
    """Return the address in ``root``'s ``_config.yml``, if there is one."""
    repository = yaml.safe_load((root / CONFIG).read_text(encoding="utf-8"))["repository"]
    if not repository["url"]:
        return None
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tool = (root / "gradtrace/src/gradtrace/__init__.py").read_text(encoding="utf-8")
    versions = {"gradtrace": _VERSION.search(tool)[1], "backward_twice": project["version"]}
    return Address(repository["url"], repository["branch"], versions)


def bootstrap(wheels: Iterable[str]) -> str:
    """Return the notebooks' first code cell, which installs missing packages from ``wheels``.

    The wheels are those published with the site, because a notebook cannot name its own commit.
    ``--no-deps`` prevents pip from replacing Colab's torch, numpy and ipywidgets; anywidget and
    psygnal may be missing there.  Without wheels the cell says what to do.
    """
    named = " ".join(wheels)
    lacking = "anywidget psygnal"
    missing = (
        f'get_ipython().run_line_magic("pip", "install -q --no-deps {lacking} {named}")'
        if named
        else 'raise ModuleNotFoundError("in a clone of the course: pip install ./gradtrace .")'
    )
    return (
        "# On Colab, install the course's packages; PyTorch and NumPy stay as they are.\n"
        "from importlib.util import find_spec\n\n"
        f'if find_spec("backward_twice") is None:\n    {missing}'
    )


def with_bootstrap(notebook: str, address: Address | None) -> str:
    """Return a notebook with the bootstrap cell before its other code, hidden in the book."""
    read = nbformat.reads(notebook, as_version=4)
    source = bootstrap(address.wheels if address else ())
    first = next(i for i, cell in enumerate(read.cells) if cell.cell_type == "code")
    if read.cells[first].id == "bootstrap":
        if read.cells[first].source == source:
            return notebook
        # It prints nothing if the package is installed, so the stored outputs stay right.
        read.cells[first].source = source
    else:
        cell = nbformat.v4.new_code_cell(source, id="bootstrap", metadata={"tags": ["remove-cell"]})
        read.cells.insert(first, cell)
    return nbformat.writes(read) + "\n"


DERIVED = yaml.safe_load(Path(__file__).with_suffix(".yml").read_text(encoding="utf-8"))
_MARKED = re.compile(
    r"(?P<begin>^(#|<!--) derived: make address(?: \((?P<name>\w+)\))?(?: -->)?\n)"
    r"(.*\n)*?(?P<end>^(#|<!--) end derived)",
    re.M,
)


def _filled(text: str, address: Address, file_name: str) -> str:
    return text.format(
        url=address.url,
        site=address.site,
        branch=address.branch,
        colab=address.colab(FIRST_CHAPTER),
        binder=address.binder(FIRST_CHAPTER),
        folder=file_name.removesuffix(Path(file_name).name),
    )


def derived(root: Path) -> Iterator[tuple[Path, str]]:
    """Return the files that contain derived text, each with the content that it should have."""
    address = read_address(root)
    for file_name, texts in DERIVED.items():
        content = (root / file_name).read_text(encoding="utf-8")
        for mark in reversed([*_MARKED.finditer(content)]):
            text = _filled(texts[mark["name"] or ""], address, file_name) if address else ""
            content = content[: mark.end("begin")] + text + content[mark.start("end") :]
        yield root / file_name, content
    folders = ("notebooks", "solutions", "exercises")
    for path in sorted(path for name in folders for path in (root / name).rglob("*.ipynb")):
        yield path, with_bootstrap(path.read_text(encoding="utf-8"), address)


def main(arguments: list[str], root: Path = Path()) -> None:
    if arguments:
        url = arguments[0].removesuffix(".git").rstrip("/")
        config = root / CONFIG
        text = config.read_text(encoding="utf-8")
        if url:
            Address(url, "", {})  # refuse a bad one before anything is written
        config.write_text(re.sub(r'^  url: ".*"$', f'  url: "{url}"', text, flags=re.M), "utf-8")
    for path, text in derived(root):
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(root)} rewritten")
    address = read_address(root)
    print(f"The address: {address.url if address else 'none, so no link needs one'}")


if __name__ == "__main__":
    main(sys.argv[1:])
