"""The player: what it is given, how it follows, and that no page is broken by a program's text."""

import ast
import contextlib
import gzip
import html
import html.parser
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from trace_helpers import unpacked

import gradtrace.player.page
from gradtrace import Player, Trace, trace
from gradtrace.player.outcome import describe_outcome
from gradtrace.player.page import module, payload, static_html
from gradtrace.tracing import steps

PLAYER = Path(gradtrace.player.page.__file__).parent
EVIL = "</script><script>alert(1)</script><!--"


def fine():
    x = torch.ones(2, requires_grad=True)
    return x.exp()


def twice():
    loss = torch.ones(2, requires_grad=True).exp().sum()
    loss.backward()
    loss.backward()


def in_a_loop():
    loss = torch.ones(2, requires_grad=True).exp().sum()
    for _ in range(2):
        loss.backward()


def modified():
    y = torch.ones(2, requires_grad=True).exp()
    y.add_(1)
    y.sum().backward()


def unrelated():
    loss = torch.ones(2, requires_grad=True).exp().sum()
    loss.backward()
    raise ValueError("of its own")


def silent():
    raise AssertionError


def caught_before():
    loss = torch.ones(2, requires_grad=True).exp().sum()
    loss.backward()
    with contextlib.suppress(RuntimeError):
        loss.backward()
    return loss


def line_of(seen, source):
    return max(n for n, text in seen.source.items() if text.strip() == source)


def test_outcome_names_the_error_its_line_and_what_made_it():
    seen = trace(twice)
    first, second = describe_outcome(seen)
    last = line_of(seen, "loss.backward()")
    assert first.startswith(f"Line {last} raises RuntimeError: Trying to backward")
    assert second == (
        "The backward pass stopped in ExpBackward0, whose saved tensors were freed by "
        f"line {last - 1}."
    )


def test_outcome_of_the_same_line_in_a_loop():
    seen = trace(in_a_loop)
    line = line_of(seen, "loss.backward()")
    assert describe_outcome(seen)[1].endswith(f"were freed by line {line}, when it ran before.")


def test_outcome_of_a_modification():
    seen = trace(modified)
    line = line_of(seen, "y.add_(1)")
    assert describe_outcome(seen)[1] == (
        "The backward pass stopped in ExpBackward0, whose saved tensor was changed in place by "
        f"line {line}."
    )


def test_outcome_blames_backward_only_for_backward():
    (sentence,) = describe_outcome(trace(unrelated))
    assert sentence.endswith(" raises ValueError: of its own")
    assert describe_outcome(trace(silent))[0].endswith("raises AssertionError")
    assert describe_outcome(trace(caught_before)) == ["Ends without an error."]


def test_outcome_tells_what_was_not_recorded():
    seen = trace(twice, max_steps=1)
    _, unrecorded = describe_outcome(seen)
    assert unrecorded == "2 more lines ran before the last step and were not recorded."


def test_payload_is_json_and_holds_the_whole_trace():
    seen = trace(twice)
    data = json.loads(json.dumps(payload(seen)))
    names = [name for name, *_ in data["records"]["classes"]]
    records = {name: getattr(steps, name, tuple_of) for name in names}
    played = unpacked(data["records"], records)
    assert len(played.pop("views")[0][4]) == len(seen.nodes)
    assert list(played.pop("outcome")) == describe_outcome(seen)
    assert Trace(**played) == seen


def tuple_of(*values):
    return values


def test_marimo_gets_the_page_in_a_frame(tmp_path):
    seen = trace(twice)
    seen.to_html(tmp_path / "step.html")
    kind, frame = seen._mime_()
    page = html.unescape(frame.partition('srcdoc="')[2].rpartition('"')[0])
    assert (kind, page) == ("text/html", (tmp_path / "step.html").read_text(encoding="utf-8"))


def test_the_modules_are_joined_into_one_that_a_browser_takes(tmp_path):
    """No import is left, and no name is declared twice: they share one scope."""
    text = module()
    assert len(re.findall(r"^export ", text, re.MULTILINE)) == 1
    assert not re.search(r"^import ", text, re.MULTILINE)
    declared = [
        name
        for path in PLAYER.glob("*.js")
        for name in re.findall(
            r"^(?:export )?(?:class|const|let|function) (\w+)",
            path.read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    ]
    assert sorted(declared) == sorted(set(declared))
    files = {path.stem for path in PLAYER.glob("*.js")}
    imported = {
        name
        for path in PLAYER.glob("*.js")
        for name in re.findall(r'from "\./(\w+)\.js"', path.read_text(encoding="utf-8"))
    }
    assert imported - files == {"style"}  # made of player.css
    assert all(re.search(rf"\b(?:class|const|let|function) {name}\b", text) for name in declared)


def test_the_module_is_light():
    assert len(gzip.compress(module().encode(), 9)) <= 35_300


def test_player_opens_at_the_first_step_and_keeps_within_the_trace():
    player = Player(trace(twice))
    assert player.step == 0
    player.step = 99
    assert player.step == 3
    player.step = -1
    assert player.step == 0


def test_player_can_be_observed_and_given_another_trace():
    player = Player(trace(twice), step=3)
    seen = []
    player.observe(lambda change: seen.append((change["name"], player.step)))
    player.show(trace(fine))
    assert player.trace["function"] == "fine"
    assert player.step == 2
    assert {name for name, _ in seen} == {"trace", "step"}
    player.step = 1
    player.trace = payload(trace(twice))
    assert player.step == 1


class Page(html.parser.HTMLParser):
    """What a browser makes of a piece of HTML: its elements, and the text of each script."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.words = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.tags[-1] == "script" and self.cdata_elem == "script":
            self.scripts[-1] += data
        else:
            self.words.append(data)


def evil():
    x = {EVIL: torch.ones(1, requires_grad=True), "label": EVIL}
    label = EVIL
    raise ValueError(label, x)


@pytest.mark.parametrize("control", [[], [{"name": EVIL, "kind": "select", "options": [EVIL]}]])
def test_text_of_the_program_stays_text_on_the_page(control):
    seen = trace(evil)
    text = static_html([seen], control, [0] * len(control))
    assert text.count("<script") == text.count("</script>") == 2
    assert "<!--" not in text
    page = Page(text)
    assert set(page.tags) == {
        "div", "p", "style", "table", "thead", "tbody", "tr", "th", "td", "script",
    }  # fmt: skip
    data = json.loads(page.scripts[0])
    assert data["controls"] == control
    assert f"x[{EVIL!r}]" in str(unpacked(data["records"], defaultdict(lambda: tuple_of)))
    assert EVIL in " ".join(page.words)


def test_static_html_stands_alone():
    text = static_html([trace(twice)])
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "mountAll();" in Page(text).scripts[1]


def test_without_scripts_each_setting_has_its_outcome():
    controls = [
        {"name": "a", "kind": "checkbox", "options": ["False", "True"]},
        {"name": "b", "kind": "select", "options": ["x", "y", "z"]},
    ]
    traces = [trace(fine)] * 5 + [trace(twice)]
    words = Page(static_html(traces, controls, [0, 0])).words
    assert words[words.index("a = True, b = z") + 1].startswith("Line ")
    assert words[words.index("a = True, b = y") + 1] == "Ends without an error."
    assert words[words.index("a = False, b = x") + 1] == "Ends without an error."


DRAWN_ALONE = """
import sys, torch
before = set(sys.modules)
from gradtrace import trace
from gradtrace.player.page import static_html
def program():
    y = torch.ones(2, requires_grad=True).exp()
assert "ExpBackward0" in static_html([trace(program)])
brought = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(brought - sys.stdlib_module_names - {"gradtrace", "torch"}))
"""


def test_a_page_is_drawn_without_any_extra(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(DRAWN_ALONE)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    brought = ast.literal_eval(run.stdout)
    # The standard library names this one after the platform.
    assert [name for name in brought if not name.startswith("_sysconfigdata")] == []


RETAIN = [{"name": "retain_graph", "kind": "checkbox", "options": ["False", "True"]}]


def test_what_settings_have_in_common_is_told_once():
    text = static_html([trace(twice), trace(twice)], RETAIN, [0])
    data = json.loads(Page(text).scripts[0])
    kind, first, second = data["records"]["value"]
    assert kind == 0 and first == second
