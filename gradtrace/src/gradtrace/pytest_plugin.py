"""``pytest --gradtrace``: explain a failing backward call below the failing test.

A watch surrounds the call of each test, without its fixtures, once torch has been imported. The
findings of ``--gradtrace=strict`` are among pytest's warnings. An explanation is a note on the
exception; if pytest does not show it, the report of the test gets a section ``gradtrace``.

pytest loads this module in every project where gradtrace is installed. So without the option it
imports nothing and registers no hooks.
"""

import sys
from collections.abc import Generator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gradtrace")
    group.addoption(
        "--gradtrace",
        action="store_const",
        const="plain",
        dest="gradtrace",
        help="explain errors of PyTorch's autograd under the tests that they fail",
    )
    # An option of its own: with an optional value, `pytest --gradtrace tests` would take tests.
    group.addoption(
        "--gradtrace=strict",
        action="store_const",
        const="strict",
        dest="gradtrace",
        help="see every operation, and warn about failures that raise nothing, too",
    )


def pytest_configure(config: pytest.Config) -> None:
    mode = config.getoption("gradtrace")
    if mode is not None:
        config.pluginmanager.register(_Watching(mode == "strict"), "gradtrace.watching")


class _Watching:
    def __init__(self, strict: bool) -> None:
        self.strict = strict

    @pytest.hookimpl(wrapper=True, trylast=True)  # the innermost: nothing of pytest's is watched
    def pytest_runtest_call(self) -> Generator[None]:
        if "torch" not in sys.modules:
            return (yield)
        from gradtrace.explaining.watcher import watch  # not at the top, as it imports torch

        with watch(strict=self.strict):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        error = call.excinfo and call.excinfo.value
        if report.when == "call" and isinstance(error, Exception) and "torch" in sys.modules:
            from gradtrace.explaining.postmortem import explain  # this imports torch, too

            diagnosis = explain(error) if report.failed else None
            text = "" if diagnosis is None else diagnosis.text()
            if text and text.splitlines()[0] not in report.longreprtext:
                report.sections.append(("gradtrace", text))
        return report
