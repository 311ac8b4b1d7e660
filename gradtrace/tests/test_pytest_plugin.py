"""``pytest --gradtrace``: explanations under failing tests, and nothing without the option."""

import importlib
import os
import re
import subprocess
import sys
import sysconfig
import textwrap
import tomllib
from pathlib import Path

import pytest
import torch

import gradtrace.explaining.postmortem  # noqa: F401 (what a run in this process imports, it forgets again)
from gradtrace.autograd.frames import is_users

pytest_plugins = "pytester"

FAILING = """\
    import torch

    def test_twice():
        loss = torch.ones(3, requires_grad=True).exp().sum()
        loss.backward()
        loss.backward()
"""
EXPLANATION = "*gradtrace: the forward pass was not run again*"


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest on a test file, in this process, with the plugin as if it were installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("CI", raising=False)  # there pytest prints whole errors in its summary, too

    def run(text: str, *options: str, fresh: bool = False) -> pytest.RunResult:
        pytester.makepyfile(text)
        start = pytester.runpytest_subprocess if fresh else pytester.runpytest_inprocess
        return start("-p", "gradtrace.pytest_plugin", *options)

    return run


@pytest.mark.parametrize("style", ["auto", "long", "short", "native"])
@pytest.mark.parametrize("option", ["--gradtrace", "--gradtrace=strict"])
def test_explanation_stands_with_the_exception(run, option, style):
    done = run(FAILING, option, f"--tb={style}")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([EXPLANATION])
    done.stdout.fnmatch_lines(["*began:*:5*"])
    assert str(done.stdout).count("gradtrace: the") == 1
    if style != "native":  # which shows the frames of pytest itself, too
        done.stdout.no_fnmatch_line("*gradtrace/pytest_plugin.py*")


def test_strict_says_more(run):
    run(FAILING, "--gradtrace").stdout.no_fnmatch_line("*made:*")
    run(FAILING, "--gradtrace=strict").stdout.fnmatch_lines(["*made:*:4*"])


def test_the_way_to_watch_strictly_is_that_of_the_place(run, tmp_path):
    """A program that a test starts inherits pytest's environment, but does not run under it."""
    body = """\
import torch
model, total = torch.nn.Linear(3, 1), 0
for step in range(3):
    total = total + model(torch.ones(2, 3)).pow(2).mean()
    total.backward()
"""
    run(f"def test_total():\n{textwrap.indent(body, '    ')}", "--gradtrace").stdout.fnmatch_lines(
        ["*more:*pytest --gradtrace=strict*"]
    )
    program = tmp_path / "program.py"
    program.write_text(body, encoding="utf-8")
    command = [sys.executable, "-m", "gradtrace", program]
    environment = {**os.environ, "PYTEST_CURRENT_TEST": "this one"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert re.search("more: .*python -m gradtrace --strict", done.stderr)


def test_without_the_option(run):
    done = run(FAILING)
    done.assert_outcomes(failed=1)
    done.stdout.no_fnmatch_line("*gradtrace: *")


UNITTEST = """\
    import unittest, torch

    class Case(unittest.TestCase):
        def test_twice(self):
            loss = torch.ones(3, requires_grad=True).exp().sum()
            loss.backward()
            loss.backward()

        def test_leaf(self):
            w = torch.ones(3, requires_grad=True)
            w += 1
"""


def test_unittest(run):
    """Whose errors do not pass through the hook that watches."""
    done = run(UNITTEST, "--gradtrace")
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines([EXPLANATION])
    done.stdout.fnmatch_lines(["*- gradtrace -*", "gradtrace: a leaf*"])
    assert str(done.stdout).count("gradtrace: ") == 2


def test_note_that_pytest_does_not_show(run, pytester):
    pytester.makeconftest("""\
        import pytest

        class Function(pytest.Function):
            def repr_failure(self, excinfo):
                return "failed"

        def pytest_pycollect_makeitem(collector, name, obj):
            if name.startswith("test"):
                return Function.from_parent(collector, name=name)
        """)
    done = run(FAILING, "--gradtrace")
    done.stdout.fnmatch_lines(["failed", "*- gradtrace -*", EXPLANATION])
    assert str(done.stdout).count("gradtrace: the") == 1


def test_torch_imported_in_the_test(run):
    """Nobody watched, but the error can still be explained."""
    text = FAILING.replace("    import torch\n", "").replace("():\n", "():\n        import torch\n")
    done = run(text, "--gradtrace", fresh=True)
    done.stdout.fnmatch_lines(["*- gradtrace -*", "gradtrace: *"])


OTHERS = """\
    import pytest, torch

    def backward_twice():
        loss = torch.ones(3, requires_grad=True).exp().sum()
        loss.backward()
        loss.backward()

    def test_passes():
        with pytest.raises(RuntimeError, match="second time"):
            backward_twice()

    @pytest.mark.xfail(strict=True, raises=RuntimeError)
    def test_is_expected_to_fail():
        backward_twice()

    def test_skips():
        pytest.skip("not today")

    def test_fails_by_itself():
        assert torch.ones(1).item() == 2

    @pytest.fixture
    def broken():
        backward_twice()

    def test_fixture(broken):
        pass
"""


@pytest.mark.parametrize("option", ["--gradtrace", "--gradtrace=strict"])
def test_tests_that_need_no_explanation(run, option):
    before = torch.autograd._engine_run_backward
    done = run(OTHERS, option)
    done.assert_outcomes(passed=1, xfailed=1, skipped=1, failed=1, errors=1)
    done.stdout.no_fnmatch_line("*gradtrace: *")
    assert torch.autograd._engine_run_backward is before  # no watch is left on


def test_silent_finding_is_among_the_warnings(run):
    text = """\
    import torch

    def test_edited():
        y = torch.ones(3, requires_grad=True).sigmoid()
        y.data.zero_()
        y.sum().backward()
"""
    done = run(text, "--gradtrace=strict")
    done.assert_outcomes(passed=1, warnings=1)
    done.stdout.fnmatch_lines(["*SilentFailure: gradtrace: *"])
    run(text, "--gradtrace").assert_outcomes(passed=1, warnings=0)


def test_what_is_imported(run):
    look = """\
    import sys

    def test_modules():
        print(sorted(name for name in sys.modules if name.split(".")[0] in ("gradtrace", "torch")))
        assert not {"torch", "gradtrace.explaining.watcher"} & {*sys.modules}
"""
    run(look, "-s", fresh=True).assert_outcomes(passed=1)
    # Nor for tests that have nothing to do with torch.
    run(look, "--gradtrace", fresh=True).assert_outcomes(passed=1)


def test_option_does_not_take_the_folder(run, pytester):
    path = pytester.makepyfile(test_it="def test_it(): pass")
    run("def test_other(): pass", "--gradtrace", str(path)).assert_outcomes(passed=1)
    assert run("", "--gradtrace=loud").ret == pytest.ExitCode.USAGE_ERROR


def test_entry_point():
    text = Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8")
    (name,) = tomllib.loads(text)["project"]["entry-points"]["pytest11"].values()
    assert hasattr(importlib.import_module(name), "pytest_addoption")


def test_an_environments_command_is_no_users_code_by_whatever_path_it_is_called():
    scripts = Path(sysconfig.get_path("scripts"))
    for folder in (
        scripts,
        scripts.parents[1] / "other" / ".." / scripts.parent.name / scripts.name,
    ):
        assert not is_users(compile("", str(folder / "pytest"), "exec"))
