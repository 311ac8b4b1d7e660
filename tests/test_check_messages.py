"""The text of a failed check: whose error it is, why autograd raised it, and what differs."""

import numpy
import pytest
import torch
from test_exercises import NAMED, answer_in, solution
from test_explanations import said_of

from backward_twice.checks import compare, question
from backward_twice.checks.asking import LOOKS_LIKE
from backward_twice.checks.plain import dumps, loads
from backward_twice.misconceptions import misconceptions_of

RESULTS = [None, 0, [], "text", torch.ones(()), lambda: 0]


def stored(exercise, name, misconception):
    [found] = [m for m in misconceptions_of(f"{exercise}.{name}") if m.name == misconception]
    return found, answer_in(solution(exercise), exercise, name, replaced=found.source)


@NAMED
def test_an_answer_is_not_blamed_for_an_error_that_it_did_not_raise(exercise, name):
    asked = question(f"{exercise}.{name}")
    for result in RESULTS:
        if exercise == "broken_script" and isinstance(result, str):
            continue  # the check runs a script that an answer returns: its error is the answer's
        text = said_of(f"{exercise}.{name}", lambda *args, result=result, **named: result)
        assert f"{asked.answer} raised" not in text, text


@pytest.mark.parametrize(
    "name", ["kept_gradients.record", "silently_wrong.mixed_loss", "two_losses.trunk_gradients"]
)
def test_an_answer_that_returns_nothing_is_said_to(name):
    text = said_of(name, lambda *args: None)
    assert "returned nothing (None), but its result is needed" in text


def test_an_error_of_the_answer_is_its_own_even_where_the_check_calls_it():
    def steps_reached(*args):
        return [][1]

    text = said_of("how_far_back.steps_reached", steps_reached)
    assert "steps_reached raised IndexError" in text
    assert "at its line: return [][1]" in text

    class Root(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, a):
            return x * a

        @staticmethod
        def backward(ctx, grad):
            return {}["nothing"], grad

    text = said_of("custom_function.root", Root)
    assert "Root raised KeyError" in text and 'at its line: return {}["nothing"], grad' in text


def test_an_autograd_error_is_explained():
    _, answer = stored("moving_window", "train", "stored_detached")
    text = said_of("moving_window.train", answer)
    assert "does not require grad" in text and "gradtrace: " in text and "    fix:" in text
    assert "checks/" not in text  # no line that the learner cannot edit


def test_another_error_is_not():
    text = said_of("moving_window.train", lambda *args: 1 / 0)
    assert "ZeroDivisionError" in text and "gradtrace:" not in text


@NAMED
def test_a_misconception_lacks_no_name(exercise, name):
    asked = question(f"{exercise}.{name}")
    for misconception in misconceptions_of(f"{exercise}.{name}"):
        try:
            asked.observe(misconception.answer(asked.answer), asked.inputs(0))
        except Exception as error:
            assert not isinstance(error, NameError), misconception.name


@pytest.mark.parametrize(
    ("exercise", "name", "misconception"),
    [
        ("moving_window", "train", "output_detached"),
        ("strengths", "gradients", "grad_appended"),
        ("strengths", "gradients", "grad_appended_at_once"),
        ("uneven_pieces", "accumulate", "mean_over_count"),
        ("uneven_pieces", "accumulate", "all_pieces_first"),
        ("kept_gradients", "record", "the_tensor_itself"),
        ("kept_gradients", "record", "detached"),
    ],
)
def test_the_only_reply_is_the_right_one(exercise, name, misconception):
    found, answer = stored(exercise, name, misconception)
    text = said_of(f"{exercise}.{name}", answer)
    assert [line.strip() for line in text.splitlines() if LOOKS_LIKE in line] == [
        f"{LOOKS_LIKE} {found.reply}"
    ]


def test_what_is_expected_is_said():
    [number] = compare({"n": 0}, {"n": 5})
    [truth] = compare({"n": False}, {"n": True})
    assert number.text == "expected 0, got 5" and truth.text == "expected False, got True"
    [times] = compare({"n": 2.0}, {"n": 4.0})
    assert times.text == "expected 2, got 4; it is 2 times the right one"


def test_a_scalar_of_numpy_is_a_number():
    scalars = [numpy.float32(0.5), numpy.float64(0.5), numpy.int64(3), numpy.bool_(True)]
    assert loads(dumps(scalars)) == [0.5, 0.5, 3, True]
    assert [type(value) for value in loads(dumps(scalars))] == [float, float, int, bool]
