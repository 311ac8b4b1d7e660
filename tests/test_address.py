"""The repository's address stands in one place, and all that is derived from it follows."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml

from backward_twice import address as module
from backward_twice.address import Address, bootstrap, derived, main, read_address

ROOT = Path(__file__).parents[1]
FORK = "https://github.com/Somebody/a-fork"
DOCUMENTS = [ROOT / name for name in module.DERIVED]


@pytest.fixture
def copy(tmp_path):
    """What a fork has: everything that the address is derived into, and the book."""
    for folder in ("book", "notebooks", "solutions", "exercises", "src", "gradtrace", ".github"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for name in (
        "_config.yml",
        "pyproject.toml",
        "index.md",
        "README.md",
        "CITATION.cff",
        "LICENSE",
    ):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_documents_are_as_derived(path):
    assert path.read_text(encoding="utf-8") == dict(derived(ROOT))[path], "run `make address`"


def test_the_notebooks_are_as_derived():
    for path, text in derived(ROOT):
        assert path.read_text(encoding="utf-8") == text, "run `make address`"


def test_a_fork_changes_one_line(copy):
    main([""], copy)
    without = {path: path.read_text(encoding="utf-8") for path, _ in derived(copy)}
    main([f"{FORK}.git"], copy)
    config = (copy / "_config.yml").read_text(encoding="utf-8")
    assert f'\n  url: "{FORK}"\n' in config
    for path, text in derived(copy):
        assert path.read_text(encoding="utf-8") == text
        changed = FORK in text or "somebody.github.io/a-fork/" in text
        assert changed, f"{path.name} has nothing of the address"
        assert FORK not in without[path]
    main([""], copy)
    assert {path: path.read_text(encoding="utf-8") for path, _ in derived(copy)} == without


def test_another_address_leaves_the_outputs_alone(copy):
    main([""], copy)
    path = next((copy / "notebooks").glob("*.ipynb"))
    before = nbformat.read(path, as_version=4)
    main([FORK], copy)
    after = nbformat.read(path, as_version=4)
    assert [c.get("outputs") for c in after.cells] == [c.get("outputs") for c in before.cells]
    changed = [a.id for a, b in zip(after.cells, before.cells, strict=True) if a != b]
    assert changed == ["bootstrap"]


@pytest.mark.parametrize(
    "url", ["https://github.com/only-owner", "git@github.com:a/b", "https://gitlab.com/a/b"]
)
def test_what_is_no_address_is_refused(copy, url):
    before = (copy / "_config.yml").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match=r"give https://github\.com/OWNER/NAME"):
        main([url], copy)
    assert (copy / "_config.yml").read_text(encoding="utf-8") == before


def test_a_site_of_its_own_has_no_folder():
    assert Address("https://github.com/Me/me.github.io", "main", {}).site == (
        "https://me.github.io/"
    )


class Shell:
    """Stands in for IPython and notes what pip is told."""

    def __init__(self):
        self.told = []

    def run_line_magic(self, name, line):
        self.told.append(f"{name} {line}")


def test_the_bootstrap_installs_the_packages_only_and_only_where_they_are_missing(monkeypatch):
    shell = Shell()
    source = bootstrap(["tool.whl", "course.whl"])
    exec(source, {"get_ipython": lambda: shell})
    assert shell.told == []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    exec(source, {"get_ipython": lambda: shell})
    assert shell.told == ["pip install -q --no-deps anywidget psygnal tool.whl course.whl"]
    with pytest.raises(ModuleNotFoundError, match=r"pip install \./gradtrace \."):
        exec(bootstrap(()), {})


def test_the_urls_of_the_tool_are_metadata(copy):
    """In the table ``[project.urls]``, and nothing after it becomes part of that table."""
    main([""], copy)
    pyproject = copy / "gradtrace" / "pyproject.toml"
    before = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    assert "urls" not in before["project"]
    main([FORK], copy)
    after = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    urls = after["project"].pop("urls")
    assert urls["Source"] == FORK
    assert after == before


def test_the_wheels_are_named_as_they_are_built(copy):
    main([FORK], copy)
    init = copy / "gradtrace" / "src" / "gradtrace" / "__init__.py"
    text = re.sub('__version__ = ".*"', '__version__ = "7.8.9"', init.read_text(encoding="utf-8"))
    init.write_text(text, encoding="utf-8")
    for folder in (copy / "gradtrace", copy):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", copy / "built"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    address = read_address(copy)
    built = {f"{address.site}{path.name}" for path in (copy / "built").iterdir()}
    assert set(address.wheels) == built
    assert f"{address.site}gradtrace-7.8.9-py3-none-any.whl" in built


@pytest.mark.early
def test_the_published_site_of_a_fork(copy):
    """Built under another name, without a warning: links, canonical addresses, 404 page."""
    main([FORK], copy)
    address = read_address(copy)
    command = ["build", ".", "--toc", "book/_toc.yml", "-n", "-W", "--keep-going", "-q"]
    build = subprocess.run(
        [Path(sys.executable).with_name("jupyter-book"), *command],
        cwd=copy,
        capture_output=True,
        text=True,
    )
    assert build.returncode == 0, build.stderr
    site = copy / "_build" / "html"
    chapter = (site / "notebooks" / "01_two_networks.html").read_text(encoding="utf-8")
    assert address.colab("notebooks/01_two_networks.ipynb") in chapter
    assert address.binder("notebooks/01_two_networks.ipynb") in chapter
    page = f"{address.site}notebooks/01_two_networks.html"
    assert f'<link rel="canonical" href="{page}"' in chapter
    assert f'<meta property="og:url" content="{page}"' in chapter
    landing = (site / "index.html").read_text(encoding="utf-8")
    assert '<meta property="og:description" content="&quot;Trying to backward' in landing
    assert 'find_spec("backward_twice")' not in chapter  # the bootstrap cell is Colab's business
    lost = (site / "404.html").read_text(encoding="utf-8")
    assert f'href="{address.site}_static/styles.css' in lost
    assert f'action="{address.site}search.html"' in lost
    for link in ('href="_static', 'href="book/', 'src="_static', '="./'):
        assert link not in lost


def test_without_an_address_nothing_points_anywhere():
    """`make test` has built the site; the repository's own address may be set by now."""
    if read_address(ROOT):
        pytest.skip("this repository has an address")
    site = ROOT / "_build" / "html"
    chapter = (site / "notebooks" / "01_two_networks.html").read_text(encoding="utf-8")
    assert "mybinder.org" not in chapter
    assert "canonical" not in chapter


def test_nothing_is_published_whose_notebooks_lack_the_address(copy):
    """The deploy workflow's own step, in a fork before and after it commits its address."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/deploy.yml").read_text(encoding="utf-8"))
    step = next(s for s in workflow["jobs"]["build"]["steps"] if "address" in s.get("name", ""))
    shutil.copy(ROOT / "Makefile", copy)
    (copy / ".venv").symlink_to(sys.prefix)
    (copy / "requirements.txt").touch()
    os.utime(copy / "requirements.txt", (0, 0))  # older than what is installed
    (copy / ".gitignore").write_text(".venv\n")
    owner, name = FORK.split("/")[-2:]
    environment = os.environ | {
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": f"{owner}/{name}",
        "PYTHONPATH": str(ROOT / "src"),
    }

    def git(*words):
        identity = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
        subprocess.run(["git", *identity, *words], cwd=copy, check=True, capture_output=True)

    def publish():
        return subprocess.run(
            ["bash", "-e", "-c", step["run"]], cwd=copy, env=environment,
            capture_output=True, text=True,
        )  # fmt: skip

    git("init")
    git("add", ".")
    git("commit", "-m", "a fork")
    refused = publish()
    assert refused.returncode == 1, refused.stderr
    assert f"make address URL={FORK}" in refused.stdout
    git("commit", "-am", "its address")
    assert publish().returncode == 0
