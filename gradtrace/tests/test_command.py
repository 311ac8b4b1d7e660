"""``python -m gradtrace script.py``: the script's output and exit code are its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gradtrace.__main__ import main

KEYS = {
    "schema", "torch", "family", "cause", "confidence", "raised_at", "began_at", "made_at",
    "carried_by", "explanation", "fix", "error", "warnings",
}  # fmt: skip

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


@pytest.fixture
def script(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def run(monkeypatch, capfd):
    """Run the command in this process; returns exit code, standard output and error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
        monkeypatch.setattr(sys, "argv", list(sys.argv))
        monkeypatch.setattr(sys, "path", list(sys.path))
        status = main(list(arguments))
        return status, *capfd.readouterr()

    return run


def command(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "gradtrace", *arguments], capture_output=True, text=True, check=False
    )


def test_failing_script(script, tmp_path):
    path, report = script(FAILING), tmp_path / "report.json"
    plain = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    seen = command("--strict", "--json", str(report), path)
    assert (plain.returncode, plain.stdout) == (1, "step 0\nstep 1\n")
    assert (seen.returncode, seen.stdout) == (1, "step 0\nstep 1\n")
    assert seen.stderr.splitlines()[:3] == plain.stderr.splitlines()[:3]
    assert seen.stderr.count("gradtrace: ") == 1
    assert "__main__.py" not in seen.stderr  # not the frames of whoever runs the script
    data = json.loads(report.read_text(encoding="utf-8"))
    assert set(data) == KEYS
    assert (data["schema"], data["family"], data["cause"]) == (1, "freed", "hidden_state_carried")
    assert data["raised_at"] == data["began_at"] == {"file": path, "line": 8}
    assert data["made_at"] == {"file": path, "line": 5}
    assert (data["confidence"], data["carried_by"]) == ("certain", "h")
    assert data["error"].startswith("RuntimeError: Trying to backward")
    assert "h = h.detach()" in data["fix"]
    assert data["warnings"] == []


def test_script_that_ends_well(script, run, tmp_path):
    report = tmp_path / "report.json"
    status, out, err = run("--json", str(report), script("print('fine')"))
    assert (status, out, err) == (0, "fine\n", "")
    data = json.loads(report.read_text(encoding="utf-8"))
    assert (data["family"], data["error"], data["warnings"]) == (None, None, [])


def test_silent_finding_is_a_warning(script, run, tmp_path):
    report, path = tmp_path / "report.json", script(SILENT)
    with pytest.warns(UserWarning, match="gradtrace: "):
        status, out, _ = run("--strict", "--json", str(report), path)
    assert (status, out) == (0, "")
    data = json.loads(report.read_text(encoding="utf-8"))
    (finding,) = data["warnings"]
    assert data["family"] is None
    assert set(finding) == KEYS - {"warnings"}
    assert (finding["family"], finding["cause"]) == ("silent", "data_edit_silent")
    assert finding["began_at"] == {"file": path, "line": 3}


def test_silent_finding_is_printed(script):
    seen = command("--strict", script(SILENT))
    assert seen.returncode == 0
    assert seen.stdout == ""
    assert seen.stderr.count("SilentFailure") == 1
    assert "y.data.zero_()" in seen.stderr


def test_script_that_does_not_exist(run):
    status, out, err = run("nowhere.py")
    assert (status, out) == (2, "")
    assert err == "gradtrace: can't open 'nowhere.py': No such file or directory\n"


def test_syntax_error(script):
    path = script("def f(:\n    pass\n")
    plain = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    seen = command(path)
    assert (seen.returncode, seen.stdout, seen.stderr) == (1, "", plain.stderr)


@pytest.mark.parametrize(
    "text, status, error",
    [
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(0)", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("raise SystemExit('no data')", 1, "no data\n"),
        ("raise KeyboardInterrupt", 130, None),
        ("1 / 0", 1, None),
    ],
)
def test_exit_codes(script, run, text, status, error):
    seen, _, err = run(script(text))
    assert seen == status
    assert "gradtrace" not in err
    if error is not None:
        assert err == error


def test_arguments_reach_the_script(script, run, tmp_path):
    (tmp_path / "beside.py").write_text("here = True", encoding="utf-8")
    path = script("import sys, beside; print(__name__, __file__, sys.argv[1:], beside.here)")
    status, out, _ = run(path, "--strict", "--json", "x", "-n", "3")
    assert status == 0
    assert out == f"__main__ {path} ['--strict', '--json', 'x', '-n', '3'] True\n"
