"""What the tests of grading share: they need a sandbox, and say so where there is none."""

import os

import pytest

from backward_twice.grading.sandbox import SandboxError, available


@pytest.fixture(scope="session")
def bubblewrap():
    """Skips where bubblewrap does not work; fails instead if ``SANDBOX=required``."""
    try:
        kind, why = available(), "this machine's sandbox is not bubblewrap"
    except SandboxError as error:
        kind, why = None, str(error)
    if kind != "bubblewrap":
        (pytest.fail if os.environ.get("SANDBOX") == "required" else pytest.skip)(why)
