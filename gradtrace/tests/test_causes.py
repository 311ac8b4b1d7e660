"""The table of causes is complete: every fact has a sentence, a use, and a property."""

import inspect
import itertools
import re
import tomllib
from pathlib import Path

import pytest

from gradtrace.explaining import causes
from gradtrace.explaining.causes import CAUSES, CRITERIA, FACTS, FAMILIES, PATTERNS, family_of
from gradtrace.explaining.causes.table import CERTAIN, OBSERVED, filled
from gradtrace.explaining.diagnose import CLASSES
from gradtrace.explaining.diagnose import EVIDENCE as GATHERED

FIXES = [(cause, fix) for cause in CAUSES.values() for fix in cause.fixes]


def test_each_fact_has_a_sentence_and_a_use():
    in_criteria = {fact for rules in CRITERIA.values() for rule in rules for fact in rule.facts}
    in_fixes = {fact for _, fix in FIXES for fact in (*fix.needs, *(fix.proof or ()))}
    assert set(FACTS) == in_criteria | in_fixes


@pytest.mark.parametrize("family", GATHERED)
def test_evidence_is_gathered(family):
    for rule in CRITERIA[family]:
        needed = {
            name for fix in CAUSES[rule.cause].fixes for name in (*fix.needs, *(fix.proof or ()))
        }
        for name in {fact.removeprefix("not ") for fact in {*rule.facts, *needed}}:
            kinds = [CLASSES[cause.evidence] for cause in CAUSES.values() if cause.evidence]
            kinds.append(GATHERED[family])
            assert any(
                hasattr(kind, name) or f"self.{name}" in inspect.getsource(kind) for kind in kinds
            ), name


def test_rules_and_patterns_name_causes_of_known_families():
    assert set(CRITERIA) <= {*FAMILIES, "function"}
    assert {rule.cause for rules in CRITERIA.values() for rule in rules} <= set(CAUSES)
    assert {family for _, family, _ in PATTERNS} <= set(FAMILIES)
    assert {cause for _, _, cause in PATTERNS if cause} <= set(CAUSES)
    assert {cause.family for cause in CAUSES.values()} <= {*FAMILIES, None}


def test_a_rule_that_needs_nothing_is_the_last_of_its_family():
    for rules in CRITERIA.values():
        assert all(rule.facts for rule in rules[:-1])


def test_each_key_of_a_cause_is_known_or_names_facts():
    known = {"meaning", "fix", "proof", "proven", "otherwise", "shared"}
    known |= {"pattern", "evidence", "family", "in_every_family"}
    for path in Path(inspect.getfile(causes)).parent.glob("*.toml"):
        for cause in tomllib.loads(path.read_text("utf-8")).get("causes", {}).values():
            for name in cause.keys() - known:
                assert isinstance(cause[name], dict) and {*name.split(" and ")} <= {*FACTS}, name


def test_a_fix_that_needs_nothing_is_the_last_of_its_cause(subtests):
    for cause in CAUSES.values():
        with subtests.test(cause=cause.name):
            assert all(fix.needs for fix in cause.fixes[:-1]) and not cause.fixes[-1].needs


def test_a_fix_is_marked_as_unproven_only_where_that_decides():
    decided = {cause for _, _, cause in PATTERNS} | {"checkpoint_raises"}
    rules = itertools.chain.from_iterable(CRITERIA.values())
    decided |= {rule.cause for rule in rules if rule.confidence in (CERTAIN, OBSERVED)}
    marked = [(cause.name, fix) for cause, fix in FIXES if fix.proof is None]
    # An alternative, and the confidence of other causes, say as much.
    assert not [(name, fix) for name, fix in marked if fix.otherwise or name not in decided]
    assert not [fix for cause, fix in FIXES if cause.family == "silent" and fix.proof]


def test_texts_name_the_carrier_or_stand_without_it(subtests):
    texts = [text for _, fix in FIXES for text in (fix.text, fix.otherwise) if text is not None]
    for text, names in itertools.product(
        texts, ({}, {"it": "buffer_of_mine", "tensor": "buffer_of_mine"})
    ):
        with subtests.test(text=text, names=names):
            shown = filled(text, names)
            assert "{" not in shown and shown == shown.strip()
            assert ("buffer_of_mine" in shown) == (
                bool(names) and bool(re.search(r"\{(it|tensor)\b", text))
            )


def test_no_sentence_of_a_text_is_longer_than_30_words():
    names = {
        "it": "model.memory",
        "tensor": "model.memory[-1]",
        "detached": "model.memory = model.memory.detach()",
    }
    texts = [filled(cause.meaning, names) for cause in CAUSES.values()]
    texts += [filled(fix.text, names) for _, fix in FIXES]
    texts += [filled(fix.otherwise or "", names) for _, fix in FIXES]
    sentences = [part for text in (*texts, *FACTS.values()) for part in re.split(r"\. +", text)]
    assert not [sentence for sentence in sentences if len(sentence.split()) > 30]


def test_texts_of_older_versions_are_known():
    assert family_of("Trying to backward through the graph second time, but …")[0] == "freed"
    assert family_of("something else") == (None, None)
