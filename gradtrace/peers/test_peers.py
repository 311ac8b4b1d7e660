"""The comparison of ``make peers``, on a suite of a few lines; no library is needed for that."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

# By its path: this folder is no package.
SPEC = importlib.util.spec_from_file_location("peers", Path(__file__).with_name("compare.py"))
peers = sys.modules["peers"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(peers)

SUITE = """
import os, signal, sys, unittest, torch

def test_passes(): pass
def test_fails(): assert False
def test_watched(): assert "gradtrace" not in sys.modules
class Case(unittest.TestCase):
    def test_skips(self): self.skipTest("no reason")
    @unittest.expectedFailure
    def test_expected(self): self.fail()
def test_crash(): os.kill(os.getpid(), signal.SIGSEGV) if "gradtrace" in sys.modules else None
def test_after(): pass
"""


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE)
    return tmp_path


def test_a_crash_costs_what_follows_it_in_its_chunk(suite, monkeypatch):
    monkeypatch.delitem(peers.WAYS, "strict")
    example = peers.Suite(files=("test_suite.py",))
    result = peers.compare("example", example, suite, only="", chunk=100, limit=120)
    assert len(result.tests) == 7
    assert result.differences == {
        ("example::test_suite.py::test_watched", "watched"): "passed → failed",
        ("example::test_suite.py::test_crash", "watched"): "passed → unfinished",
    }
    assert result.compared == 6
    assert result.crashes == ["example: watched: SIGSEGV in test_suite.py::test_crash"]


def test_the_outcome_of_each_test_is_read(suite):
    run = peers.run(suite, ["test_suite.py"], "plain", 120)
    outcomes = {test.rpartition("::")[2]: outcome for test, outcome in run.outcomes.items()}
    assert outcomes == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_watched": "passed",
        "test_skips": "skipped",
        "test_expected": "xfailed",
        "test_crash": "passed",
        "test_after": "passed",
    }
    assert run.ending is None


def test_a_chunk_that_hangs_is_ended(suite):
    (suite / "test_suite.py").write_text("def test_hangs():\n    while True: pass\n")
    run = peers.run(suite, ["test_suite.py"], "plain", 1)
    assert run.ending == "not ended after 1 s"


def test_a_difference_needs_a_reason_and_a_reason_a_difference():
    reasons = {("a::x", "strict"): "because", ("a::y", "strict"): "because"}
    different = {("a::x", "strict"): "passed → failed", ("a::x", "watched"): "passed → failed"}
    assert peers.judge(different, reasons, {"a::x", "a::y"}) == [
        "watched: a::x: passed → failed",
        "strict: a::y no longer differs: take it out of differences.toml",
    ]
    assert peers.judge({}, reasons, {"a::z"}) == []


def test_a_half_written_line_ends_a_log(tmp_path):
    log = tmp_path / "log"
    report = {"$report_type": "TestReport", "nodeid": "t", "when": "setup", "outcome": "passed"}
    log.write_text(json.dumps(report) + '\n{"$report_ty')
    assert peers.read_outcomes(log) == {"t": "unfinished"}


def test_every_listed_difference_has_a_reason():
    for (test, way), reason in peers.read_reasons().items():
        assert test.partition("::")[0] in peers.SUITES
        assert way in ("watched", "strict")
        assert len(reason) > 20


def test_a_suite_without_tests_is_an_error(tmp_path):
    (tmp_path / "test_suite.py").write_text("import missing_module\n")
    with pytest.raises(RuntimeError, match="pytest collects no test"):
        peers.collect(tmp_path, peers.Suite(files=("test_suite.py",)))


def test_a_folder_that_is_no_checkout_is_refused(tmp_path):
    with pytest.raises(RuntimeError, match="is it a checkout of pytorch"):
        peers.prepare("pytorch", peers.SUITES["pytorch"], {"pytorch": str(tmp_path)}, tmp_path)
    with pytest.raises(RuntimeError, match="make peers PYTORCH=folder"):
        peers.prepare("pytorch", peers.SUITES["pytorch"], {}, tmp_path)
