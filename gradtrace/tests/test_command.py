"""``python -m gradtrace script.py``: the command reads its options, and Python runs the program."""

import json
import os
import pty
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import gradtrace
from gradtrace import session
from gradtrace._torch import outputs_of
from gradtrace.cli import interpreter_flags
from gradtrace.explaining import causes, diagnosis

KEYS = set(causes.KEYS)

FAILING = """\
import torch
w = torch.ones(3, requires_grad=True)
h = torch.zeros(3)
for step in range(3):
    h = torch.tanh(w * h + w)
    loss = h.sum()
    print("step", step)
    loss.backward()
"""
SILENT = """\
import torch
y = torch.ones(3, requires_grad=True).sigmoid()
y.data.zero_()
y.sum().backward()
"""
ELSEWHERE = """\
import sys, torch
if len(sys.argv) > 1:
    sys.excepthook = lambda kind, error, trace: print("mine:", kind.__name__, file=sys.stderr)
w = torch.ones(3, requires_grad=True)
w += 1
"""
TRACED = """\
import os, torch
class Model:
    def loss(self, w):
        y = w.exp()
        raise ValueError("bad file name \\udcff")
os.chdir(os.path.dirname(os.getcwd()))
Model().loss(torch.ones(3, requires_grad=True))
"""
# Everything about a process that a program without torch can look at.
LOOKING = """\
import atexit, builtins, inspect, os, signal, sys, threading
print(__name__, globals().get("__file__"), globals().get("__cached__", "none"), __spec__, __doc__)
print(type(__loader__), globals().get("__annotations__"), sorted(globals()))
print(sys.argv, sys.orig_argv, sys.executable, sys.path, sys.flags, sys.warnoptions, sys._xoptions)
print(sorted(sys.modules), sorted(sys.path_importer_cache))
print([finder for finder in sys.meta_path if "Waiting" not in repr(finder)])
print({k: v for k, v in os.environ.items()})
print(len(inspect.stack()), sys._getframe().f_back, sys.getrecursionlimit(), sys.excepthook)
print([(s, signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)])
print(sys.stdin.encoding, sys.stdin.errors, sys.stdout.errors, sys.stdout.line_buffering)
print(sys.modules.get("sitecustomize"), getattr(builtins, "marked", None))
print([thread.name for thread in threading.enumerate()])
sys.stdout.flush()
if "child" not in sys.argv:
    os.system(f"{sys.executable} -c 'import os, sys; print(sys.path, dict(os.environ))'")
"""


@pytest.fixture
def script(tmp_path):
    def write(text: str, name: str = "script.py") -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def run(*words: str, flags: tuple[str, ...] = (), **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *flags, *words], capture_output=True, text=True, check=False, **options
    )


def command(*words: str, flags: tuple[str, ...] = (), **options) -> subprocess.CompletedProcess:
    return run("-m", "gradtrace", *words, flags=flags, **options)


def outcome(done: subprocess.CompletedProcess) -> tuple[int, str, str]:
    """Without the addresses of objects, which differ from run to run."""
    out, error = (re.sub(r"0x[0-9a-f]+", "0x", text) for text in (done.stdout, done.stderr))
    return done.returncode, out, error


def same(*words: str, **options) -> subprocess.CompletedProcess:
    plain = run(*words, **options)
    assert outcome(command(*words, **options)) == outcome(plain)
    return plain


def test_failing_script(script, tmp_path):
    path, report = script(FAILING), tmp_path / "report.json"
    plain = run(path)
    seen = command("--strict", "--json", str(report), path)
    assert (plain.returncode, plain.stdout) == (1, "step 0\nstep 1\n")
    assert (seen.returncode, seen.stdout) == (1, "step 0\nstep 1\n")
    assert seen.stderr.splitlines()[:3] == plain.stderr.splitlines()[:3]
    assert seen.stderr.count("gradtrace: ") == 1
    data = json.loads(report.read_text(encoding="utf-8"))
    assert set(data) == KEYS
    assert (data["schema"], data["family"], data["cause"]) == (1, "freed", "hidden_state_carried")
    assert data["raised_at"] == data["began_at"] == {"file": path, "line": 8}
    assert data["made_at"] == {"file": path, "line": 5}
    told = outputs_of(torch.ones(1, requires_grad=True).exp().grad_fn)  # PyTorch 2.4 tells nothing
    assert (data["confidence"], data["carried_by"]) == ("certain" if told else "likely", "h")
    assert data["error"].startswith("RuntimeError: Trying to backward")
    assert "h = h.detach()" in data["fix"]
    assert data["warnings"] == []


def test_an_error_that_the_program_catches_is_explained_at_the_end(script, tmp_path):
    caught = FAILING.replace(
        "    loss.backward()", "    try: loss.backward()\n    except RuntimeError: break"
    )
    path, report = script(caught), tmp_path / "report.json"
    seen = command("--json", str(report), path)
    assert (seen.returncode, seen.stdout) == (0, "step 0\nstep 1\n")
    assert "the program caught RuntimeError: Trying to backward" in seen.stderr
    assert "h = h.detach()" in seen.stderr
    assert json.loads(report.read_text(encoding="utf-8"))["cause"] == "hidden_state_carried"


RANKS = """
import os
import torch
import torch.multiprocessing

def rank(number):
    print(number, [name for name in os.environ if "GRADTRACE" in name or name == "PYTHONPATH"])
    h = torch.zeros(3, requires_grad=True).exp()
    h.sum().backward()
    h.sum().backward()

if __name__ == "__main__":
    try:
        torch.multiprocessing.spawn(rank)
    finally:
        print([name for name in os.environ if "GRADTRACE" in name or name == "PYTHONPATH"])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="what Windows spawns is not followed")
def test_a_spawned_rank_explains_its_error(script, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    path, report = script(RANKS), tmp_path / "report.json"
    plain, seen = run(path), command("--strict", "--json", str(report), path)
    assert (seen.returncode, seen.stdout) == (plain.returncode, plain.stdout)
    assert plain.stdout == "0 []\n[]\n"
    assert "gradtrace: " not in plain.stderr
    assert seen.stderr.count("gradtrace: ") == 1
    assert f"made:    {path}:8" in seen.stderr
    assert "ProcessRaisedException" in json.loads(report.read_text(encoding="utf-8"))["error"]


def test_script_that_ends_well(script, tmp_path):
    report = tmp_path / "report.json"
    path = script("import torch; print('fine')")
    assert outcome(command("--json", str(report), path)) == (0, "fine\n", "")
    data = json.loads(report.read_text(encoding="utf-8"))
    assert set(data) == {"schema", "torch", "family", "error", "warnings"}
    assert (data["family"], data["error"], data["warnings"]) == (None, None, [])


def test_silent_finding(script, tmp_path):
    report, path = tmp_path / "report.json", script(SILENT)
    seen = command("--strict", "--json", str(report), path)
    assert (seen.returncode, seen.stdout) == (0, "")
    assert seen.stderr.count("SilentFailure") == 1
    assert "y.data.zero_()" in seen.stderr
    data = json.loads(report.read_text(encoding="utf-8"))
    (finding,) = data["warnings"]
    assert data["family"] is None
    assert set(finding) == KEYS - {"warnings"}
    assert (finding["family"], finding["cause"]) == ("silent", "data_edit_silent")
    assert finding["began_at"] == {"file": path, "line": 3}


def test_error_from_elsewhere_is_explained_under_the_traceback(script):
    """It came from no backward, so nobody could add a note when it was raised."""
    path = script(ELSEWHERE)
    seen, plain = command(path), run(path)
    assert seen.stderr.startswith(plain.stderr)
    explanation = seen.stderr.removeprefix(plain.stderr)
    assert explanation.startswith("gradtrace: ")
    assert "  fix:     " in explanation
    hooked = command(path, "hook")
    assert hooked.stderr == "mine: RuntimeError\n" + explanation


def test_trace(script, tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    path, report = script(TRACED), "report.json"
    seen = command("--trace", "Model.loss", "--json", report, path, cwd=folder)
    assert seen.returncode == 1
    page = folder / "script.Model.loss.html"
    assert seen.stderr.endswith(f"gradtrace: Model.loss line by line: {page.as_uri()}\n")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "y = w.exp()" in text
    data = json.loads((folder / report).read_text(encoding="utf-8"))
    assert data["error"] == "ValueError: bad file name \udcff"


def test_trace_of_what_is_never_called(script):
    path = script("import torch\ndef f(): pass")
    assert outcome(command("--trace", "f", path)) == (
        0,
        "",
        "gradtrace: nothing was traced, because f was never called\n",
    )
    path = script("def f(): pass\nf()")
    seen = command("--trace", "f", path)
    assert outcome(seen)[:2] == (0, "")
    assert (
        seen.stderr == "gradtrace: nothing was traced, because the program never imported torch\n"
    )


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "no program to run"),
        (["--strict"], "no program to run"),
        (["--verbose", "x.py"], "there is no option --verbose. Did you mean: --version"),
        (["--quux", "x.py"], "unrecognized arguments: --quux"),
        (["--json"], "expected one argument"),
        (["--", "-O", "x.py"], "-O is not a program"),
        (["--trace", "g", "script.py"], "no function 'g' is defined in script.py"),
        (["--trace", "f", "-m", "script"], "--trace needs a script"),
        (["--trace", "f", "-c", "def f(): 1"], "--trace needs a script"),
        (["--trace", "f", "-"], "--trace needs a script"),
        (["--trace", "f", "."], "--trace needs a script"),
        (["--json", "a\nb", "script.py"], "line break"),
    ],
)
def test_what_cannot_be_run(script, tmp_path, words, message):
    script("def f():\n    return 1 is 1\nprint('ran')")
    seen = command(*words, cwd=tmp_path)
    assert (seen.returncode, seen.stdout) == (2, "")
    assert seen.stderr.startswith("gradtrace: ")
    assert message in seen.stderr
    assert seen.stderr.count("\n") == 1


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_flags_that_keep_gradtrace_out(script, flag):
    # Without the environment or the site packages gradtrace itself may not be found.
    begin = f"import sys; sys.path.insert(0, {str(Path(gradtrace.__file__).parents[1])!r})"
    call = f"{begin}; from gradtrace.cli import main; main([{script('print(1)')!r}])"
    done = run("-c", call, flags=(flag,))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gradtrace: python -") and done.stderr.count("\n") == 1


def test_version_and_help():
    for words in (["--version"], ["-V"], ["fix", "--version"], ["fix", "-V"]):
        assert outcome(command(*words)) == (0, f"gradtrace {gradtrace.__version__}\n", "")
    assert "-m module" in command("-h").stdout


def test_console_script(script):
    installed = script("import sys\nfrom gradtrace.cli import main\nsys.exit(main())", "gradtrace")
    path = script("import sys; print(sys.argv, sys.flags.optimize)")
    done = run(installed, path, "--", "-m", flags=("-O",))
    assert outcome(done) == (0, f"{[path, '--', '-m']} 1\n", "")


@pytest.mark.parametrize(
    "given, flags",
    [
        ("-m gradtrace x.py", ""),
        ("-mgradtrace -O x.py", ""),
        ("-Im gradtrace", "-I"),
        ("-OOmgradtrace", "-OO"),
        ("-uWerror -X dev -Xutf8 -m gradtrace", "-uWerror -X dev -Xutf8"),
        ("-bW error -m gradtrace -W x", "-bW error"),
        ("--check-hash-based-pycs never -u -m gradtrace", "--check-hash-based-pycs never -u"),
        ("-B /usr/bin/gradtrace -u x.py", "-B"),
        ("-B -- /usr/bin/gradtrace -u x.py", "-B"),
        ("-Bc main() x.py", "-B"),
    ],
)
def test_interpreter_flags(given, flags):
    assert interpreter_flags(["python", *given.split()]) == flags.split()


PLACES = {
    "script": ["script.py", "a", "--strict"],
    "double dash": ["script.py", "--", "--json", "x"],
    "full path": [],  # filled in below
    "module": ["-m", "script", "-m", "--"],
    "glued module": ["-mscript", "--strict"],
    "code": ["-c", LOOKING, "-x", "--"],
    "folder": ["folder", "--"],
    "zip": ["folder.zip", "-h"],
}


@pytest.fixture
def places(script, tmp_path):
    script(LOOKING)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text(LOOKING, encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "folder.zip", "w") as file:
        file.writestr("__main__.py", LOOKING)
    return tmp_path


@pytest.mark.parametrize("place", PLACES)
def test_nothing_of_gradtrace_is_to_be_seen(places, place):
    """From the first line of the program to its children: as without the command."""
    words = PLACES[place] or [str(places / "script.py")]
    assert same(*words, cwd=places).returncode == 0


def test_program_on_standard_input(places):
    same("-", "a", input=LOOKING, cwd=places)
    same("-", stdin=subprocess.DEVNULL, cwd=places)


@pytest.mark.parametrize(
    "flags", ["-O", "-X dev -W error", "-P", "-Wignore -bu", "-Xutf8=0", "-s", "-B -q"]
)
def test_interpreter_flags_are_the_programs(places, flags):
    # python -P -m gradtrace finds gradtrace where it is installed.
    assert same("script.py", flags=tuple(flags.split()), cwd=places).returncode == 0


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONPATH": None},
        {"PYTHONPATH": ""},
        {"PYTHONPATH": os.pathsep.join(["lib", "", "lib"])},
        {"PYTHONPATH": "lib", "PYTHONSAFEPATH": "1"},
        {"LANG": None, "LC_ALL": "C"},
        {"LANG": None, "LC_ALL": None, "LC_CTYPE": "C.UTF-8"},
        {"PYTHONUTF8": "1", "LC_CTYPE": "C.UTF-8"},
    ],
)
def test_environment_is_the_programs(places, variables):
    """Also the user's own ``sitecustomize``, which ours stands in front of."""
    (places / "lib").mkdir()
    text = "import builtins, os; builtins.marked = os.environ.get('PYTHONPATH')"
    (places / "lib" / "sitecustomize.py").write_text(text, encoding="utf-8")
    environment = {**os.environ, **variables}
    environment = {name: value for name, value in environment.items() if value is not None}
    plain = same("script.py", cwd=places, env=environment)
    assert ("lib/sitecustomize.py" in plain.stdout) == ("lib" in environment.get("PYTHONPATH", ""))


def test_failing_sitecustomize_of_the_users(places):
    (places / "sitecustomize.py").write_text("1 / 0", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(places)}
    plain = run("script.py", "child", cwd=places, env=environment)
    seen = command("script.py", "child", cwd=places, env=environment)
    assert outcome(seen)[:2] == outcome(plain)[:2]
    assert "ZeroDivisionError" in plain.stderr
    assert seen.stderr == 2 * plain.stderr  # the command is a Python process, too


@pytest.mark.parametrize(
    "text, status",
    [
        ("raise SystemExit", 0),
        ("import sys; sys.exit(7)", 7),
        ("raise SystemExit('no data')", 1),
        ("raise KeyboardInterrupt", -2),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("import os; os._exit(5)", 5),
        ("1 / 0", 1),
        ("def f(:\n    pass\n", 1),
        ("x = '\\d'\nprint(x)", 0),
        ("import sys; sys.excepthook = lambda *a: print('mine', a[0]); 1 / 0", 1),
        ("raise ValueError('bad file name \\udcff')", 1),
        ("def f(x: int): pass\nprint(f.__annotations__)", 0),
        ("import os; os.chdir('/'); print(__file__)\ndef f(): 1 / 0\nf()", 1),
        ("import json; print(json.__file__)", 0),  # one that stands beside it
        ("import atexit; atexit.register(print, 'last', flush=True); 1 / 0", 1),
        ("def f(n): f(n + 1) if n < 990 else print(n)\nf(0)\nf(-9)", 1),
        ("\0", 1),
    ],
)
def test_ends_as_python_ends_it(script, tmp_path, text, status):
    (tmp_path / "json.py").write_text("", encoding="utf-8")
    assert same(script(text)).returncode == status


@pytest.mark.parametrize(
    ("word", "suggestion"),
    [
        ("fixx", "gradtrace fix"),
        ("fxi", "gradtrace fix"),
        ("strictt", "gradtrace --strict"),
    ],
)
def test_a_word_that_looks_like_a_command_gets_a_suggestion(word, suggestion):
    done = command(word, "train.py")
    assert done.returncode == 2
    assert done.stderr == f"gradtrace: there is no file {word}. Did you mean: {suggestion}\n"


def test_a_report_can_be_printed(script, tmp_path):
    done = command("--json", "-", script("import torch; print('mine')"), cwd=tmp_path)
    mine, report = done.stdout.split("\n", 1)
    assert (mine, done.returncode, done.stderr) == ("mine", 0, "")
    assert json.loads(report)["warnings"] == []
    assert not (tmp_path / "-").exists()


def test_an_option_that_does_not_exist_gets_a_suggestion():
    done = command("--strct", "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gradtrace: there is no option --strct. Did you mean: --strict\n"
    assert "(usage: " in command("--unlike-any", "train.py").stderr


def test_script_that_does_not_exist():
    assert same("nowhere.py").returncode == 2
    assert command("--trace", "f", "nowhere.py").stderr.startswith(run("nowhere.py").stderr)


def test_keyboard_is_the_programs(script):
    """In a terminal the program is the process that the shell started."""
    path = script("import os, sys; print(os.getppid(), sys.stdin.isatty(), input())")
    ours, theirs = pty.openpty()
    os.write(ours, b"typed\n")
    seen = command(path, stdin=theirs)
    assert seen.stdout == f"{os.getpid()} True typed\n"


def test_paths_are_relative_to_the_working_directory(script, tmp_path):
    path = script(FAILING, "failing.py")
    assert "  began:   failing.py:8  loss.backward()" in command(path, cwd=tmp_path).stderr
    (tmp_path / "elsewhere").mkdir()
    elsewhere = command(path, cwd=tmp_path / "elsewhere").stderr
    assert f"  began:   {path}:8  loss.backward()" in elsewhere


def test_a_launcher_watches_each_rank(script, tmp_path):
    """What the command starts, and what the README says, word for word, explain each rank."""
    # The launcher ends the other rank when one has failed; this one is to reach its error, too.
    script(f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{FAILING}", "train.py")
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    documented = re.search(r"^torchrun (--nproc-per-node 2 .*?train\.py)", readme, re.M)[1].split()
    launcher = ["torch.distributed.run", "--standalone"]
    for words in (
        [
            "-m",
            "gradtrace",
            "--json",
            "out.json",
            "-m",
            *launcher,
            "--nproc-per-node",
            "2",
            "train.py",
        ],
        ["-m", *launcher, *documented],
    ):
        done = run(*words, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == 1
        assert done.stderr.count("  carried: h\n") == 2, done.stderr
    for rank in (0, 1):
        report = json.loads((tmp_path / f"out.rank{rank}.json").read_text(encoding="utf-8"))
        assert report["cause"] == "hidden_state_carried"


STAND_IN = """\
import sys, warnings
warnings.warn("told to the line that imports", stacklevel=2)
print(__spec__.loader is __loader__, sorted(vars(__loader__)), type(__spec__).__name__)
print([type(finder).__name__ for finder in sys.meta_path if "Waiting" not in repr(finder)])
"""


@pytest.mark.parametrize(
    "text",
    [
        "raise ValueError('broken')",
        "raise ImportError('broken')",
        "import nothing_of_that_name",
        "def f(:",
        "import sys; sys.exit(3)",
    ],
)
def test_import_of_torch_that_fails(script, text):
    """Its traceback has no frame of gradtrace's."""
    script(STAND_IN + text, "torch.py")
    path = script("import importlib.util as u; print(u.find_spec('torch'))\nimport torch")
    assert same(path).returncode in (1, 3)
    path = script("try:\n    import torch\nexcept BaseException as e: print(repr(e))")
    assert same(path).returncode == 0


def test_torch_that_is_not_pytorch(script):
    script(STAND_IN, "torch.py")
    path = script("import torch; print(torch.__spec__, torch.__loader__.name)")
    plain, seen = run(path), command(path)
    assert outcome(seen)[:2] == (0, outcome(plain)[1])
    ours = seen.stderr.removeprefix(plain.stderr)
    assert ours.startswith("gradtrace: cannot watch this program: ")
    assert ours.count("\n") == 1


def test_torch_that_another_hook_loads(script):
    script(STAND_IN, "torch.py")
    path = script(
        "import importlib.machinery as m, sys\n"
        "class Hook:\n"
        "    find_spec = m.PathFinder.find_spec\n"
        "sys.meta_path.insert(0, Hook)\n"
        "import torch"
    )
    plain, seen = run(path), command(path)
    assert outcome(seen)[:2] == outcome(plain)[:2]
    ours = seen.stderr.removeprefix(plain.stderr)
    assert ours.startswith("gradtrace: nothing was watched: ")
    assert ours.count("\n") == 1


def test_report_of_a_program_without_torch(script, tmp_path):
    report = tmp_path / "report.json"
    done = command("--json", str(report), script("print(1); raise KeyError('a')"))
    assert (done.returncode, done.stdout) == (1, "1\n")
    data = json.loads(report.read_text(encoding="utf-8"))
    assert data == {
        "schema": 1,
        "torch": None,
        "family": None,
        "error": "KeyError: 'a'",
        "warnings": [],
    }
    assert session.SCHEMA == diagnosis.SCHEMA


def test_report_that_cannot_be_written(script):
    done = command("--json", "/nowhere/report.json", script("print(1)"))
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert done.stderr.startswith("gradtrace: ") and "/nowhere/report.json" in done.stderr


def test_only_the_process_that_began_tells(script, tmp_path):
    text = (
        "import os, sys, torch\n"
        "if not os.fork():\n"
        "    sys.exit(0)\n"
        "os.wait(); print(os.path.exists('report.json'))"
    )
    done = command("--strict", "--json", "report.json", script(text), cwd=tmp_path)
    assert outcome(done) == (0, "False\n", "")
    assert (tmp_path / "report.json").exists()


def test_program_that_closes_standard_error(script):
    done = command("--trace", "f", script("import sys, torch\ndef f(): 1\nsys.stderr.close()"))
    assert outcome(done) == (0, "", "")


def test_torch_comes_after_the_programs_own_variables(script):
    """gradtrace imports nothing before the program has set what torch reads when it is imported."""
    path = script(
        "import os, sys\n"
        "print('torch' in sys.modules, 'gradtrace' in sys.modules)\n"
        "os.environ['OMP_NUM_THREADS'] = '1'\n"
        "import torch\n"
        "print(torch.get_num_threads(), torch.__spec__.loader is torch.__loader__)\n"
        "print(vars(torch.__loader__).keys(), [type(f).__name__ for f in sys.meta_path])\n"
    )
    assert same(path).stdout.startswith("False False\n1 True\n")
