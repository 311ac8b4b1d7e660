"""A quiz has one right answer a question, computed, and a reply to each choice."""

import pytest

from backward_twice import quiz


def choices(**right):
    return {text: (value, f"why {text}") for text, value in right.items()}


def test_it_says_what_is_right():
    asked = quiz({"Is `a` < b?": choices(yes=1 < 2, no=1 >= 2)})
    assert "✓ yes" in repr(asked) and "✓ no" not in repr(asked)
    page = asked._repr_mimebundle_()["text/html"]
    assert "Is <code>a</code> &lt; b?" in page
    assert page.count("data-right") - page.count("[data-right]") == 1


def test_one_question_has_no_number():
    one = quiz({"Is it?": choices(yes=1 < 2, no=1 >= 2)})
    page = one._repr_mimebundle_()["text/html"]
    assert "<legend>Is it?" in page and "Check my answer<" in page
    assert repr(one).startswith("Is it?")
    two = quiz({text: choices(yes=1 < 2, no=1 >= 2) for text in ("Is it?", "And this?")})
    page = two._repr_mimebundle_()["text/html"]
    assert "<legend>2. And this?" in page and "Check my answers<" in page


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        (choices(a=True, b=True), ValueError, "2 right choices (a; b)"),
        (choices(a=False, b=False), ValueError, "0 right choices (none)"),
        (choices(a=1, b=False), TypeError, "'a', a choice of 'Which?', is 1"),
        ({"a": (True, ""), "b": (False, "why")}, ValueError, "'a', a choice of 'Which?'"),
    ],
)
def test_what_cannot_be_asked_is_refused(asked, error, words):
    with pytest.raises(error) as refused:
        quiz({"Which?": asked})
    assert words in str(refused.value)
