"""Edits give the program that a reader would have written, run by PyTorch."""

import inspect
import re
import sys
import traceback

import pytest
import torch

from gradtrace import Exploration, explore, trace
from gradtrace.notebook.reader_edits import Edits, definitions
from gradtrace.player.page import payload

FACTOR = 2.0


@pytest.fixture(autouse=True)
def _displayed(monkeypatch):
    monkeypatch.setattr(sys.modules[Exploration.__module__], "display", lambda _: None)


def two_losses(size=3):
    w = torch.ones(size, requires_grad=True)
    h = w.exp()
    a = h.sum()
    a.backward()
    b = (h * w).sum()
    b.backward()
    return w.grad


EDITS = {
    "retain": {"a.backward()": "a.backward(retain_graph=True)"},
    "add": {"a.backward()": "", "b.backward()": "(a + b).backward()"},
    "recompute": {"a.backward()": "...\nh = w.exp()"},
    "move": {"a.backward()": "", "b = (h * w).sum()": "...\na.backward(retain_graph=True)"},
}


def by_hand(*lines):
    """What the program gives when its lines are these."""
    body = "".join(f"    {line}\n" for line in lines)
    namespace = {"torch": torch}
    exec(
        f"def program():\n    w = torch.ones(3, requires_grad=True)\n{body}    return w.grad",
        namespace,
    )
    return namespace["program"]()


def test_every_edit_gives_the_gradients_of_the_program_written_by_hand():
    explored = explore(two_losses, edits=EDITS)
    start, loss = ["h = w.exp()", "a = h.sum()"], "b = (h * w).sum()"
    expected = {
        "retain": [*start, "a.backward(retain_graph=True)", loss, "b.backward()"],
        "add": [*start, loss, "(a + b).backward()"],
        "recompute": [*start, "a.backward()", "h = w.exp()", loss, "b.backward()"],
        "move": [*start, loss, "a.backward(retain_graph=True)", "b.backward()"],
        "add + recompute": [*start, "h = w.exp()", loss, "(a + b).backward()"],
    }
    for label, lines in expected.items():
        assert torch.equal(explored.edited(label)(), by_hand(*lines)), label
        source = explored.trace(edits=label).source
        assert [text.strip() for text in source.values()][2:-1] == lines, label
    assert explored.trace().error is not None  # as written it raises


def test_edits_that_replace_one_line_exclude_each_other():
    labels = Edits(two_losses, EDITS).labels
    assert labels == ["as written", *EDITS, "retain + recompute", "add + recompute",
                      "recompute + move"]  # fmt: skip


def test_line_numbers_are_those_of_the_file_and_of_the_traceback():
    explored = explore(two_losses, edits=EDITS)
    _, first = inspect.getsourcelines(two_losses)
    edited = explored.trace(edits="recompute")
    assert min(edited.source) == first
    assert edited.source[first + 5] == "    h = w.exp()"
    wrong = explore(two_losses, edits={"wrong": {"b.backward()": "b.backward(1, 2, 3, 4, 5)"}})
    with pytest.raises(TypeError) as error:
        wrong.edited("wrong")()
    assert "b.backward(1, 2, 3, 4, 5)" in "".join(traceback.format_exception(error.value))


def test_names_around_the_function_and_its_defaults_stay():
    factor = 3.0

    def inner(size=2, *, offset=1.0):
        """Its text may look like
        another line."""
        x = torch.ones(size, requires_grad=True)
        loss = (factor * x + offset).sum()
        loss.backward()
        return x.grad

    explored = explore(inner, edits={"double": {"loss.backward()": "(2 * loss).backward()"}})
    assert torch.equal(explored.edited("double")(), torch.full((2,), 6.0))


REFUSED = {
    "no line": ({"a": {"c.backward()": ""}}, "no line reads 'c.backward\\(\\)'"),
    "no program": ({"a": {"b.backward()": "b.backward("}}, "not a valid program"),
    "reserved": ({"as written": {"b.backward()": ""}}, "cannot be called 'as written'"),
    "two in one name": ({"a + b": {"b.backward()": ""}}, "cannot be called 'a \\+ b'"),
    "too many": (
        {str(k): {"b.backward()": f"...\nprint({k})"} for k in range(7)},
        "7 edits of two_losses have more than 64 combinations",
    ),
}


@pytest.mark.parametrize(("edits", "message"), REFUSED.values(), ids=REFUSED)
def test_edits_are_refused_with_the_reason(edits, message):
    with pytest.raises(ValueError, match=message):
        explore(two_losses, edits=edits)


def test_settings_of_parameters_count_towards_the_limit():
    with pytest.raises(ValueError, match=r"88 settings \(edits: 8 × size: 11\), and 64 is"):
        explore(two_losses, edits=EDITS, size=range(11))
    with pytest.raises(TypeError, match="edits= needs a function defined with def"):
        explore(torch.nn.Linear(2, 2), edits=EDITS)


def test_unknown_edits_are_named():
    explored = explore(two_losses, edits=EDITS)
    for call in (explored.edited, lambda edits: explored.trace(edits=edits)):
        with pytest.raises(
            ValueError, match=r"no edits 'retian'; its edits: 'as written', 'retain'"
        ):
            call("retian")
    with pytest.raises(ValueError, match="has no edits: list them"):
        explore(two_losses, size=[3]).edited("retain")


def helper(x):
    return FACTOR * x


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return helper(x)


def uses_globals():
    return Scaled.apply(torch.nn.functional.relu(torch.ones(1)))


def test_definitions_make_the_function_run_in_an_empty_namespace():
    text = definitions(uses_globals)
    namespace = {}
    exec(text + "\n" + inspect.getsource(uses_globals), namespace)
    assert torch.equal(namespace["uses_globals"](), uses_globals())
    assert re.search(r"^import torch$", text, re.MULTILINE)


def test_a_program_of_the_readers_own_runs_and_a_wrong_one_is_refused():
    explored = explore(two_losses, edits=EDITS, size=[3, 4])
    own = (
        "def two_losses(size=3):\n"
        "    w = torch.ones(size, requires_grad=True)\n"
        "    w.sum().backward()\n"
    )
    sent = []
    explored.player.send = sent.append
    explored.player._received(None, {"source": own}, [])
    assert explored.player.trace == payload(explored.trace())
    assert list(explored.trace().source.values())[-1].strip() == "w.sum().backward()"
    assert explored.player.setting == [None, 0]
    explored.controls["size"].widget.value = 4  # its parameters still apply
    assert explored.player.trace == payload(explored.trace())
    assert {row.shape for row in explored.trace().steps[-1].variables} == {(4,)}
    explored.player._received(None, {"source": "def two_losses(:"}, [])
    (message,) = sent
    assert "not a valid program" in message["refused"]
    explored.player.setting = [1, 0]  # back to a recorded one
    assert explored.player.trace == payload(explored.trace(edits="retain", size=3))
    assert trace(explored.edited("retain")).error is None
