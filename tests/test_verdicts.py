"""A verdict follows from what a cell observed, and the ledger from the executed notebooks."""

import re

import nbformat
import pytest
import yaml

from backward_twice import verdict
from backward_twice.verdicts import MIME, ledger_path, read_ledger, stored_verdicts, updated_ledger

FIRST = read_ledger()[0]["id"]


@pytest.mark.parametrize(
    ("cases", "expected", "on"),
    [
        ({"a": True, "b": True}, "holds", None),
        ({"a": False, "b": False}, "fails", None),
        ({"a": True, "b": False, "c": True}, "depends", "holds: a; c | fails: b"),
    ],
)
def test_the_verdict_follows_from_the_cases(cases, expected, on):
    judged = verdict(FIRST, cases)
    assert (judged.verdict, judged.on) == (expected, on)
    assert f"Claim {FIRST} {expected}" in repr(judged)


@pytest.mark.parametrize(
    ("cases", "expected", "on"),
    [
        ({"a": True, "b": False}, "holds", "holds: a | fails: b"),
        ({"a": True}, "holds", None),
        ({"a": False, "b": False}, "fails", None),
    ],
)
def test_what_can_happen_holds_as_soon_as_it_happens_once(cases, expected, on):
    judged = verdict(FIRST, cases, one_suffices=True)
    assert (judged.verdict, judged.on) == (expected, on)
    assert "One true case is enough" in repr(judged)
    assert "One true case is enough" not in repr(verdict(FIRST, cases))


@pytest.mark.parametrize(
    ("id", "cases", "error", "message"),
    [
        ("99.9", {"a": True}, KeyError, "'99.9' is not in claims.yml"),
        (FIRST, {}, ValueError, "no observation"),
        (FIRST, {"a": 1}, TypeError, "'a' is 1, but must be True or False"),
        (FIRST, {"a": None}, TypeError, "'a' is None"),
    ],
)
def test_bad_observations_are_named(id, cases, error, message):
    with pytest.raises(error, match=message):
        verdict(id, cases)


def test_the_display_escapes_and_carries_the_data():
    bundle = verdict(FIRST, {"<script>": True})._repr_mimebundle_()
    assert "<script>" not in bundle["text/html"]
    assert "&lt;script&gt;" in bundle["text/html"]
    assert bundle["text/plain"] == repr(verdict(FIRST, {"<script>": True}))
    assert bundle[MIME] == {
        "id": FIRST,
        "verdict": "holds",
        "on": None,
        "cases": {"<script>": True},
    }


def notebook(path, *verdicts):
    cells = [
        nbformat.v4.new_code_cell(
            "", outputs=[nbformat.v4.new_output("display_data", v._repr_mimebundle_())]
        )
        for v in verdicts
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def test_the_ledger_takes_verdicts_from_notebooks_only(tmp_path):
    path = notebook(tmp_path / "07_example.ipynb", verdict(FIRST, {"a": True, "b": False}))
    rows = [{"id": FIRST, "place": "p", "claim": "c", "verdict": "typed", "evidence": "typed"},
            {"id": "9.9", "place": "p", "claim": "c", "verdict": "typed"}]  # fmt: skip
    judged, other = updated_ledger(rows, [path])
    assert judged == {
        "id": FIRST,
        "place": "p",
        "claim": "c",
        "verdict": "depends",
        "on": "holds: a | fails: b",
        "evidence": f"07_example#claim-{FIRST}",
    }
    assert (other["verdict"], other["evidence"]) == (None, None)


def test_two_cells_for_one_claim_are_refused(tmp_path):
    judged = verdict(FIRST, {"a": True})
    path = notebook(tmp_path / "twice.ipynb", judged, judged)
    with pytest.raises(ValueError, match=rf"claim {FIRST} is judged twice.*twice\.ipynb"):
        stored_verdicts([path])


def test_the_ledger_is_whole():
    rows = read_ledger()
    assert len({row["id"] for row in rows}) == len(rows)
    assert all(row["place"] and row["claim"] for row in rows)
    assert yaml.safe_load(yaml.safe_dump(rows)) == rows


@pytest.mark.parametrize(("words", "verdict_now"), [("depend", "depends"), ("still fail", "fails")])
def test_the_page_tells_of_blind_readers_what_the_ledger_says(words, verdict_now):
    page = ledger_path().with_name("verdicts.md").read_text(encoding="utf-8")
    readings = page.partition("### Where two blind readers disagreed")[2].partition("\n###")[0]
    verdicts = {row["id"]: row["verdict"] for row in read_ledger()}
    # The last cell of a row of the table, or the paragraph below it.
    passages = [*re.findall(r"^\|(.*)\|", readings, re.M), readings.rpartition("|")[2]]
    ids = {
        id
        for passage in passages
        if words in passage.rpartition("|")[2]
        for id in re.findall(r"\b\d\.\d+\b", passage)
    }
    assert len(ids) >= 2
    assert {verdicts[id] for id in ids} == {verdict_now}
