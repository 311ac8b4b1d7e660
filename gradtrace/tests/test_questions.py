"""A question is answered by the trace, each choice has a reply, and a bad question is refused."""

import json
import re
import sys
from dataclasses import asdict

import pytest
import torch

from gradtrace import Exploration, Player, explore, trace
from gradtrace.player.page import static_html
from gradtrace.questions import (
    DoesItRaise,
    HowManyBytes,
    Program,
    WhatIsFreedNext,
    WhichGetGradients,
    WhichIsTrue,
    WhichLineRaises,
    WhichSettings,
    WhichTensorGoesNext,
)

module = sys.modules[Exploration.__module__]


def twice(retain_graph, doubled=False):
    x = torch.ones(3, requires_grad=True)
    unused = torch.ones(1, requires_grad=True)
    y = x.exp()
    loss1 = y.mean()
    if doubled:
        loss1 = loss1 * 2
    loss2 = y.sum()
    loss1.backward(retain_graph=retain_graph)
    loss2.backward()
    return unused


def line(text):
    return next(n for n, source in trace(twice, True).source.items() if source.strip() == text)


FIRST = "loss1.backward(retain_graph=retain_graph)"
SECOND = "loss2.backward()"
OPTIONS = {"retain_graph": [("off", False), ("on", True)]}


def put(ask):
    program = Program(
        "twice", lambda retain_graph: trace(twice, retain_graph), OPTIONS, {"retain_graph": False}
    )
    return ask.put_to(program)


def test_the_line_that_raises_follows_the_setting():
    assert put(WhichLineRaises()).right == (line(SECOND),)
    retained = put(WhichLineRaises(setting={"retain_graph": True}))
    assert retained.right == ("none",)
    assert retained.setting == (1,)
    assert retained.replies["none"] == retained.explanation == "Ends without an error."


def test_every_line_has_a_reply_that_says_what_it_did():
    asked = put(WhichLineRaises(believes={FIRST: "Nothing was freed before it."}, why="So it is."))
    assert [choice["id"] for choice in asked.choices] == list(asked.replies)
    assert asked.replies[line(FIRST)] == (
        f"Line {line(FIRST)} ran. It freed the saved tensors of ExpBackward0. "
        "Nothing was freed before it."
    )
    assert "recorded MeanBackward0" in asked.replies[line("loss1 = y.mean()")]
    assert "does not run with this setting" in asked.replies[line("loss1 = loss1 * 2")]
    assert "never reached" in asked.replies[line("return unused")]
    right = asked.replies[line(SECOND)]
    assert right.startswith(
        f"Line {line(SECOND)} raises RuntimeError: Trying to backward through the graph a second "
        "time. The backward pass stopped in ExpBackward0, whose saved tensors were freed by line"
    )
    assert right.endswith("So it is.") and asked.explanation.endswith("So it is.")


def test_a_function_of_one_line():
    asked = WhichLineRaises().put_to(Program("one", lambda: trace(lambda: 1 / 0)))
    assert len(asked.right) == 1 and asked.right[0] in asked.replies


def test_does_it_raise():
    assert put(DoesItRaise()).right == ("raises",)
    runs = put(DoesItRaise(setting={"retain_graph": True}, believes={"raises": "It is retained."}))
    assert runs.right == ("runs",)
    assert runs.replies["raises"] == "Ends without an error. It is retained."


def test_the_node_that_is_freed_next():
    asked = put(WhatIsFreedNext(after="loss2 = y.sum()", believes={"SumBackward0": "Not on it."}))
    labels = {choice["id"]: choice["label"] for choice in asked.choices}
    assert [labels[node] for node in asked.right] == ["ExpBackward0"]
    said = {labels[node]: reply for node, reply in asked.replies.items()}
    assert said["x"].startswith("x is a leaf")
    assert said["SumBackward0"] == (
        "SumBackward0 saved no tensor, so backward has nothing to free there. Not on it."
    )
    assert trace(twice, False).steps[asked.at].ran == line("loss2 = y.sum()")


def test_the_tensor_that_is_deleted_next():
    def program():
        y = torch.ones(2, requires_grad=True).exp()
        z = y.pow(2)
        loss = (z * 3).sum()
        del y
        loss.backward()
        return z

    ask = WhichTensorGoesNext(
        after="loss = (z * 3).sum()", believes={"z": "Its name holds it.", "loss": "So does its."}
    )
    asked = ask.put_to(Program("program", lambda: trace(program)))
    labels = {choice["id"]: choice["label"] for choice in asked.choices}
    assert (
        "y, 8 B" in labels.values()
    )  # without its name ExpBackward0 and PowBackward0 still hold it
    said = {labels[tensor]: reply for tensor, reply in asked.replies.items()}
    assert said["z, 8 B"] == "It stays alive to the end (z). Its name holds it."
    assert said["y, 8 B"].startswith("Line ") and "drops its last reference" in said["y, 8 B"]
    assert any(labels[tensor].startswith("y") for tensor in asked.right)
    backward = next(n for n, text in trace(program).source.items() if "loss.backward()" in text)
    assert asked.explanation.startswith(f"Line {backward} drops the last reference to: ")


def test_tensors_without_a_name_are_called_by_their_savers_and_may_go_together():
    def program():
        x = torch.ones(2, requires_grad=True)
        y = x.exp() * 2
        loss = y.sum()
        loss.backward()

    ask = WhichTensorGoesNext(after="loss = y.sum()")
    asked = ask.put_to(Program("program", lambda: trace(program)))
    labels = [choice["label"] for choice in asked.choices]
    savers = ["saved by MulBackward0, 8 B", "saved by ExpBackward0, 8 B"]
    assert labels == ["y, 8 B", "loss, 4 B", *savers] and len(asked.right) == 2


def test_bytes_are_counted_and_named():
    asked = put(HowManyBytes(after=FIRST, believes={12: "It was freed.", 24: "Twice."}))
    assert asked.right == (0,)
    assert [choice["id"] for choice in asked.choices] == [0, 12, 24]
    kept = put(HowManyBytes(after=FIRST, setting={"retain_graph": True}, believes={0: "No."}))
    assert kept.right == (trace(twice, True).retained_bytes[kept.at],) != (0,)
    assert "ExpBackward0 (result 12 B)" in kept.replies[0]


def test_what_several_saved_is_said_once():
    def program():
        y = torch.ones(3, requires_grad=True).exp().exp()
        z = y * y
        return z

    line = "y = torch.ones(3, requires_grad=True).exp().exp()"
    several = Program("program", lambda: trace(program))
    asked = HowManyBytes(after=line, believes={0: "No."}).put_to(several)
    assert asked.explanation == "2 × ExpBackward0 (result 12 B) keep 24 bytes alive."
    asked = HowManyBytes(after="z = y * y", believes={0: "No."}).put_to(several)
    assert asked.right == (24,)
    assert asked.explanation.endswith(" A tensor that several nodes saved counts once.")


def test_a_change_in_place_is_told_of_a_tensor_that_has_a_graph():
    def program():
        h = torch.ones(2, requires_grad=True).exp()
        h += 1
        h.sum().backward()

    asked = WhichLineRaises().put_to(Program("program", lambda: trace(program)))
    replies = [asked.replies[choice["id"]] for choice in asked.choices]
    assert any(
        reply.endswith("It recorded AddBackward0. It changed h in place.") for reply in replies
    )


def test_gradients():
    asked = put(WhichGetGradients(setting={"retain_graph": True}))
    assert asked.right == ("x",)
    assert asked.replies["unused"] == "unused.grad is None."


def test_settings():
    assert put(WhichSettings(control="retain_graph")).right == ("off",)
    ends = put(WhichSettings(control="retain_graph", that=lambda seen: seen.error is None))
    assert ends.right == ("on",) and ends.replies["on"] == "That is true with `on`."
    grows = WhichSettings(control="retain_graph", that=lambda seen: len(seen.steps) > 99)
    assert put(grows).right == ("none of them",)


def test_an_option_may_be_called_none():
    program = Program("f", lambda fix: trace(lambda: fix), {"fix": [("none", 0)]}, {"fix": 0})
    asked = WhichSettings(control="fix").put_to(program)
    assert [choice["id"] for choice in asked.choices] == ["none", "none of them"]
    assert asked.right == ("none of them",)


def test_statements_compare_settings():
    ask = WhichIsTrue(
        statements={
            "retaining changes how it ends": lambda trace: (
                (trace(retain_graph=True).error is None)
                != (trace(retain_graph=False).error is None)
            ),
            "nothing changes": lambda trace: trace(retain_graph=True) == trace(retain_graph=False),
        },
        believes={"nothing changes": "One of the two raises."},
        why="What it keeps is read again.",
    )
    asked = put(ask)
    assert asked.right == ("retaining changes how it ends",)
    assert asked.replies["nothing changes"] == "One of the two raises."
    answer = "The right answer is: retaining changes how it ends."
    assert asked.explanation == f"{answer} What it keeps is read again."


BAD = {
    "a line that does not exist": (
        WhichLineRaises(believes={999: "?"}),
        "999, not one of the choices",
    ),
    "a text that no line has": (
        WhichLineRaises(believes={"y = 1": "?"}),
        "'y = 1', not one of the choices",
    ),
    "a belief on the right answer": (
        WhichLineRaises(believes={SECOND: "?"}),
        "is right .*no misconception",
    ),
    "a belief on what cannot be chosen": (
        DoesItRaise(believes={"perhaps": "?"}),
        "'perhaps', not one of the choices: raises, runs",
    ),
    "a node that is not there": (
        WhatIsFreedNext(after="loss2 = y.sum()", believes={"TanhBackward0": "?"}),
        "'TanhBackward0', not one of the choices",
    ),
    "nothing is freed after it": (WhatIsFreedNext(after=FIRST), "no node that exists .* freed"),
    "no tensor goes": (
        WhichTensorGoesNext(after="return unused", setting={"retain_graph": True}),
        "no tensor that exists after line .* is released later",
    ),
    "no such control": (DoesItRaise(setting={"fix": 1}), "no control 'fix' .*its controls: retain"),
    "no such option": (
        DoesItRaise(setting={"retain_graph": 1}),
        "1 is not an option of retain_graph; its options: off, on",
    ),
    "bytes without a place": (HowManyBytes(believes={1: "?"}), "say after which line"),
    "bytes without a choice": (HowManyBytes(after=FIRST), "give wrong numbers of bytes"),
    "a line that does not run": (
        HowManyBytes(after="loss1 = loss1 * 2", believes={1: "?"}),
        "does not run",
    ),
    "another control": (WhichSettings(control="fix"), "no control 'fix'; its controls: retain"),
    "nothing is true": (
        WhichIsTrue(statements={"a": lambda trace: False}, believes={"a": "?"}),
        r"0 of its statements are true \(none\)",
    ),
    "too much is true": (
        WhichIsTrue(statements={"a": lambda trace: True, "b": lambda trace: True}),
        r"2 of its statements are true \(a; b\)",
    ),
    "a false statement without a word": (
        WhichIsTrue(statements={"a": lambda trace: True, "b": lambda trace: False}),
        "'b' is false: give the misconception .* in believes=",
    ),
}


@pytest.mark.parametrize(("ask", "message"), BAD.values(), ids=BAD)
def test_a_bad_question_is_refused(ask, message):
    of_question = rf"^{type(ask).__name__} of twice: .*{message}"
    with pytest.raises(ValueError, match=of_question):
        put(ask)


@pytest.fixture
def displayed(monkeypatch):
    monkeypatch.setattr(module, "display", lambda shown: None)


def test_no_leaf_to_ask_about():
    with pytest.raises(ValueError, match="no variable there is a leaf that requires grad"):
        WhichGetGradients().put_to(Program("one", lambda: trace(lambda: 1)))


def test_explore_asks(displayed):
    explored = explore(twice, retain_graph=[False, True], ask=WhichLineRaises())
    assert explored.question.right == (line(SECOND),)
    assert explored.player.question == asdict(explored.question)
    assert explored.player.answer == []
    assert explored.player.step == 0


def test_explore_refuses_what_is_no_question(displayed):
    with pytest.raises(TypeError, match="ask='which\\?' is not a question"):
        explore(twice, retain_graph=[False, True], ask="which?")


def data_of(page):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, re.S)[1])


def test_a_page_without_scripts_folds_the_answer():
    asked = put(WhichLineRaises(prompt="Which of <these>?"))
    page = static_html([trace(twice, False)], question=asked)
    before, folded = page.split("<details>")
    assert "Which of &lt;these&gt;?" in before and "raises RuntimeError" not in before
    assert "raises RuntimeError" in folded.split("</details>")[0]
    stored = data_of(page)["question"]
    assert stored["right"] == list(asked.right)
    assert stored["replies"] == {str(id): reply for id, reply in asked.replies.items()}


def test_a_live_player_keeps_what_was_answered():
    player = Player(trace(twice, False), question=asdict(put(WhichLineRaises())))
    player.answer = ["none"]
    assert player.answer == ["none"] and player.question["kind"] == "line"
