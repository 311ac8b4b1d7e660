"""A wrong answer is told what it looks like, and its smallest case as a program that runs."""

import contextlib
import io
import re

import pytest
import torch
from test_exercises import NAMED, WRONG, answer_in, solution

from backward_twice.checks import calls, check, compare, question
from backward_twice.checks.asking import LOOKS_LIKE, SMALLEST_CASE
from backward_twice.checks.plain import loads
from backward_twice.checks.recognition import replies
from backward_twice.misconceptions import misconceptions_of

SEEDS = (0, 1)


def said_of(name, answer):
    """What ``check`` says of a wrong answer."""
    with pytest.raises(AssertionError) as error:
        check(name, answer)
    return str(error.value)


@NAMED
def test_every_misconception_that_runs_gets_its_reply_alone(exercise, name):
    name = f"{exercise}.{name}"
    asked, number = question(name), 0
    inputs = [asked.inputs(seed) for seed in SEEDS]
    for misconception in misconceptions_of(name):
        answer = misconception.answer(asked.answer)
        try:
            observed = [asked.observe(answer, each) for each in inputs]
        except Exception:
            continue  # its error says what is wrong
        assert replies(name, asked, observed, inputs) == [misconception.reply], misconception.name
        number += 1
    assert number


@NAMED
def test_a_right_answer_gets_no_reply(exercise, name):
    asked = question(f"{exercise}.{name}")
    answer = answer_in(solution(exercise), exercise, name)
    inputs = [asked.inputs(seed) for seed in SEEDS]
    observed = [asked.observe(answer, each) for each in inputs]
    assert replies(f"{exercise}.{name}", asked, observed, inputs) == []


def test_a_reply_is_two_sentences_at_most():
    for exercise, name, misconception in WRONG:
        where = f"{exercise}.{name}: {misconception.name}"
        assert re.fullmatch(r"[a-z_]+", misconception.name), where
        assert misconception.reply.endswith((".", "?")), where
        sentences = re.findall(r"[^.?]+(?:[.?](?!\s)[^.?]*)*[.?]", misconception.reply)
        assert all(len(sentence.split()) <= 30 for sentence in sentences), where


def test_the_check_says_the_belief_and_the_way_to_the_inputs():
    [detached] = [
        m for m in misconceptions_of("two_losses.one_update") if m.name == "detach_the_output"
    ]
    answer = detached.answer("one_update")
    said = said_of("two_losses.one_update", answer)
    assert f'{LOOKS_LIKE} "Detach what is shared."  It runs, and the trunk learns nothing' in said
    assert said.splitlines()[-1].strip() == (
        "The arguments of that call: calls('two_losses.one_update')"
    )
    broken = said_of("two_losses.one_update", lambda *given: 1 / 0)
    assert "ZeroDivisionError" in broken and "calls('two_losses.one_update')" in broken


def test_the_way_to_the_inputs_leads_to_the_case_that_is_wrong():
    """Right for what the first seed draws, wrong for the second: the second is told."""
    name, seen = "which_need_saved.refuses", []
    right = answer_in(solution("which_need_saved"), "which_need_saved", "refuses")
    first = [call.args[0] for call in calls(name)]

    def answer(chain):
        seen.append(chain)
        return right(chain) if chain in first else "?"

    said = said_of(name, answer)
    assert said.endswith(f"calls({name!r}, seed=1)")
    second = [call.args[0] for call in calls(name, seed=1)]
    assert seen == [*first, *second]


@NAMED
def test_an_answer_can_be_called_as_the_check_calls_it(exercise, name):
    answer = answer_in(solution(exercise), exercise, name)
    found = calls(f"{exercise}.{name}")
    assert found and repr(found[0])
    is_function = isinstance(answer, type) and issubclass(answer, torch.autograd.Function)
    found[0](answer.apply if is_function else answer)


# Programs


WITH_PROGRAM = [
    ("how_far_back", "steps_reached"),
    ("which_need_saved", "refuses"),
    ("which_need_saved", "bytes_held"),
    ("name_the_cause", "name_the_cause"),
    ("name_the_cause", "spoilt_gradient"),
    ("accumulated_gradients", "times_added"),
    ("shared_trunk", "retain_flags"),
    ("runs_again", "lines_run"),
    ("kept_gradients", "kept_values"),
]


def printed(program):
    """What a program prints, and the error that it ends with."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(program, {"torch": torch})
        except RuntimeError as error:
            return out.getvalue(), error
    return out.getvalue(), None


def cases(exercise, name, said=None):
    asked = question(f"{exercise}.{name}")
    for seed in range(20):
        inputs = loads(asked.inputs(seed))
        expected = asked.right(asked.inputs(seed))
        for what, right in expected.items():
            yield asked.program(what, said, **inputs), right, what, inputs


def test_the_programs_are_those_that_are_tried_here():
    found = {
        (exercise, name) for exercise, name, _ in WRONG if question(f"{exercise}.{name}").program
    }
    assert found == set(WITH_PROGRAM)


def test_a_chunks_program_prints_what_is_right():
    for program, right, *_ in cases("how_far_back", "steps_reached"):
        out, error = printed(program)
        assert error is None and out.split()[-1] == (str(right) if right else "False"), program


def test_a_chains_program_prints_what_it_saved_and_what_it_holds():
    for program, right, what, _ in cases("which_need_saved", "refuses"):
        saved = ["[]" not in line for line in printed(program)[0].splitlines()]
        assert len(saved) == what.count("→")
        assert right == next((k for k in reversed(range(len(saved))) if saved[k]), None)
    for program, right, _, inputs in cases("which_need_saved", "bytes_held"):
        rows, columns = inputs["chains"][0]["shape"]  # one shape for all chains
        assert int(printed(program)[0]) * rows * columns == 6 * right


def test_a_program_goes_wrong_as_the_one_asked_about():
    for program, right, what, _ in cases("name_the_cause", "name_the_cause"):
        if what.endswith("cause"):
            assert (printed(program)[1] is None) == (right is None)
    for program, *_ in cases("name_the_cause", "spoilt_gradient"):
        assert printed(program)[1] is None


def test_a_program_of_backward_calls_prints_what_was_added():
    for program, right, *_ in cases("accumulated_gradients", "times_added"):
        assert eval(printed(program)[0]) == right, program


def test_a_checkpoints_program_prints_how_many_lines_ran():
    for program, right, *_ in cases("runs_again", "lines_run"):
        out, error = printed(program)
        ran = [int(line) for line in out.splitlines()]
        assert right == ran + ["raises"] * (error is not None), program


@pytest.mark.filterwarnings("ignore:Using backward.* with create_graph=True")
def test_a_program_that_keeps_gradients_prints_what_they_hold():
    for program, right, *_ in cases("kept_gradients", "kept_values"):
        assert eval(printed(program)[0]) == right, program


def test_a_program_with_the_flags_that_were_given_raises_where_they_are_wrong():
    asked = question("shared_trunk.retain_flags")
    raised = 0
    for seed in range(20):
        inputs = loads(asked.inputs(seed))
        for n, program in enumerate(inputs["programs"], 1):
            flags = [False] * len(program["calls"])
            what = f"program {n}"
            source = asked.program(what, flags, **inputs)
            is_wrong = asked.expect(**inputs)[what] != flags
            assert is_wrong == (printed(source)[1] is not None)
            raised += is_wrong
    assert raised
    assert asked.program("program 1", "no flags", **inputs) == ""


def test_the_smallest_case_is_shown():
    said = said_of("how_far_back.steps_reached", lambda chunks: [steps for steps, _ in chunks])
    assert "✗ wrong: chunk 2: " in said and "'detach output'" in said
    program = said.partition(SMALLEST_CASE)[2]
    assert program.count("\n") < 15 and "state.detach().requires_grad" in program


# Words


def test_one_value_in_a_tuple_is_said_to_be_that():
    right = torch.ones(2)
    [finding] = compare({"gradient": right}, {"gradient": [right]})
    assert finding.text == (
        "a tuple or list of length 1, not a tensor of shape [2]; the right value is its only one"
    )
    [finding] = compare({"gradient": right}, {"gradient": [right + 1]})
    assert finding.text.endswith("return its only value")
    assert "value" not in compare({"gradient": right}, {"gradient": [right] * 2})[0].text
