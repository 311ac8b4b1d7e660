"""The floor under diagnosis: what was right of the cases stays right.

Here are all cases, and of the layouts three under a strict watch; ``make cases`` takes all.
"""

import json
import os
import re

import catalogue
import launch
import pytest
import score
from catalogue import FAILING, FIXED
from gradients import differences
from launch import PLAIN, RECORD, STRICT, Job

from gradtrace._torch import SAVED_TENSORS_SHOW_THEIR_DATA
from gradtrace.explaining.causes import CAUSES, FAMILIES

CASES = [case for case in catalogue.cases() if score.runnable(case)]
LAYOUTS = list(catalogue.layouts())
PART = ("function", "unrolled_two_names", "library_backward")
SOME_LAYOUTS = [one for one in LAYOUTS if one.name.removeprefix(f"{one.bug}_") in PART]
TESTED = [*CASES, *SOME_LAYOUTS]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


@pytest.fixture(scope="module")
def records():
    """Each program and its twin without a watch."""
    wanted = [(case, v) for case in TESTED for v in (FAILING, FIXED) if case.texts[v]]
    outcomes = launch.run([Job(case.files(v), case.main, RECORD) for case, v in wanted])
    return {(case.name, v): one for (case, v), one in zip(wanted, outcomes, strict=True)}


@pytest.fixture(scope="module")
def scores():
    return [*score.run_cases(CASES, (PLAIN, STRICT)), *score.run_cases(SOME_LAYOUTS, (STRICT,))]


def test_the_manifest_is_complete(subtests):
    for case in CASES:
        with subtests.test(case=case.name):
            assert case.texts[FIXED] and (case.healthy or case.main in case.texts[FAILING])
            assert set(case.families) <= set(FAMILIES) and set(case.causes) <= set(CAUSES)
            for file, line in (*case.raises, *case.began, *case.expert):
                assert case.texts[FAILING][file].splitlines()[line - 1].strip()
            assert all(case.says(variant, "obeys") for variant in case.advised)


def test_each_case_raises_where_the_manifest_says_and_its_twin_does_not(records, subtests):
    for case in TESTED:
        with subtests.test(case=case.name):
            stderr = "" if case.healthy else records[case.name, FAILING].stderr
            frames = re.findall(r'program/(.+?)", line (\d+)', stderr)
            raised = {(file, int(line)) for file, line in frames}
            assert not case.raises or not raised.isdisjoint(case.raises)
            assert records[case.name, FIXED].code == 0, records[case.name, FIXED].stderr


def test_a_step_of_a_twin_has_the_gradient_of_one_loss_alone(records, subtests):
    """Else one network's loss has leaked into another's step: the commonest wrong repair."""
    for case in TESTED:
        with subtests.test(case=case.name):
            steps = records[case.name, FIXED].report["steps"]
            if len({step["optimizer"] for step in steps}) > 1 and not case.together:
                assert all(len(step["losses"]) <= 1 for step in steps)


def test_what_was_right_is_right(scores):
    """``python gradtrace/cases/score.py --store`` makes what is right today the floor."""
    if not SAVED_TENSORS_SHOW_THEIR_DATA:
        pytest.skip("less is known on this PyTorch")
    floor = json.loads(score.FLOOR.read_text(encoding="utf-8"))
    lost = {
        f"{name}, {mode}": set(floor[name][mode].split()) - set(marks.split())
        for name, modes in score.right(scores).items()
        for mode, marks in modes.items()
    }
    assert not {where: marks for where, marks in lost.items() if marks}
    assert {case.name for case in [*CASES, *LAYOUTS]} == floor.keys()


def test_nothing_wrong_is_certain(scores):
    assert not [(one.case.name, one.mode) for one in scores if one.wrong_and_certain]


def test_a_strict_watch_is_never_worse_than_a_plain_one(scores):
    """Where the two disagree, one of them violates its own facts."""
    right = {(one.case.name, one.mode): {k for k, v in one.marks.items() if v} for one in scores}
    worse = {
        case.name: right[case.name, PLAIN] - right[case.name, STRICT]
        for case in CASES
        if not right[case.name, PLAIN] <= right[case.name, STRICT]
    }
    assert not worse


def test_what_is_obeyed_is_printed(scores):
    """A program in ``advised`` whose advice is printed no longer is mended, or goes."""
    if not SAVED_TENSORS_SHOW_THEIR_DATA:
        pytest.skip("less is known on this PyTorch")
    printed: dict[str, str] = {}
    for one in scores:
        printed[one.case.name] = printed.get(one.case.name, "") + one.printed
    stale = [
        (case.name, variant, quoted)
        for case in CASES
        for variant in case.advised
        for quoted in case.says(variant, "obeys")
        if printed[case.name] and quoted not in printed[case.name]
    ]
    assert not stale


def test_forked_processes_say_what_the_command_says():
    some = [case for case in CASES if case.name[:2] in ("01", "59", "83")]
    modes = (PLAIN, STRICT, STRICT)
    jobs = [Job(case.files(), case.main, mode) for case, mode in zip(some, modes, strict=True)]
    said = [[_steady(one) for one in launch.run(jobs, command)] for command in (False, True)]
    assert said[0] == said[1]


def _steady(outcome: launch.Outcome) -> tuple[int | None, str]:
    assert outcome.report is not None and (outcome.report["family"] or outcome.report["warnings"])
    return outcome.code, re.sub(r"/\S*/program/", "", json.dumps(outcome.report))


WRONG_REPAIRS = {
    "all backward passes first, then all steps": (
        "09_gan_step_between",
        ("optD.step()\noptG.zero_grad()\ng_loss.backward()\n", "g_loss.backward()\noptD.step()\n"),
        "gradient of 1 and of 2 losses",
    ),
    "detach what trains": (
        "47_poses_view_written",
        (
            '= dR @ poses[..., :3]\n        poses[..., 3] += self.dT[batch["img_idxs"]]',
            "= (dR @ poses[..., :3]).detach()\n"
            '        poses[..., 3] += self.dT[batch["img_idxs"]].detach()',
        ),
        "is not trained",
    ),
    "another loss": (
        "01_rnn_hidden_carried",
        ("    loss = (out(y)", "    h = h.detach()\n    loss = 2 * (out(y)"),
        "gradient 100% off",
    ),
    "it raises still": (
        "49_recurrent_block_cache",
        ("for step", "model.layers[1].rg_lru.recurrent_states = None\nfor step"),
        "ends with 1",
    ),
}


@pytest.mark.parametrize("name", WRONG_REPAIRS)
def test_a_wrong_repair_is_seen(name):
    of, (old, new), said = WRONG_REPAIRS[name]
    case = next(case for case in CASES if case.name == of)
    files = case.files()
    assert old in files[case.main]
    wrong = files | {case.main: files[case.main].replace(old, new)}
    twin, repaired = launch.run(
        [Job(case.files(FIXED), case.main, RECORD), Job(wrong, case.main, RECORD)]
    )
    assert any(said in problem for problem in score.problems(twin, repaired))


def test_what_differs_is_told_in_words():
    step = {"optimizer": 0, "gradients": [[1.0, 2.0], None], "losses": [0]}
    one = {"steps": [step], "losses": [1.0], "left": {}, "asked": []}
    assert differences(one, one) == []
    for change, said in (
        ({"gradients": [[1.0, 2.0], [1.0]]}, "is trained as well"),
        ({"gradients": [None, None]}, "is not trained"),
        ({"gradients": [[1.0, 4.0], None]}, "89% off"),
        ({"losses": [0, 1]}, "of 1 and of 2 losses"),
    ):
        found = differences(one, one | {"steps": [step | change]})
        assert any(said in problem for problem in found), (change, found)
    assert (
        differences(one, one | {"steps": [step | {"gradients": [[2.0, 4.0], None]}]}, False) == []
    )
