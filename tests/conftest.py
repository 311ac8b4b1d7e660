"""The order of the tests, and what those of grading share: a sandbox, and a gradebook."""

import os
import subprocess
import sys

import pytest

from backward_twice.grading.sandbox.limits import SandboxError
from backward_twice.grading.sandbox.protocol import check_sandbox


def pytest_collection_modifyitems(items):
    """What takes long begins early, else one process is still at it when the others have ended.

    And processes take tests from one another's ends: what a module's tests share is made once.
    """
    items.sort(key=lambda item: item.get_closest_marker("early") is None)


@pytest.fixture(scope="session")
def bubblewrap():
    """Skips where bubblewrap does not work; fails instead if ``SANDBOX=required``."""
    try:
        check_sandbox()
    except SandboxError as error:
        (pytest.fail if os.environ.get("SANDBOX") == "required" else pytest.skip)(str(error))


@pytest.fixture(scope="session")
def empty_gradebook(tmp_path_factory):
    """A gradebook of nbgrader's, which takes it two seconds to make."""
    from backward_twice.grading.platforms.nbgrader.gradebook import open_gradebook

    path = tmp_path_factory.mktemp("empty") / "gradebook.db"
    with open_gradebook(path, {}):
        return path


@pytest.fixture(scope="session")
def bound_by_permissions():
    """Runs Python as somebody whom a file's permissions bind, whoever runs the tests."""
    free = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]

    def run(*arguments):
        started = [*(free if os.geteuid() == 0 else []), sys.executable, *map(str, arguments)]
        return subprocess.run(started, capture_output=True, text=True, check=False, timeout=300)

    return run
