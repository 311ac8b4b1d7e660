"""Memory that the kernel counts: a submission in a control group of its own.

A tree of files stands for the kernel's here, because few machines hand a group over; what is tried
is who is in which group, with what limit, and what becomes of an end for want of memory.
"""

import os

import pytest
from test_sandbox import LIMITS, MB, cell

from backward_twice.grading.sandbox import control_group, events, run_steps, sandbox


@pytest.fixture
def above(tmp_path, monkeypatch):
    """A group that may be divided, as far as files can be one."""
    monkeypatch.setattr(control_group, "_here", lambda: tmp_path)
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"1", raising=False)
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    (tmp_path / "cgroup.procs").write_text("")
    (tmp_path / "cgroup.subtree_control").write_text("")
    control_group.divided.cache_clear()
    yield tmp_path
    control_group.divided.cache_clear()


def test_a_group_is_divided_only_where_it_was_handed_over(above, monkeypatch):
    (above / "cgroup.procs").write_text(f"{os.getpid()}\n")
    assert control_group.divided() == above
    assert (above / "cgroup.subtree_control").read_text() == "+memory"
    assert (above / "grader" / "cgroup.procs").read_text() == str(os.getpid())
    for marked, controllers in ((b"0", "memory"), (b"1", "cpu pids")):
        control_group.divided.cache_clear()
        monkeypatch.setattr(os, "getxattr", lambda path, name, marked=marked: marked, raising=False)
        (above / "cgroup.controllers").write_text(controllers)
        assert control_group.divided() is None


def test_where_there_is_none_it_is_done_without(above, monkeypatch):
    def refused(path, name):
        raise OSError("no such attribute")

    monkeypatch.setattr(os, "getxattr", refused, raising=False)
    assert control_group.divided() is None and control_group.made(LIMITS) is None


def test_this_process_knows_its_own_group():
    here = control_group._here()
    assert here is None or (here / "cgroup.procs").exists()


@pytest.fixture
def groups(above, monkeypatch):
    """The groups that are made, each with the files that the kernel would put there."""
    made = []
    create = control_group.ControlGroup.__init__

    def with_files(self, above, limits):
        create(self, above, limits)
        for name in ("cgroup.procs", "memory.swap.max"):
            (self._path / name).touch()
        (self._path / "memory.events").write_text("low 0\noom 0\noom_kill 0\n")
        made.append(self)

    def removed(self):
        self.gone = {path.name: path.read_text() for path in self._path.iterdir()}

    monkeypatch.setattr(control_group.ControlGroup, "__init__", with_files)
    monkeypatch.setattr(control_group.ControlGroup, "close", removed)
    return made


def test_a_submission_is_in_a_group_of_its_own_with_its_limit(bubblewrap, groups):
    with sandbox("bubblewrap") as box:
        results = run_steps([cell("print(1)"), cell("import os; os._exit(3)")], LIMITS, box)
    assert [result["outcome"] for result in results] == ["done", "crashed"]
    [group, *_] = groups
    assert group.gone["cgroup.procs"] == "0"  # the process itself joined
    assert int(group.gone["memory.max"]) == LIMITS.memory + LIMITS.files > 512 * MB


def test_what_the_kernel_ends_for_want_of_memory_has_taken_too_much(
    bubblewrap, groups, monkeypatch
):
    exceeded = control_group.ControlGroup.exceeded
    monkeypatch.setattr(control_group.ControlGroup, "exceeded", lambda self: not exceeded(self))
    monkeypatch.setattr(events, "_WATCH", 60)  # it is looked at when the process has ended
    with sandbox("bubblewrap") as box:
        [killed] = run_steps([cell("import os; os.kill(os.getpid(), 9)")], LIMITS, box)
    assert killed["outcome"] == "memory"
    assert killed["error"] == "took more than 512 MB of memory"
