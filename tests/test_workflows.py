"""The workflows, read by a linter and against the rules of this repository."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

GITHUB = Path(__file__).parents[1] / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.stem)
def text(request):
    return request.param.read_text(encoding="utf-8")


def test_zizmor_finds_nothing():
    zizmor = Path(sys.executable).with_name("zizmor")
    run = subprocess.run(
        [zizmor, "--offline", "--quiet", "--no-progress", GITHUB], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_actions_are_pinned_by_commit_with_their_version_beside(text):
    for action in re.findall(r"uses: ((?!\./).+)", text):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_nothing_is_permitted_but_what_a_job_names(text):
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        assert job["permissions"], name
        written = {what for what, how in job["permissions"].items() if how == "write"}
        # What may write runs nothing of this repository.
        assert not written or "actions/checkout" not in str(job.get("steps")), name


def test_every_job_ends(text):
    for name, job in yaml.safe_load(text)["jobs"].items():
        assert "timeout-minutes" in job or "uses" in job, name


def test_what_a_workflow_calls_is_there(text):
    """Targets of the Makefile and files of the repository, by name."""
    root = GITHUB.parent
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake ([\w./]+)", text):
        assert target == ".venv/.full" or f"\n{target}:" in makefile, target
    for path in re.findall(r"(?:tests|src|gradtrace|\.ci)/[\w./]+", text):
        assert (root / path).exists(), path
