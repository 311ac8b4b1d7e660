"""What is installed: the files of wheel and sdist, and a core that needs PyTorch only."""

import os
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import gradtrace

ROOT = Path(__file__).parents[1]
EXTRAS = (
    "IPython", "anywidget", "ipywidgets", "matplotlib", "networkx", "numpy", "traitlets",
)  # fmt: skip

SOURCES = {
    path.relative_to(ROOT / "src").as_posix()
    for path in (ROOT / "src" / "gradtrace").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the wheel and the sdist, built as pip would."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist"]
    subprocess.run([*command, "-d", folder], cwd=ROOT, check=True, capture_output=True)
    return folder


def test_the_wheel_holds_the_package_and_its_metadata(built):
    (path,) = built.glob("*.whl")
    info = f"gradtrace-{gradtrace.__version__}.dist-info"
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
    assert {
        "gradtrace/py.typed",
        "gradtrace/player/player.js",
        "gradtrace/player/player.css",
    } < SOURCES
    assert {name for name in names if not name.startswith(info)} == SOURCES
    assert f"{info}/licenses/LICENSE" in names
    assert metadata["Version"] == gradtrace.__version__
    assert metadata.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
    always = [need for need in metadata.get_all("Requires-Dist") if "extra ==" not in need]
    assert [need[:5] for need in always] == ["torch"]
    assert {"notebook", "plot"} < set(metadata.get_all("Provides-Extra"))


def test_the_sdist_holds_what_the_wheel_is_built_from(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        names = {member.name.split("/", 1)[1] for member in sdist if member.isfile()}
    beside = {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
    assert names - {".gitignore"} == {f"src/{name}" for name in SOURCES} | beside


FREED_TWICE = """
import torch

def step():
    x = torch.ones(3, requires_grad=True)
    loss = x.exp().sum()
    loss.backward()
    loss.backward()
"""


@pytest.fixture
def run(tmp_path):
    """Run a program with Python's ``options``, as a file, in a folder of its own."""

    def run(program, *options, **environment):
        (tmp_path / "program.py").write_text(program)
        return subprocess.run(
            [sys.executable, *options, "program.py"],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture
def only_torch(tmp_path):
    """An environment without the extras: a module of each one's name, found first, says so."""
    folder = tmp_path / "missing"
    folder.mkdir()
    for name in EXTRAS:
        missing = f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')"
        (folder / f"{name}.py").write_text(missing)
    return {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}


def test_the_core_needs_torch_only(run, only_torch):
    """Watch, explain, snapshot, trace to JSON, draw."""
    program = f"""{FREED_TWICE}
import gradtrace, gradtrace.player.page

with gradtrace.watch(strict=True):
    try:
        step()
    except RuntimeError as error:
        print(error.__notes__[0])
print(gradtrace.snapshot(torch.ones(3, requires_grad=True).exp()))
seen = gradtrace.trace(step)
print(seen.to_json()[:1], gradtrace.player.page.static_html([seen])[:1])
"""
    done = run(program, **only_torch)
    assert done.returncode == 0, done.stderr
    note, *_, last = done.stdout.splitlines()
    assert note.startswith("gradtrace: ")
    assert "Graph(2 nodes" in done.stdout
    assert last == "{ <"


def test_the_command_needs_torch_only(run, only_torch, tmp_path):
    options = ("-m", "gradtrace", "--strict", "--trace", "step", "--json", "found.json")
    done = run(f"{FREED_TWICE}\nstep()\n", *options, **only_torch)
    assert done.returncode == 1
    assert "\ngradtrace: " in done.stderr
    assert '"forward_not_rerun"' in (tmp_path / "found.json").read_text()
    assert (tmp_path / "program.step.html").exists()


@pytest.mark.parametrize(
    ("use", "extra"),
    [
        ("gradtrace.explore", "notebook"),
        ("gradtrace.Player", "notebook"),
        ("gradtrace.trace(step).plot()", "plot"),
    ],
)
def test_a_missing_extra_is_named(run, only_torch, use, extra):
    done = run(f"{FREED_TWICE}\nimport gradtrace\n{use}", **only_torch)
    assert done.stderr.splitlines()[-1].endswith(f"pip install 'gradtrace[{extra}]'")


def test_importing_it_imports_nothing_of_others(run):
    """Neither by itself, nor more than torch does once it is used."""
    done = run(f"""
import sys
def others():
    names = {{name.partition(".")[0] for name in sys.modules}} - sys.stdlib_module_names
    return {{name for name in names if not name.startswith("_sysconfigdata")}}
before = others()
import gradtrace
print(others() - before)
{FREED_TWICE}
before = others()
gradtrace.watch(strict=True).stop()
gradtrace.snapshot(torch.ones(3, requires_grad=True).exp())
gradtrace.trace(step).to_json()
print(others() - before)
""")
    assert done.stdout.splitlines() == ["{'gradtrace'}", "set()"], done.stderr
