"""The table of causes holds together: every rule names evidence that is told and gathered."""

from __future__ import annotations

import inspect

import pytest

from gradtrace import diagnose
from gradtrace.causes import CAUSES, EVIDENCE, FAMILIES, PATTERNS, RULES, family_of

GATHERED = {
    "freed": diagnose.FreedEvidence,
    "modified": diagnose.ModifiedEvidence,
    "no_graph": diagnose.NoGraphEvidence,
}
NAMED = {
    name.removeprefix("not ") for rules in RULES.values() for r in rules for name in r.evidence
}


def test_all_evidence_is_told_and_used():
    assert set(EVIDENCE) == NAMED


@pytest.mark.parametrize("family", GATHERED)
def test_evidence_is_gathered(family):
    for rule in RULES[family]:
        for name in (*(one.removeprefix("not ") for one in rule.evidence), rule.carrier):
            kind = GATHERED[family]
            assert hasattr(kind, name) or f"self.{name}" in inspect.getsource(kind), name


def test_rules_and_patterns_name_causes_of_known_families():
    assert set(RULES) <= set(FAMILIES)
    assert {rule.cause for rules in RULES.values() for rule in rules} <= set(CAUSES)
    assert {family for _, family, _ in PATTERNS} <= set(FAMILIES)
    assert {cause for _, _, cause in PATTERNS if cause} <= set(CAUSES)
    assert {cause.family for cause in CAUSES.values()} <= {*FAMILIES, None}


def test_a_rule_that_needs_nothing_is_the_last_of_its_family():
    for rules in RULES.values():
        assert all(rule.evidence for rule in rules[:-1])


@pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda cause: cause.name)
def test_texts_name_the_carrier_or_stand_without_it(cause):
    for carried_by in ("h", None):
        text = cause.fix_for(carried_by)
        assert "{" not in text and text == text.strip()
    if "{it" in cause.fix:
        assert "buffer_of_mine" in cause.fix_for("buffer_of_mine")


def test_texts_of_older_versions_are_known():
    assert family_of("Trying to backward through the graph second time, but …")[0] == "freed"
    assert family_of("something else") == (None, None)
