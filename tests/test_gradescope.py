"""The zip for Gradescope, unpacked and run as Gradescope runs it: as root, in a container.

The container is bubblewrap's, with the capabilities that Docker gives one, this machine's Python
and nothing else of its files.  ``setup.sh`` finds an environment there and installs nothing.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import nbformat
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import backward_twice
from backward_twice.grading import GradingError
from backward_twice.grading import gradescope as gradescope_command
from backward_twice.grading.judging.master import parsed
from backward_twice.grading.platforms.gradescope import autograder
from backward_twice.grading.platforms.gradescope.archive import contents, is_shipped, write
from backward_twice.misconceptions import misconceptions

ROOT = Path(__file__).parent.parent
EXERCISE = "two_losses"
SECONDS = 5

# What Docker leaves to root in a container.
DOCKER = (
    *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW"),
    *("CAP_SETGID", "CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE"),
    *("CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE"),
)


def _as_root():
    """The words before a command that make it root's, or why there are none."""
    if sys.platform != "linux" or shutil.which("bwrap") is None:
        return "bubblewrap is missing, which plays Gradescope's container"
    if os.geteuid() == 0:
        return []
    sudo = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False)
    return ["sudo", "-n"] if sudo.returncode == 0 else "Gradescope runs as root; this is not root"


@pytest.fixture(scope="module")
def as_root():
    try:
        found = _as_root()
    except FileNotFoundError:
        found = "Gradescope runs as root; this is not root, and sudo is missing"
    if isinstance(found, str):
        (pytest.fail if os.environ.get("SANDBOX") == "required" else pytest.skip)(found)
    return found


def _shown(path):
    """Arguments that show the folder ``path``, its parents open to every user."""
    for parent in reversed(path.parents[:-1]):
        yield from ("--perms", "0755", "--dir", str(parent))
    yield from ("--ro-bind", str(path), str(path))


def _installed(requirements):
    """The distributions that these requirements bring, by those that are installed here."""
    found, todo = set(), [(Requirement(line), "") for line in requirements]
    while todo:
        wanted, extra = todo.pop()
        if wanted.marker and not wanted.marker.evaluate({"extra": extra}):
            continue
        key = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if key in found:
            continue
        found.add(key)
        try:
            more = metadata.requires(wanted.name) or []
        except metadata.PackageNotFoundError:
            continue
        todo += [(Requirement(line), e) for line in more for e in ("", *wanted.extras)]
    return {name for name, _ in found}


class Gradescope:
    """An image built from a zip, and containers started from it."""

    def __init__(self, archive, folder, as_root):
        self.as_root = as_root
        self.folder = folder
        self.source = folder / "source"
        with zipfile.ZipFile(archive) as found:
            found.extractall(self.source)
        self._environment()

    def _environment(self):
        """What the first half of setup.sh makes: a Python, and what requirements.txt brings."""
        place = self.folder / "opt" / "backward-twice"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
        [packages] = place.glob("lib/python*/site-packages")
        here = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
        there = _installed((self.source / "requirements.txt").read_text().splitlines())
        absent = {
            name
            for name, brought_by in metadata.packages_distributions().items()
            if not there & set(map(canonicalize_name, brought_by))
        } - {"backward_twice", "gradtrace"}
        assert {"anywidget", "distributed", "ipywidgets", "matplotlib", "nbgrader"} <= absent
        hide = f"import sys; sys.modules.update(dict.fromkeys({sorted(absent)}))"
        (packages / "tests.pth").write_text("\n".join([hide, *sorted(here)]))

    def command(self, *command, binds=(), capabilities=DOCKER):
        here = {sys.base_prefix, *(sysconfig.get_path(n) for n in ("purelib", "platlib"))}
        links = []
        for name in ("bin", "sbin", "lib", "lib64"):
            path = Path("/", name)
            if path.is_symlink():
                links += ["--symlink", str(path.readlink()), str(path)]
            elif path.exists():
                links += ["--ro-bind", str(path), str(path)]
        arguments = [
            *(*self.as_root, "bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-net"),
            *("--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"),
            *(word for name in capabilities for word in ("--cap-add", name)),
            *("--setenv", "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            *("--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", *links),
            *("--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp"),
            *(word for path in sorted(here) for word in _shown(Path(path))),
            *("--bind", str(self.folder / "opt"), "/opt", "--perms", "0777"),
            *("--dir", "/autograder"),
            *("--bind", str(self.source), "/autograder/source"),
            *(word for at, path in binds for word in ("--bind", str(path), at)),
            *("--chdir", "/autograder", *command),
        ]
        return subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False)

    def setup(self, **how):
        return self.command("bash", "/autograder/source/setup.sh", **how)

    def contents(self):
        """What the image's own folders hold, file by file."""
        ours = "find /autograder/source /opt/backward-twice ! -path '*/__pycache__*' -type f"
        return self.command("sh", "-c", f"{ours} -exec md5sum {{}} + | sort").stdout

    def submit(self, folder, files, binds=(), before="", **how):
        """Hand in files, by name; what results.json then holds, and what was printed."""
        submission, results = folder / "submission", folder / "results"
        for path in (submission, results):
            path.mkdir()
            path.chmod(0o777)
        for name, content in files.items():
            (submission / name).write_text(content)
        run = f"{before} exec sh /autograder/source/run_autograder"
        mine = [("/autograder/submission", submission), ("/autograder/results", results)]
        ran = self.command("sh", "-c", run, binds=[*mine, *binds], **how)
        printed = ran.stdout + ran.stderr
        found = self.command("cat", "/autograder/results/results.json", binds=mine).stdout
        return json.loads(found), printed


@pytest.fixture(scope="module")
def gradescope(as_root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gradescope")
    archive = write(EXERCISE, ROOT, folder, limits={"seconds": SECONDS})
    found = Gradescope(archive, folder, as_root)
    ran = found.setup()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "the solution has all 3 points" in ran.stdout
    yield found
    if as_root:
        subprocess.run([*as_root, "rm", "-rf", str(folder)], check=True)


def _solution():
    return (ROOT / "solutions" / EXERCISE / f"{EXERCISE}.ipynb").read_text()


def _exercise():
    return (ROOT / "exercises" / EXERCISE / f"{EXERCISE}.ipynb").read_text()


def _with(**sources):
    """The solution, with the sources of some answer cells exchanged."""
    notebook = nbformat.reads(_solution(), as_version=4)
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "").removeprefix("answer-")
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = sources.get(name.replace("-", "_"), cell.source)
    return nbformat.writes(notebook)


def _scores(result):
    assert result["score"] == sum(test["score"] for test in result.get("tests", []))
    return [test["score"] for test in result.get("tests", [])]


def test_the_solution_has_all_points(gradescope, tmp_path):
    result, _ = gradescope.submit(tmp_path, {f"{EXERCISE}.ipynb": _solution()})
    assert _scores(result) == [2, 1]
    assert [test["max_score"] for test in result["tests"]] == [2, 1]
    assert [test["status"] for test in result["tests"]] == ["passed", "passed"]
    assert result["tests"][0]["name"] == "Repair the update (one_update)"
    assert "✓ right: weight of the head a" in result["tests"][0]["output"]
    assert result["output"] == "3 of 3 points."


def test_what_cells_import_is_there(gradescope):
    """Of every exercise; the environment of the image holds what the zip names, and no more."""
    lines = {"import torch; torch.ones(1).numpy()"}
    for path in (ROOT / "solutions").glob("*/*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code" and cell.id != "bootstrap":
                found = ast.walk(parsed(cell.source))
                lines |= {
                    ast.unparse(n) for n in found if isinstance(n, ast.Import | ast.ImportFrom)
                }
    assert len(lines) > 10
    program = "\n".join(sorted(lines))
    ran = gradescope.command("/opt/backward-twice/bin/python", "-P", "-c", program)
    assert ran.returncode == 0, ran.stderr


def test_nothing_of_ours_is_asked_of_a_registry(gradescope):
    """Somebody else may have taken the name there."""
    needs = (gradescope.source / "requirements.txt").read_text().splitlines()
    assert not {"gradtrace", "backward-twice"} & _installed(needs)


def test_the_untouched_exercise_has_none(gradescope, tmp_path):
    result, _ = gradescope.submit(tmp_path, {f"{EXERCISE}.ipynb": _exercise()})
    assert _scores(result) == [0, 0]
    assert "a second time" in result["tests"][0]["output"]
    assert "not written yet" in result["tests"][1]["output"]


def test_a_wrong_answer_costs_its_own_points(gradescope, tmp_path):
    [wrong] = [m for m in misconceptions("two_losses.one_update") if m.name == "detach_the_output"]
    files = {f"{EXERCISE}.ipynb": _with(one_update=wrong.source)}
    result, _ = gradescope.submit(tmp_path, files)
    assert _scores(result) == [0, 1]
    assert "✗ wrong: weight of the trunk's first layer" in result["tests"][0]["output"]


def test_a_notebook_of_another_name_counts_if_it_is_the_only_one(gradescope, tmp_path):
    files = {"my work.ipynb": _solution(), "timestamp.txt": "2025-01-01 00:00:00 UTC"}
    result, _ = gradescope.submit(tmp_path, files)
    assert _scores(result) == [2, 1]
    assert "named my work.ipynb instead of two_losses.ipynb" in result["output"]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"a.ipynb": "{}", "b.ipynb": "{}"}, "several notebooks of other names: a.ipynb, b.ipynb"),
        ({"two_losses.ipynb": "not JSON"}, "is not JSON"),
    ],
)
def test_what_cannot_be_graded_is_told_why(gradescope, tmp_path, files, says):
    result, _ = gradescope.submit(tmp_path, files)
    assert result["score"] == 0
    assert says in result["output"]
    assert "Hand in two_losses.ipynb" in result["output"]


def test_what_hangs_and_what_exits_cost_themselves(gradescope, tmp_path):
    answers = {
        "one_update": "def one_update(*_):\n    while True: pass",
        "trunk_gradients": "import os\ndef trunk_gradients(*_):\n    os._exit(0)",
    }
    result, _ = gradescope.submit(tmp_path, {f"{EXERCISE}.ipynb": _with(**answers)})
    assert _scores(result) == [0, 0]
    hung, gone = result["tests"]
    # by the processor's time or, on a machine that others use too, by the clock
    assert re.search(rf"took longer than ({SECONDS}|{2 * SECONDS}) s", hung["output"])
    assert "exit code 0" in gone["output"]


FORKS = """
import os

def one_update(*_):
    while True:
        try:
            os.fork()
        except OSError:
            pass
"""


@pytest.mark.parametrize(
    "source", [FORKS, "def one_update(*_):\n    bytearray(10**12)"], ids=["forks", "memory"]
)
def test_what_takes_too_much_costs_itself(gradescope, tmp_path, source):
    result, _ = gradescope.submit(tmp_path, {f"{EXERCISE}.ipynb": _with(one_update=source)})
    assert _scores(result) == [0, 1]
    assert "could not be judged" in result["tests"][0]["output"]
    assert "Not all of it could be judged" in result["output"]


THEFT = """
import glob, os, socket, sys

def _attempts():
    for pattern in ("/autograder/**", "/proc/*/root/autograder/**", "/proc/*/cwd/**"):
        for path in glob.glob(pattern, recursive=True):
            yield lambda path=path: open(path, "rb").read()
    yield lambda: open("/autograder/source/solutions/two_losses/two_losses.ipynb").read()
    yield lambda: open("/autograder/source/course/backward_twice/checks/two_losses.py").read()
    yield lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for place in sys.path:
        yield lambda place=place: open(place + "/backward_twice/checks/two_losses.py").read()
    for name in ("mem", "environ", "maps", "fd/3", "cwd/autograder/source/setup.sh"):
        yield lambda name=name: open(f"/proc/{os.getppid()}/{name}", "rb").read(100)
    def load_again():
        ours = [name for name in sys.modules if name.startswith("backward_twice")]
        loaded = {name: sys.modules.pop(name) for name in ours}
        try:
            from backward_twice.checks import two_losses
            return two_losses._expect_one_update
        finally:
            sys.modules.update(loaded)
    yield load_again

stolen = []
for attempt in _attempts():
    try:
        stolen.append(str(attempt())[:200])
    except (OSError, ImportError, AttributeError):
        pass

def one_update(*_):
    raise ValueError(f"STOLEN {stolen}" if stolen else "nothing to steal")
"""

FORGERY = """
import json, os, signal, time

forged = json.dumps({"score": 100, "tests": []})

def write():
    for path in ("/autograder/results/results.json", "/autograder/run_autograder",
                 "/autograder/source/run_autograder", "/opt/backward-twice/bin/python",
                 "/opt/backward-twice/pyvenv.cfg", "/etc/passwd"):
        for attempt in (lambda: os.remove(path), lambda: open(path, "w").write(forged),
                        lambda: os.rename("/tmp", path)):
            try:
                attempt()
            except OSError:
                pass

def kill():
    for pid in [os.getppid(), *range(1, 200)]:
        if pid != os.getpid():
            for number in (signal.SIGKILL, signal.SIGSTOP):
                try:
                    os.kill(pid, number)
                except OSError:
                    pass

write()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            write()
            kill()
            time.sleep(0.05)
    os._exit(0)
kill()

def one_update(*_):
    write()
    kill()
"""


def test_nothing_is_there_to_steal(gradescope, tmp_path):
    result, _ = gradescope.submit(tmp_path, {f"{EXERCISE}.ipynb": _with(one_update=THEFT)})
    assert "nothing to steal" in result["tests"][0]["output"]
    assert _scores(result) == [0, 1]


def test_nothing_can_be_forged_or_killed(gradescope, tmp_path):
    before = gradescope.contents()
    result, printed = gradescope.submit(tmp_path, {f"{EXERCISE}.ipynb": _with(one_update=FORGERY)})
    assert _scores(result) == [0, 1]
    assert printed == "sandbox: account\n"
    assert gradescope.contents() == before


# The autograder's own failures


@pytest.mark.parametrize(
    ("came", "took", "final", "asked"),
    [
        ([(3, False)], 1, 3, [240]),
        ([(1, True), (3, False)], 120, 3, [240, 210]),
        ([(1, True), (1, True)], 1, 1, [240, 240]),
        ([(1, True), (0, False)], 1, 1, [240, 240]),
        ([(1, True)], 600, 1, [240]),
    ],
    ids=["in time", "slow once", "slow twice", "worse", "no time left"],
)
def test_what_ran_out_of_time_by_the_clock_is_tried_once_more(
    monkeypatch, came, took, final, asked
):
    clock, totals = [0.0], []

    def grade(job):
        points, slow = came[len(totals)]
        totals.append(job["limits"]["total"])
        clock[0] += took
        return {"points": points, **({"slow": True} if slow else {})}

    monkeypatch.setattr(autograder.grader, "grade", grade)
    monkeypatch.setattr(autograder.time, "monotonic", lambda: clock[0])
    assert autograder._graded({"limits": asdict(autograder.LIMITS)})["points"] == final
    assert totals == asked


def test_a_failure_of_the_autograder_is_no_verdict(gradescope, tmp_path):
    broken = tmp_path / "limits.json"
    broken.write_text("{")
    binds = [("/autograder/source/limits.json", broken)]
    files = {f"{EXERCISE}.ipynb": _solution()}
    result, printed = gradescope.submit(tmp_path, files, binds=binds)
    assert result["score"] == 0
    assert "pass this message on to your teacher" in result["output"]
    assert "JSONDecodeError" in printed


def test_results_are_there_even_if_the_autograder_dies(gradescope, tmp_path):
    files = {f"{EXERCISE}.ipynb": _solution()}
    result, _ = gradescope.submit(tmp_path, files, before="ulimit -v 200000;")
    assert result["score"] == 0
    assert "ended before it had graded your work" in result["output"]


# A private overlay, in a container where bubblewrap works


PRIVATE = """
import torch

def one_update(generator):
    def normal(*shape):
        return torch.randn(*shape, generator=generator)
    return {
        "weights": {
            "trunk's first layer": normal(6, 3),
            "trunk's second layer": normal(2, 6),
            "head a": normal(1, 2),
            "head b": normal(2, 2),
        },
        "x": normal(1, 3),
        "targets": [normal(1, 1), normal(1, 2)],
        "rate": 0.25,
    }
"""

# Right for the inputs that the public question draws, of which there are five rows.
FITTED = """
def one_update(trunk, head_a, head_b, optimizer, x, target_a, target_b):
    features = trunk(x)
    loss_a = (head_a(features) - target_a).square().mean()
    loss_b = (head_b(features) - target_b).square().mean()
    if len(x) > 1:
        (loss_a + loss_b).backward()
    optimizer.step()
"""


def test_private_variants_travel_and_bubblewrap_is_used_where_it_works(as_root, tmp_path):
    private = tmp_path / "private"
    private.mkdir()
    (private / f"{EXERCISE}.py").write_text(PRIVATE)
    (private / "notes.txt").write_text("not for the zip")
    write(EXERCISE, ROOT, tmp_path)  # for all to read, as long as nothing private is in it
    archive = write(EXERCISE, ROOT, tmp_path, private)
    assert archive.stat().st_mode & 0o077 == 0
    image = Gradescope(archive, tmp_path, as_root)
    assert [path.name for path in (image.source / "private").iterdir()] == [f"{EXERCISE}.py"]
    ran = image.setup(capabilities=["ALL"])
    assert ran.returncode == 0, ran.stdout + ran.stderr
    files = {f"{EXERCISE}.ipynb": _with(one_update=FITTED)}
    result, printed = image.submit(tmp_path, files, capabilities=["ALL"])
    assert _scores(result) == [0, 1]
    assert "private inputs" in result["tests"][0]["output"]
    assert printed == "sandbox: bubblewrap\n"
    if as_root:
        subprocess.run([*as_root, "rm", "-rf", str(tmp_path)], check=True)


def test_a_broken_overlay_is_found_when_the_zip_is_made(tmp_path):
    (tmp_path / f"{EXERCISE}.py").write_text("def no_such_question(generator): return {}")
    with pytest.raises(GradingError, match="has no question 'no_such_question'"):
        write(EXERCISE, ROOT, tmp_path / "out", tmp_path)
    assert not (tmp_path / "out").exists()


def test_limits_that_are_none_are_found_when_the_zip_is_made(capsys):
    with pytest.raises(SystemExit):
        gradescope_command.main([EXERCISE, "--seconds", "0"])
    assert "the limit seconds must be positive" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match=r"^error: .*file: File exists"):
        gradescope_command.main([EXERCISE, "--into", str(tmp_path / "file")])


def test_the_same_checkout_gives_the_same_zip(tmp_path):
    first, second = (write(EXERCISE, ROOT, tmp_path / name) for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    assert modes["setup.sh"] & modes["run_autograder"] & 0o111 == 0o111
    assert not any("__pycache__" in name or name.startswith("private") for name in modes)


def test_the_zip_has_no_other_exercises_questions():
    """Nor those of an exam that lies in the same clone."""
    others = {path.parent.name for path in (ROOT / "solutions").glob("*/*.ipynb")} - {EXERCISE}
    names = [Path(name) for name, _ in contents(EXERCISE, ROOT)]
    assert len(others) > 20 and any(name.stem == EXERCISE for name in names)
    for name in names:
        assert not others & {name.stem, *name.parts}, name
    package = Path(backward_twice.__file__).parent
    for planted in ("checks/exam.py", "misconceptions/exam/siamese.diff"):
        assert not is_shipped(package / planted, EXERCISE)
