"""The player in a real browser, on pages made here: it asks, shows, folds, explains."""

import functools
import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from torch import nn

import gradtrace.player
from gradtrace import trace
from gradtrace.draw.layout import drawings_of
from gradtrace.draw.svg import size
from gradtrace.player.page import module, payload, static_html
from gradtrace.player.trace_scene import scene_of
from gradtrace.questions import (
    HowManyBytes,
    Program,
    WhatIsFreedNext,
    WhichGetGradients,
    WhichLineHoldsMost,
    WhichLineRaises,
    WhichNodeRunsNext,
    WhichSettings,
    WhichTensorGoesNext,
)


def shared():
    x = torch.ones(3, requires_grad=True)
    features = x.exp()
    a = features.mean()
    b = features.pow(2).mean()
    a.backward()
    b.backward()


def retained(retain_graph):
    x = torch.arange(4.0, requires_grad=True)
    loss = x.exp().mean()
    if retain_graph:
        print(end="")
    loss.backward(retain_graph=retain_graph)
    loss.backward()


def changed():
    y = torch.ones(3, requires_grad=True).exp()
    y.add_(1)
    return y


def layers():
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(30)))
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()


def passing():
    x = torch.ones(3, requires_grad=True)
    features = x.exp()
    loss = features.sin().pow(2).sum()
    loss.backward()


def long():
    x = torch.ones(3, requires_grad=True)
    y = x
    for _ in range(60):
        y = y.exp()
        y = y.sin()
    y.sum().backward()
    z = y * x
    z = z + 1
    z = z.sum()
    y.sum().backward()


def recurrent():
    model = nn.GRU(3, 2)
    hidden = None
    for _ in range(2):
        output, hidden = model(torch.ones(5, 2, 3), hidden)
    output.sum().backward()


def training():
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    loss = (model(torch.ones(4, 8)) - 1).pow(2).mean()
    twice = loss * 2
    loss.backward()
    twice.backward()


CONTROL = {"name": "retain_graph", "kind": "checkbox", "options": ["False", "True"]}


def line(function, text):
    source = trace(
        functools.partial(function, True) if function in (retained, branches) else function
    ).source
    (found,) = [number for number, line in source.items() if line.strip() == text]
    return found


def asked(question, function):
    return question.put_to(Program(function.__name__, lambda **_: trace(function)))


@pytest.fixture
def show(visit, page, tmp_path):
    """Open a page with these pieces of HTML between paragraphs."""

    def show(*pieces, before=""):
        body = "".join(f"<p>Prose.</p>{piece}" for piece in pieces)
        page.set_default_timeout(5000)
        file = tmp_path / "page.html"
        file.write_text(
            '<!doctype html><html lang="en"><title>t</title><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width">'
            "<style>html[data-theme=dark] {background: #121212; color: #ddd}</style>"
            f"<body><main><h1>h</h1>{before}{body}</main>"
        )
        return visit(file.as_uri(), file.as_uri())

    return show


def player(page, function):
    return page.locator(f'.gradtrace[data-function="{function}"]')


def position(place):
    return place.locator(".position").inner_text()


FOCUSED = "document.activeElement.shadowRoot.activeElement.dataset.line"


def opened_at(page, function):
    """The player of a function, in view and built."""
    place = player(page, function)
    place.scroll_into_view_if_needed()
    place.locator(".player").wait_for()
    return place


def step_after(place, number):
    steps = place.evaluate("place => place.gradtrace.trace.steps.map(step => step.ran)")
    place.evaluate("(place, step) => place.gradtrace.go(step)", steps.index(number))


def test_a_page_unpacks_what_was_traced(show, page):
    """What is stored once is there again: nodes, lines, views."""
    seen = trace(recurrent)
    page = show(static_html([seen]))
    opened_at(page, "recurrent")
    read = page.evaluate("""() => {
      const { nodes, tensors, steps, views } = document.querySelector(".gradtrace").gradtrace.trace;
      return { nodes, tensors, steps, views };
    }""")

    def known(parts):
        return json.loads(json.dumps([asdict(part) for part in parts]))

    drawings = drawings_of(scene_of(seen))
    assert len(drawings) > 1
    parts = {"nodes": seen.nodes, "tensors": seen.tensors, "steps": seen.steps, "views": drawings}
    assert read == {name: known(some) for name, some in parts.items()}


def test_a_question_hides_what_answers_it_and_replies_to_the_answer(show, page):
    belief = "The first backward finds all that was saved."
    question = asked(WhichLineRaises(believes={"a.backward()": belief}), shared)
    page = show(
        static_html([trace(shared)], question=question),
        before='<div class="gradtrace-answers"></div>',
    )
    place = opened_at(page, "shared")
    assert position(place).startswith("step 1 of 7")
    assert not place.locator(".outcome").is_visible()
    assert not place.locator(".memory svg").is_visible()
    place.get_by_label("Step over").click(force=True)  # it looks disabled, and is
    place.get_by_label("Last step").press("Enter")
    assert position(place).startswith("step 1 of 7")

    # With the keyboard: to the line, choose it, check.
    place.locator(".lines [tabindex='0']").focus()
    wrong = line(shared, "a.backward()")
    for _ in range(10):
        if page.evaluate(FOCUSED) == str(wrong):
            break
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert "You chose a.backward()" in place.locator(".hint").inner_text()
    page.keyboard.press("Enter")  # the focus is on Check
    reply = place.locator(".reply").inner_text()
    assert reply.startswith("✗ Not right. You chose a.backward(): ") and belief in reply
    assert position(place) == "step 7 of 7: end"
    assert "Trying to backward" in place.locator(".outcome").inner_text()
    assert place.locator(".lines .picked").get_attribute("data-line") == str(wrong)
    assert place.locator(".lines .right").count() == 1
    assert "right in 0 of 1 question" in page.locator(".gradtrace-answers").inner_text()

    # The answer is kept, and can be forgotten.
    page.reload()
    opened_at(page, "shared")
    assert "Not right." in place.locator(".reply").inner_text()
    page.get_by_role("button", name="Forget these answers").click()
    assert place.locator(".reply").inner_text() == ""
    assert not place.locator(".outcome").is_visible()
    assert page.complaints == []


def test_a_node_and_a_number_of_bytes_are_answers_too(show):
    made = "b = features.pow(2).mean()"
    freed = asked(WhatIsFreedNext(after=made), shared)
    held = asked(HowManyBytes(after=made, believes={24: "Once for each node."}), shared)
    twin = static_html([trace(shared)], question=held).replace('"shared"', '"again"', 1)
    page = show(static_html([trace(shared)], question=freed), twin)
    place = opened_at(page, "shared")
    assert position(place).startswith("step 5 of 7")  # where the nodes are
    place.locator(".scroll .box", has_text="ExpBackward0").click()
    place.get_by_role("button", name="Check").click()
    assert place.locator(".reply").inner_text().startswith("✓ Right.")
    assert position(place).startswith("step 6 of 7")
    again = opened_at(page, "again")
    again.get_by_role("button", name="24 B").click()
    again.get_by_role("button", name="Check").click()
    assert "Once for each node." in again.locator(".reply").inner_text()


@pytest.mark.parametrize("size", [(1440, 900), (820, 1180), (360, 800)])
def test_a_tensor_is_chosen_by_keyboard_and_by_finger(show, page, browser, size):
    page.set_viewport_size({"width": size[0], "height": size[1]})
    question = asked(WhichTensorGoesNext(after="loss = features.sin().pow(2).sum()"), passing)
    place = opened_at(show(static_html([trace(passing)], question=question)), "passing")
    wanted = place.locator(".scroll .thing.choice", has_text="features")
    names = [choice["label"] for choice in question.choices]
    assert wanted.count() == 1 and len(names) > 1
    place.locator(".scroll [tabindex='0']").focus()
    for _ in range(20):
        if wanted.evaluate("thing => thing.matches(':focus')"):
            break
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert place.locator(".hint").inner_text().startswith("You chose features")
    page.keyboard.press("Enter")  # the focus is on Check
    by_keyboard = place.locator(".reply").inner_text()
    assert "It stays alive to the end (features)" in by_keyboard
    with browser.new_context(
        viewport={"width": size[0], "height": size[1]}, has_touch=True, color_scheme="dark"
    ) as context:
        touched = context.new_page()
        touched.goto(page.url)
        place = opened_at(touched, "passing")
        place.locator(".scroll .thing.choice", has_text="features").tap()
        place.get_by_role("button", name="Check").tap()
        assert place.locator(".reply").inner_text() == by_keyboard


def test_a_setting_as_answer_is_then_shown(show):
    settings = {"retain_graph": (("False", 0), ("True", 1))}
    traces = [trace(functools.partial(retained, keep)) for keep in (False, True)]
    asking = WhichSettings(control="retain_graph", that=lambda seen: seen.error is None)
    question = asking.put_to(
        Program(
            "retained", lambda retain_graph: traces[retain_graph], settings, {"retain_graph": 0}
        )
    )
    page = show(static_html(traces, [CONTROL], [0], question=question))
    place = opened_at(page, "retained")
    assert place.get_by_role("switch").is_disabled()
    place.get_by_role("button", name="True", exact=True).click()
    place.get_by_role("button", name="Check").click()
    assert place.locator(".reply").inner_text().startswith("✓ Right.")
    assert place.get_by_role("switch").is_checked()
    assert place.locator(".outcome").inner_text() == "✓ Ends without an error."


def test_of_several_answers_some_are_right_and_to_ask_again_keeps_the_focus(show, page):
    def program(a):
        w = torch.ones(2, requires_grad=True)
        v = torch.ones(2, requires_grad=True)
        (w * v).sum().backward()

    traces = [trace(program, 1)]
    question = WhichGetGradients(believes={"none of them": "Both are multiplied."}).put_to(
        Program("program", lambda **_: traces[0])
    )
    place = opened_at(show(static_html(traces, question=question)), "program")
    place.get_by_role("button", name="w", exact=True).click()
    place.get_by_role("button", name="Check").click()
    reply = place.locator(".reply").inner_text()
    assert reply.startswith("◐ Right, but not all. You chose w.") and "Missed: v: " in reply
    page.keyboard.press("Enter")  # the focus is on Ask me again
    page.keyboard.press("Space")  # and goes to the first choice
    assert "You chose w" in place.locator(".hint").inner_text()


def test_on_a_phone_a_choice_leads_to_check_and_to_the_reply(show, page):
    page.set_viewport_size({"width": 360, "height": 500})
    question = asked(WhatIsFreedNext(after="b = features.pow(2).mean()"), shared)
    place = opened_at(show(static_html([trace(shared)], question=question)), "shared")
    check = place.get_by_role("button", name="Check")

    def seen(part):
        box = part.bounding_box()
        return box["y"] >= 0 and box["y"] + box["height"] <= 500

    place.locator(".variables").evaluate("table => table.scrollIntoView({ block: 'end' })")
    assert not seen(check)
    place.locator(".graph [role=button]", has_text="ExpBackward0").dispatch_event("click")
    assert seen(check)
    place.locator(".variables").evaluate("table => table.scrollIntoView({ block: 'end' })")
    check.dispatch_event("click")
    assert seen(place.locator(".reply"))


def test_the_line_that_holds_the_most_is_shown_when_it_does(show):
    seen = trace(shared)
    question = asked(WhichLineHoldsMost(), shared)
    place = opened_at(show(static_html([seen], question=question)), "shared")
    place.get_by_role("button", name="Show me").click()
    most = max(step.held[0] for step in seen.steps)
    assert f"{most} B held" in place.locator(".reading").inner_text()


def test_a_tensor_that_a_graph_comes_to_save_is_not_bound_anew(show):
    def program():
        x, layer = torch.ones(3, 2), nn.BatchNorm1d(2)
        y = layer(x)
        x = y * 2
        return x

    place = opened_at(show(static_html([trace(program)])), "program")
    step_after(place, line(program, "y = layer(x)"))
    assert "bound again" not in place.locator("table.mono").inner_text()
    assert "changed in place" in place.locator("table.mono").inner_text()  # the running mean
    step_after(place, line(program, "x = y * 2"))
    assert place.locator("table.mono").inner_text().count("bound again") == 1


def test_only_another_object_is_bound_anew(show):
    def program():
        x = torch.ones(2)
        x.requires_grad_()
        y = x.exp()
        y.mul_(2)
        y = x
        return y

    place = opened_at(show(static_html([trace(program)])), "program")
    said = place.locator("table.mono")
    step_after(place, line(program, "x.requires_grad_()"))
    assert "bound again" not in said.inner_text()
    step_after(place, line(program, "y.mul_(2)"))
    assert "bound again" not in said.inner_text()
    assert "changed in place" in said.inner_text()
    step_after(place, line(program, "y = x"))
    assert said.inner_text().count("bound again") == 1


def test_the_last_line_is_not_credited_with_what_was_not_recorded(show):
    def program():
        w = x = torch.ones(2, requires_grad=True)
        for _ in range(9):
            x = x * w
        x.sum().backward()
        return w

    place = opened_at(show(static_html([trace(program, max_steps=5)])), "program")
    place.get_by_label("Last step").press("Enter")
    assert "more that were not recorded" in position(place)
    assert place.locator(".lines .flag").count() == 0


def test_backward_drops_references_and_a_tensor_goes_with_its_last(show):
    page = show(static_html([trace(shared)]))
    place = opened_at(page, "shared")
    features = place.locator(".scroll .thing", has_text="features")
    step_after(place, line(shared, "b = features.pow(2).mean()"))
    assert place.locator(".reference.saved").count() == 2  # exp's result and pow's self: one tensor
    assert place.locator(".scroll .thing:not(.absent)", has_text="12 B").count() == 1
    step_after(place, line(shared, "a.backward()"))
    assert place.locator(".reference.saved").count() == 1
    assert place.locator(".reference.cut").count() == 1
    assert features.is_visible()
    assert place.locator(".scroll .box.cut").get_attribute("aria-description").endswith("freed now")
    assert "✂ 1 freed" in place.locator(".lines .ran").inner_text()
    assert "gradient written" in place.locator("tr.gradient").inner_text()
    place.get_by_label("Last step").click()
    assert place.locator(".scroll .box.stopped", has_text="stopped here").count() == 1
    assert place.locator(".scroll .box.freed:not(.cut)", has_text="ExpBackward0").count() == 1


def test_what_opens_stands_still_and_a_step_moves_unless_that_is_unwanted(show, page):
    moving = "place => place.gradtrace.box.getAnimations({ subtree: true }).length"
    cut = {"after": line(shared, "a.backward()")}
    page = show(static_html([trace(shared)]).replace('"step":null', f'"step":{json.dumps(cut)}'))
    place = opened_at(page, "shared")
    assert place.locator(".reference.cut").count() == 1
    assert place.evaluate(moving) == 0
    place.get_by_label("Step back").click()
    place.get_by_label("Step over").click()
    assert place.evaluate(moving) > 0
    page.emulate_media(reduced_motion="reduce")
    place.get_by_label("Step back").click()
    place.get_by_label("Step over").click()
    assert place.evaluate(moving) == 0


def test_a_step_is_laid_out_a_few_times_however_much_it_changes(show, page):
    place = opened_at(show(static_html([trace(layers)]), static_html([trace(long)])), "layers")
    counts = page.context.new_cdp_session(page)
    counts.send("Performance.enable")

    def layouts():
        metrics = counts.send("Performance.getMetrics")["metrics"]
        return next(metric["value"] for metric in metrics if metric["name"] == "LayoutCount")

    stepped = """place => {
      const { box } = place.gradtrace;
      for (const step of [0, Infinity, 1, Infinity, 2, Infinity]) {
        place.gradtrace.go(step);
        box.getBoundingClientRect();
      }
    }"""
    for name in ("layers", "long"):
        place = opened_at(page, name)
        before = layouts()
        place.evaluate(stepped)
        assert layouts() - before <= 6 * 3


def test_a_change_in_place_is_marked_in_graph_table_and_source(show):
    page = show(static_html([trace(changed)]))
    place = opened_at(page, "changed")
    step_after(place, line(changed, "y.add_(1)"))
    assert "▲ v1 ≠ v0" in place.locator(".scroll .box.modified").text_content()
    assert "changed in place" in place.locator("tr.changed").inner_text()
    assert "▲ 1 changed" in place.locator(".lines .ran").inner_text()


def test_line_node_and_variable_light_each_other(show, page):
    page = show(static_html([trace(shared)]))
    place = opened_at(page, "shared")
    place.get_by_label("Last step").click()
    made = line(shared, "features = x.exp()")
    place.locator(f'[data-line="{made}"]').hover()
    assert place.locator(".scroll .box.lit").text_content().startswith("ExpBackward0")
    assert place.locator("tr.lit th").first.inner_text() == "features"
    place.locator("tr", has_text="features").hover()
    assert place.locator(".lines .lit").get_attribute("data-line") == str(made)
    page.mouse.move(0, 0)
    assert place.locator(".lit").count() == 0
    place.locator(".scroll .box", has_text="PowBackward0").focus()
    lit = place.locator(".lines .lit").get_attribute("data-line")
    assert lit == str(line(shared, "b = features.pow(2).mean()"))


def test_a_large_graph_is_folded_and_opens_level_by_level(show, page):
    page = show(static_html([trace(layers)]))
    place = opened_at(page, "layers")
    step_after(place, line(layers, "loss = model(torch.ones(2, 4)).sum()"))
    assert 0 < place.locator(".scroll .box:not(.absent)").count() <= 40
    group = place.locator(".scroll .box.group:not(.absent)").first
    group.focus()
    page.keyboard.press("Enter")
    crumbs = place.get_by_label("Levels of the graph")
    assert crumbs.locator("button").count() == 1
    assert place.locator(".scroll .box:not(.absent)").count() > 0
    page.keyboard.press("Escape")
    assert crumbs.locator("button").count() == 0
    row = place.locator("tr", has_text="60 parameters")
    assert "with grad" in row.inner_text()
    before = place.locator("tbody tr").count()
    row.get_by_role("button").click()
    assert place.locator("tbody tr").count() == before + 60


SAYS = "line => getComputedStyle(line.querySelector('.text'), '::after').content"


def test_a_control_keeps_the_line(show):
    traces = [trace(functools.partial(retained, retain_graph=keep)) for keep in (False, True)]
    page = show(static_html(traces, [CONTROL], [0]))
    place = opened_at(page, "retained")
    first = line(retained, "loss.backward(retain_graph=retain_graph)")
    step_after(place, first)
    assert position(place).endswith(f"before line {first + 1}")
    not_run = place.locator(f'[data-line="{first - 1}"]')
    assert not_run.evaluate(SAYS).endswith('not run"')
    place.get_by_role("switch").click()
    assert position(place).endswith(f"before line {first + 1}")
    assert not_run.evaluate(SAYS) == "none"


def branches(first):
    x = torch.ones(2, requires_grad=True)
    for _ in range(2):
        if first:
            y = x.exp()
            z = y.sin()
        else:
            z = x.cos()
    return z


def test_a_setting_that_takes_another_path_stands_after_the_last_common_line(show):
    control = CONTROL | {"name": "first"}
    traces = [trace(functools.partial(branches, first)) for first in (True, False)]
    page = show(static_html(traces, [control], [0]))
    place = opened_at(page, "branches")
    second = line(branches, "z = y.sin()")
    scrub(place, next(i for i, step in enumerate(traces[0].steps) if step.line == second))
    place.get_by_role("switch").click()
    assert position(place).endswith(f"before line {line(branches, 'z = x.cos()')}")


def scrub(place, step):
    place.get_by_role("slider", name="Step").evaluate(
        "(slider, step) => { slider.value = step; slider.dispatchEvent(new Event('input')); }", step
    )


def test_the_chart_says_its_bytes_and_moves_the_player(show, page):
    page = show(static_html([trace(shared)]))
    place = opened_at(page, "shared")
    assert place.locator(".memory .axis", has_text=" B").count() == 2
    chart = place.locator(".memory svg").first
    box = chart.bounding_box()
    chart.click(position={"x": box["width"] - 10, "y": 40})
    last = line(shared, "b.backward()")
    assert place.locator(".reading").inner_text().startswith(f"After line {last}: 0 B held")
    assert position(place) == "step 7 of 7: end"


def test_links_in_the_prose_move_a_player(show, page):
    after = line(shared, "a.backward()")
    links = (
        f'<p><a id="a" href="#play:shared:after={after}">after</a> '
        '<a id="b" href="#play:retained:step=2:retain_graph=True">setting</a></p>'
    )
    traces = [trace(functools.partial(retained, retain_graph=keep)) for keep in (False, True)]
    page = show(
        static_html([trace(shared)]),
        "<div style='height: 4000px'></div>",
        static_html(traces, [CONTROL], [0]),
        before=links,
    )
    place = opened_at(page, "shared")
    page.locator("#a").click()
    assert position(place).startswith("step 6 of 7")
    page.mouse.move(0, 0)  # else the line under it may be lit
    assert place.locator(".lines .lit").get_attribute("data-line") == str(after)
    assert player(page, "retained").evaluate("place => place.gradtrace === undefined")
    page.locator("#b").click()
    other = player(page, "retained")
    assert position(other).startswith("step 2 of")
    assert other.get_by_role("switch").is_checked()
    assert page.complaints == []


def test_a_player_is_built_when_it_comes_near_and_moves_nothing(show, page):
    page.set_viewport_size({"width": 1200, "height": 800})
    page.add_init_script(
        "window.shifts = [];"
        "new PerformanceObserver((list) => window.shifts.push(...list.getEntries()"
        ".map((entry) => entry.value))).observe({ type: 'layout-shift', buffered: true });"
    )
    gap = "<div style='height: 3000px'></div>"
    names = ("shared", "second", "third")
    pieces = [static_html([trace(shared)]).replace('"shared"', f'"{name}"', 1) for name in names]
    page = show(*(gap + piece for piece in pieces))
    built = "() => [...document.querySelectorAll('.gradtrace')].map((place) => !!place.gradtrace)"
    assert page.evaluate(built) == [False, False, False]
    page.evaluate("scrollTo(0, 2500)")
    page.wait_for_function(f"({built})()[0]")
    assert page.evaluate(built) == [True, False, False]
    page.wait_for_timeout(200)
    assert page.evaluate("shifts") == []


def test_a_phone_shows_code_graph_and_bar_at_once(show, page):
    page.set_viewport_size({"width": 360, "height": 800})
    page = show(static_html([trace(shared)]))
    place = opened_at(page, "shared")
    place.get_by_label("Step over").click()
    place.evaluate("place => place.scrollIntoView()")
    boxes = [place.locator(name).bounding_box() for name in (".source", ".graph", ".bar")]
    assert all(box["y"] >= -1 and box["y"] + box["height"] <= 801 for box in boxes), boxes
    assert boxes[0]["height"] >= 5 * 19
    assert boxes[0]["y"] <= 2  # no question, and no room for one
    assert all(label.is_visible() for label in place.locator(".label").all())
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    current = place.locator(".lines .next").bounding_box()
    assert boxes[0]["y"] <= current["y"] <= boxes[0]["y"] + boxes[0]["height"]
    cut = place.locator(".scroll").evaluate("box => box.scrollWidth - box.clientWidth")
    assert cut <= 1  # the whole of a small drawing


def test_on_a_phone_the_line_that_a_question_is_about_is_in_view(show, page):
    page.set_viewport_size({"width": 375, "height": 800})
    question = asked(WhatIsFreedNext(after="a.backward()"), shared)
    page = show(static_html([trace(shared)], question=question))
    place = opened_at(page, "shared")
    source, current = (place.locator(name).bounding_box() for name in (".source", ".lines .next"))
    assert source["y"] <= current["y"]
    assert current["y"] + current["height"] <= source["y"] + source["height"] + 1


def test_on_a_phone_the_bar_sticks_and_a_question_about_lines_has_the_screen(show, page):
    page.set_viewport_size({"width": 360, "height": 640})
    question = asked(WhichLineRaises(), long)
    page = show(static_html([trace(long)], question=question), "<div style='height: 3000px'></div>")
    place = opened_at(page, "long")
    source, bar = place.locator(".source"), place.locator(".bar")
    assert source.evaluate("box => box.scrollHeight - box.clientHeight") <= 0
    assert not place.locator(".graph").is_visible() and not bar.is_visible()
    place.get_by_role("button", name="Show me").click()
    assert place.locator(".graph").is_visible()
    for name in (".source", ".graph", ".variables"):
        place.locator(name).evaluate("part => part.scrollIntoView({ block: 'start' })")
        top = place.locator(name).bounding_box()["y"]
        place.locator(name).evaluate("(part, by) => scrollBy(0, by)", top - 250)
        box = bar.bounding_box()
        if name == ".variables":  # past its place
            assert box["y"] < 250
        else:
            assert box["y"] + box["height"] <= 641  # its place is below the window, or it fits


@pytest.mark.parametrize("width", [360, 820, 1440])
def test_no_column_of_the_table_is_cut(show, page, width):
    page.set_viewport_size({"width": width, "height": 800})
    place = opened_at(show(static_html([trace(shared)]), static_html([trace(layers)])), "shared")
    for name in ("shared", "layers"):
        place = opened_at(page, name)
        place.get_by_label("Last step").press("Enter")
        place.get_by_label("Step back").press("Enter")
        table = place.locator(".variables")
        assert table.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
        assert "requires_grad" in table.locator("th").all_inner_texts()
    said = page.locator("td[data-head=shape]").first
    label = said.evaluate("cell => getComputedStyle(cell, '::before').content")
    assert ("shape" in label) == (width != 1440)


def test_words_stand_apart_and_nothing_is_said_twice(show):
    question = asked(WhichLineRaises(), shared)
    page = show(static_html([trace(shared)], question=question), static_html([trace(recurrent)]))
    place = opened_at(page, "shared")
    place.locator(f'[data-line="{line(shared, "b.backward()")}"]').dblclick()
    assert place.locator(".lines .right").evaluate(SAYS) == '" ← your answer, right"'
    told = place.locator("[role=status]").inner_text()
    assert told.startswith("✓ Right. You chose b.backward(): Line ")
    assert told.endswith("Step 7, end.") and told.count("RuntimeError") == 1
    place.get_by_role("button", name="Ask me again").click()
    place.get_by_role("button", name="no line: it runs to the end").dblclick()
    reply = place.locator(".reply").inner_text()
    assert (
        reply.startswith("✗ Not right. You chose no line")
        and "The backward pass stopped in" in reply
    )
    told = place.locator(".reply p").last
    assert told.evaluate("p => getComputedStyle(p).borderLeftWidth") == "0px"
    assert reply.count("raises") == 1
    leaf = place.locator(".scroll .box.leaf:not(.absent)").first
    assert leaf.text_content().startswith("x 12 B")
    assert place.locator(".thing", has_text="features").text_content() == "features 12 B"
    place = opened_at(page, "recurrent")
    place.get_by_label("Last step").press("Enter")
    place.get_by_label("Step back").press("Enter")
    words = place.locator(".scroll .box:not(.absent)").all_text_contents()
    words += [box.get_attribute("aria-description") for box in place.locator(".box.group").all()]
    assert any("4 leaves" in text for text in words), words
    assert not [text for text in words if " 1 nodes" in f" {text}" or "1 leaves" in text]


SMALLEST = """place => Math.min(...[...place.gradtrace.root.querySelectorAll(".graph svg text")]
  .filter((text) => text.getClientRects().length)
  .map((text) => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a))"""
# Pairs of boxes or tensors that cover one another.
COVERED = """place => {
  const { boxes, tensors } = place.gradtrace.graph.view;
  const parts = [...boxes, ...tensors];
  const over = (a, b, from, size) => a[from] < b[from] + b[size] && b[from] < a[from] + a[size];
  const covers = (a, b) => over(a, b, "x", "width") && over(a, b, "y", "height");
  return parts.flatMap((a, i) => parts.slice(i + 1).filter((b) => covers(a, b)));
}"""


def test_on_a_phone_the_graph_is_laid_out_anew_and_no_text_is_small(show, page):
    page.set_viewport_size({"width": 360, "height": 800})
    programs = (shared, layers, passing, recurrent)
    page = show(*(static_html([trace(program)]) for program in programs))
    for program in programs:
        place = opened_at(page, program.__name__)
        assert round(place.evaluate(SMALLEST), 1) >= 11  # how to read the graph
        place.get_by_label("Last step").press("Enter")
        place.get_by_label("Step back").press("Enter")
        assert round(place.evaluate(SMALLEST), 1) >= 11
        assert place.locator(".scroll").evaluate("box => box.scrollWidth - box.clientWidth") <= 0
        assert place.evaluate(COVERED) == []
        tops = "place => place.gradtrace.graph.edges.map(({ a, b }) => a.y - b.y)"
        assert min(place.evaluate(tops)) > 0  # arrows lead up
    as_wide = "place => place.gradtrace.graph.view === place.gradtrace.trace.views[0]"
    assert not place.evaluate(as_wide)
    page.set_viewport_size({"width": 1200, "height": 800})
    page.wait_for_function(f"({as_wide})(document.querySelector('[data-function=recurrent]'))")


def test_what_may_be_chosen_stays_so_when_the_graph_is_laid_out_anew(show, page):
    page.set_viewport_size({"width": 1200, "height": 800})
    question = asked(WhichTensorGoesNext(after="loss = features.sin().pow(2).sum()"), passing)
    place = opened_at(show(static_html([trace(passing)], question=question)), "passing")
    choices = place.locator(".scroll .choice")
    before = choices.count()
    assert before > 1
    choices.first.click()
    page.set_viewport_size({"width": 360, "height": 800})
    anew = "place => place.gradtrace.graph.view !== place.gradtrace.trace.views[0]"
    page.wait_for_function(f"({anew})(document.querySelector('[data-function=passing]'))")
    assert choices.count() == before and place.locator(".scroll .picked").count() == 1


def test_on_a_wider_panel_no_graph_is_cut_and_no_text_small(show, page):
    page.set_viewport_size({"width": 1000, "height": 900})
    for program in (training, recurrent):
        place = opened_at(show(static_html([trace(program)])), program.__name__)
        place.get_by_label("Last step").press("Enter")
        for view in range(place.evaluate("place => place.gradtrace.trace.views.length")):
            place.evaluate("(place, view) => place.gradtrace.graph.open(view)", view)
            assert round(place.evaluate(SMALLEST), 1) >= 9, (program, view)
            cut = place.locator(".scroll").evaluate("box => box.scrollWidth - box.clientWidth")
            assert cut <= 0, (program, view)


def test_a_scroll_bar_that_comes_does_not_lay_the_graph_out_anew(show, page):
    page.set_viewport_size({"width": 380, "height": 800})
    place = opened_at(show(static_html([trace(shared)])), "shared")
    place.get_by_label("Last step").press("Enter")
    bar = """async (place, width) => {
      const { root, graph } = place.gradtrace;
      const style = root.appendChild(document.createElement("style"));
      style.textContent = `.scroll { border-right: ${width}px solid }`; // headless bars are hidden
      const { svg } = graph;
      for (let frame = 0; frame < 4; frame += 1) await new Promise(requestAnimationFrame);
      return [graph.scroll.offsetWidth - graph.scroll.clientWidth, graph.svg === svg];
    }"""
    assert place.evaluate(bar, 0) == [0, True]
    assert place.evaluate(bar, 15) == [15, True]


def test_what_stands_below_a_box_is_not_covered_by_a_tensor(show, page):
    place = opened_at(show(static_html([trace(passing)])), "passing")
    place.get_by_label("Last step").press("Enter")
    assert place.locator(".box .made").filter(has_text="output").count() == 1
    assert (
        place.evaluate("""place => {
      const seen = (name) => [...place.gradtrace.root.querySelectorAll(name)]
        .filter((part) => part.getClientRects().length).map((part) => part.getBoundingClientRect());
      const faces = seen(".thing .face");
      const over = (a, b) => a.left < b.right && b.left < a.right
        && a.top < b.bottom && b.top < a.bottom;
      return seen(".box .made").filter((text) => faces.some((face) => over(text, face))).length;
    }""")
        == 0
    )


def read_aloud(page, role):
    """The names of all that has this role, as Chromium tells them to a screen reader."""
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    return [node["name"]["value"] for node in nodes if node.get("role", {}).get("value") == role]


@pytest.mark.parametrize("width", [360, 1200])
def test_lines_boxes_and_tables_are_read_aloud_as_one_says_them(show, page, width):
    page.set_viewport_size({"width": width, "height": 800})
    question = asked(WhichLineRaises(), shared)
    page = show(static_html([trace(shared)], question=question))
    place = opened_at(page, "shared")
    first, second = line(shared, "a.backward()"), line(shared, "b.backward()")
    assert f"line {second} b.backward()" in read_aloud(page, "button")
    place.locator(f'[data-line="{second}"]').dblclick()
    said = read_aloud(page, "button")
    (chosen,) = [name for name in said if name.startswith(f"line {second} b.backward(),")]
    assert chosen.endswith(", raised, your answer, right")
    assert (
        f"line {line(shared, 'x = torch.ones(3, requires_grad=True)')} "
        + ("x = torch.ones(3, requires_grad=True)")
        in said
    )
    step_after(place, first)
    said = read_aloud(page, "button")
    assert f"line {first} a.backward(), 1 freed, 1 grad, has just run" in said
    assert "ExpBackward0 result freed ✂ freed now" in said
    told = place.locator(".scroll .box", has_text="ExpBackward0").get_attribute("aria-description")
    assert told.startswith("made on line")  # its name was read before
    assert read_aloud(page, "rowheader") == ["x", "features", "a", "b"]
    assert {"gradient written", "[3]", "yes"} <= set(read_aloud(page, "cell"))
    assert "grad" in read_aloud(page, "columnheader")


def test_a_snapshot_prints_a_size_as_the_player_does(page):
    powers = [10**exponent for exponent in range(16)]
    counts = [n * power // 100 for power in powers for n in (100, 115, 125, 512, 9994, 9995, 99949)]
    code = (Path(gradtrace.player.__file__).parent / "dom.js").read_text(encoding="utf-8")
    printed = page.evaluate(
        f"counts => {{ {code.replace('export ', '')} return counts.map(bytes); }}", counts
    )
    assert [size(count) for count in counts] == printed
    assert {"512 kB", "1.3 kB", "1 TB"} <= set(printed)


def test_numbers_of_the_chart_stand_apart(show, page):
    page.set_viewport_size({"width": 1200, "height": 800})
    place = opened_at(show(static_html([trace(long)])), "long")
    boxes = [text.bounding_box() for text in place.locator(".memory .axis").all()]
    for i, one in enumerate(boxes):
        for other in boxes[i + 1 :]:
            apart_x = (
                one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
            )
            apart_y = one["y"] + 11 <= other["y"] or other["y"] + 11 <= one["y"]
            assert apart_x or apart_y, (one, other)


def test_paper_shows_the_end_and_cuts_nothing_but_keeps_an_open_question(show, page):
    question = asked(WhichLineRaises(), shared)
    twin = static_html([trace(shared)]).replace('"shared"', '"again"', 1)
    page = show(static_html([trace(shared)], question=question), f"<p>{'prose ' * 9000}</p>{twin}")
    place, again = opened_at(page, "shared"), player(page, "again")
    page.emulate_media(media="print")
    again.locator(".outcome").wait_for()
    assert place.locator(".lines").is_visible() and place.locator(".prompt").is_visible()
    for told in (".outcome", ".graph", ".memory"):
        assert not place.locator(told).is_visible()
        assert again.locator(told).is_visible()  # built for the paper
    assert "Trying to backward" in again.locator(".outcome").inner_text()
    assert not again.locator(".buttons").is_visible()
    for width in (1280, 640):  # a sheet of A4 in portrait is as narrow as a phone's layout
        page.set_viewport_size({"width": width, "height": 600})
        for name in (".desk", ".source", ".scroll", ".variables"):
            cut = again.locator(name).evaluate("box => box.scrollHeight > box.clientHeight + 1")
            assert not cut, (width, name)
    page.emulate_media(media="screen")
    again.locator(".position", has_text="step 1 of 7").wait_for()


def test_live_the_answer_and_the_step_reach_python(visit, tmp_path):
    """What anywidget hands over, in a page of its own."""
    question = asdict(asked(WhichLineRaises(), shared))
    state = {"trace": payload(trace(shared)), "step": 0, "question": question, "answer": [],
             "setting": [0]}  # fmt: skip
    file = tmp_path / "live.html"
    text = json.dumps(state).replace("<", "\\u003c")
    file.write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>t</title><div id="el"></div>'
        f'<script type="module">{module().replace("export default", "const widget =")}\n'
        f"const state = {text};\n"
        """const heard = {};
        window.model = {
          get: (name) => state[name], set: (name, value) => { state[name] = value; },
          on: (name, listener) => { heard[name] = listener; }, off() {}, save_changes() {},
        };
        window.change = (name, value) => { state[name] = value; heard[`change:${name}`](); };
        widget.render({ model, el: document.querySelector("#el") });</script>"""
    )
    page = visit(file.as_uri(), file.as_uri())
    place = page.locator("#el")
    place.locator(f'[data-line="{line(shared, "a.backward()")}"]').click()
    place.get_by_role("button", name="Check").click()
    assert page.evaluate("model.get('answer')") == [line(shared, "a.backward()")]
    assert page.evaluate("model.get('step')") == 6
    page.evaluate("change('step', 2)")
    assert position(place).startswith("step 3 of 7")
    assert page.complaints == []


def offered(visit, tmp_path, *pieces, **state):
    """A page of these players, and a kernel's model that `join(state)` offers to them."""
    file = tmp_path / "joined.html"
    state = {
        "key": "key",
        "born": 1,
        "step": 0,
        "answer": [],
        "setting": [],
        "controls": [],
        **state,
    }
    body = "<div style='height: 3000px'></div>".join(pieces)
    file.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>t</title>{body}'
        f'<script type="module">{module().replace("export default", "const widget =")}\n'
        f"const state = {json.dumps(state)}, heard = {{}};\n"
        """const call = (name, ...given) => (heard[name] ?? []).forEach((hear) => hear(...given));
        window.model = {
          get: (name) => state[name],
          set: (name, value) => { state[name] = value; call(`change:${name}`); },
          on: (name, listener) => (heard[name] ??= []).push(listener), off() {}, save_changes() {},
          send: (text) => text === "there?" && queueMicrotask(() => call("msg:custom", "here")),
        };
        window.join = () => widget.initialize({ model });</script>"""
    )
    return visit(file.as_uri(), file.as_uri())


@pytest.mark.parametrize("step", [0, 2])
def test_players_that_join_a_model_show_one_step_whichever_is_first(visit, tmp_path, step):
    question = asked(WhatIsFreedNext(after="b = features.pow(2).mean()"), shared)
    first = static_html([trace(shared)], question=question, key="key")
    page = offered(visit, tmp_path, first, first.replace('"shared"', '"again"', 1), step=step)
    place = opened_at(page, "shared")
    assert position(place).startswith("step 5 of 7")
    page.evaluate("join()")
    page.wait_for_function("place => place.gradtrace.model", arg=place.element_handle())
    opens = step or 4  # at first a player shows the graph to choose from
    assert page.evaluate("model.get('step')") == opens
    assert position(place).startswith(f"step {opens + 1} of 7")

    place.get_by_label("First step").click()
    again = opened_at(page, "again")
    page.wait_for_function("place => place.gradtrace.model", arg=again.element_handle())
    assert position(again).startswith("step 1 of 7") and position(place).startswith("step 1 of 7")


def test_a_model_of_another_setting_keeps_its_step(visit, tmp_path):
    traces = [trace(functools.partial(retained, keep)) for keep in (False, True)]
    piece = static_html(traces, [CONTROL], [0], key="key")
    page = offered(visit, tmp_path, piece, step=3, setting=[1], controls=[CONTROL])
    place = opened_at(page, "retained")
    page.evaluate("join()")
    place.locator(".position", has_text="step 4 of").wait_for()
    assert page.evaluate("model.get('step')") == 3
    assert place.get_by_role("switch").is_checked()
    assert page.complaints == []


FIND = """(rules) => axe.run(rules.length ? { runOnly: { type: "rule", values: rules } } : {})
  .then(({ violations }) => violations.flatMap((rule) =>
    rule.nodes.map((node) => `${rule.id}: ${node.target.flat().join(" ")}: ${node.html}`)))"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_in_any_state(show, page, axe, theme):
    page.emulate_media(reduced_motion="reduce")
    traces = [trace(functools.partial(retained, retain_graph=keep)) for keep in (False, True)]
    question = asked(WhichLineRaises(), shared)
    page = show(
        static_html([trace(shared)], question=question),
        static_html(traces, [CONTROL], [0]),
        static_html([trace(layers)]),
        static_html([trace(changed)]),
        static_html([trace(recurrent)]),
    )
    page.evaluate(axe)
    page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
    places = [
        opened_at(page, name) for name in ("shared", "retained", "layers", "changed", "recurrent")
    ]
    assert page.evaluate(FIND, []) == []
    places[0].get_by_role("button", name="Show me").click()
    for place in places:
        place.get_by_label("Last step").press("Enter")
        place.get_by_label("Step back").press("Enter")
        place.locator("summary", has_text="in words").click()
    assert page.evaluate(FIND, []) == []
    for place in places[::2]:
        place.get_by_label("Last step").press("Enter")
        place.locator(".lines [data-line]").nth(1).hover()
        assert page.evaluate(FIND, ["color-contrast"]) == []


def test_a_question_about_the_inside_is_answered_at_the_node(show):
    question = asked(WhichNodeRunsNext(line="a.backward()", node="MeanBackward0"), shared)
    page = show(static_html([trace(shared)], question=question))
    place = opened_at(page, "shared")
    assert place.get_by_label("Step into").get_attribute("aria-disabled") == "true"
    assert position(place) == "step 5 of 7: answer to go on"
    assert place.locator("[type=range]").get_attribute("max") == "6"  # its end is the last step
    place.locator(".box.choice", has_text="ExpBackward0").first.click()
    place.get_by_role("button", name="Check").click()
    assert place.locator(".reply").inner_text().startswith("✓ Right.")
    assert position(place).endswith("node 2 of 3")
    assert "ExpBackward0" in place.locator(".box.running").text_content()


def diamond():
    w = torch.arange(3.0, requires_grad=True)
    h = w.exp()
    loss = (h.sin() * h).sum()
    loss.backward()


# Letters are some 3 px less high, above and below, than the area of their text.
COVERED = """graph => {
  const seen = (part) => part.getBBox().width && part.checkVisibility({ visibilityProperty: true });
  const shown = [...graph.querySelectorAll("text, .face")].filter(seen);
  const area = (part) => part.getBoundingClientRect();
  const covered = [];
  const smallTexts = ".gradients text, .scissors, .thing:not(.absent) text";
  for (const small of graph.querySelectorAll(smallTexts)) {
    const a = area(small);
    for (const other of shown) {
      const b = area(other);
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      const isSibling = other.parentNode === small.parentNode && small.matches(".thing *");
      const isOwn = other === small || isSibling;
      const isOnFace = small.matches(".scissors") && other.matches(".face");
      if (!isOwn && !isOnFace && wide > 2 && high > 7)
        covered.push(`${small.textContent}: ${other.parentNode.textContent}`);
    }
  }
  return covered;
}"""


@pytest.mark.parametrize("width", [1280, 360])
def test_gradients_on_their_way_cover_nothing_and_each_is_seen(show, page, width):
    page.set_viewport_size({"width": width, "height": 800})
    place = opened_at(show(static_html([trace(diamond)])), "diamond")
    for _ in range(3):
        place.get_by_label("Step over").click()
    seen = []
    for _ in range(5):
        place.get_by_label("Step into").click()
        assert place.locator(".stage svg").evaluate(COVERED) == []
        seen.append(place.locator(".gradients text.gradient").count())
    # MulBackward0 sends two; one waits while SinBackward0, which got the other, sends its own.
    assert seen == [1, 2, 2, 1, 0]


def test_a_step_back_to_before_a_node_keeps_the_keyboard_in_the_graph(show, page):
    place = opened_at(show(static_html([trace(diamond)])), "diamond")
    for _ in range(3):
        place.get_by_label("Step over").click()
    place.locator(".box", has_text="SumBackward0").focus()
    page.keyboard.press("ArrowLeft")
    assert position(place).startswith("step 3")
    assert page.evaluate("document.activeElement.shadowRoot?.activeElement?.matches('.box')")


def test_fit_shows_the_whole_drawing(show, page):
    page.set_viewport_size({"width": 1280, "height": 680})
    place = opened_at(show(static_html([trace(long)])), "long")
    place.evaluate("place => place.gradtrace.go(6)")
    place.get_by_label("Fit the drawing").click()
    scroll = place.locator(".graph .scroll")
    assert scroll.evaluate("box => box.scrollHeight <= box.clientHeight + 1")
    assert scroll.evaluate("box => box.scrollWidth <= box.clientWidth + 1")


def squared():
    w = torch.arange(3.0, requires_grad=True)
    (w * w).sum().backward()


def in_pieces():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    for piece in torch.ones(6, 4).chunk(3):
        loss = net(piece).square().mean() / 3
        loss.backward()


@pytest.mark.parametrize("function", [squared, in_pieces])
def test_scissors_and_freed_tensors_cover_no_words(show, page, function):
    page.set_viewport_size({"width": 1280, "height": 680})
    place = opened_at(show(static_html([trace(function)])), function.__name__)
    while place.evaluate("place => place.gradtrace.step < place.gradtrace.limit"):
        assert place.locator(".stage svg").evaluate(COVERED) == []
        assert place.locator(".references .scissors").count() == 0  # in front of the boxes
        place.get_by_label("Step into").click()
    boxes = place.locator(".stage .box").count()
    assert place.locator(".references ~ .box").count() == boxes  # no line is drawn over their words


# Where code and controls are; in a narrow column a line's flags may take a row of their own.
PLACES = """place => JSON.stringify(
  [...place.gradtrace.root.querySelectorAll(".bar, .bar button, .source, .lines > div")]
    .filter((part) => innerWidth > 1000 || !part.matches(".lines > div"))
    .map((part) => [part.offsetLeft, part.offsetTop, part.offsetWidth]))"""


@pytest.mark.parametrize("width", [390, 750, 1280])
@pytest.mark.parametrize("function", [squared, shared])
def test_into_leads_through_a_program_and_moves_neither_bar_nor_code(show, page, width, function):
    page.set_viewport_size({"width": width, "height": 844})
    place = opened_at(show(static_html([trace(function)])), function.__name__)
    into, places = place.get_by_label("Step into"), {place.evaluate(PLACES)}
    while into.get_attribute("aria-disabled") == "false":
        into.click()
        places.add(place.evaluate(PLACES))
    assert position(place).endswith("end")
    assert len(places) == 1


def test_on_a_phone_a_long_question_leaves_room_for_the_controls(show, page):
    page.set_viewport_size({"width": 360, "height": 740})
    question = asked(WhichLineRaises(why="So it goes on. " * 40), shared)
    place = opened_at(show(static_html([trace(shared)], question=question)), "shared")
    place.get_by_role("button", name="Show me").click()
    desk = place.locator(".desk")
    assert desk.evaluate("desk => desk.scrollHeight - desk.clientHeight") <= 0


def heads():
    """Several values in each gradient, so that Into prints long texts."""
    encoder, first, second = nn.Linear(4, 3), nn.Linear(3, 1), nn.Linear(3, 1)
    features = torch.tanh(encoder(torch.ones(2, 4)))
    loss1 = first(features).mean()
    loss2 = second(features).mean()
    loss1.backward()
    loss2.backward()


def test_on_a_small_phone_reply_and_graph_share_the_screen(show, page):
    page.set_viewport_size({"width": 360, "height": 740})
    question = asked(
        WhichNodeRunsNext(line="loss1.backward()", node="MeanBackward0", why="It goes on. " * 10),
        heads,
    )
    place = opened_at(show(static_html([trace(heads)], question=question)), "heads")
    place.get_by_role("button", name="Show me").click()
    cut = place.locator(".asking").evaluate("box => box.scrollHeight - box.clientHeight")
    assert cut <= 0 and place.locator(".stage").bounding_box()["height"] >= 95
    bar = place.locator(".bar").bounding_box()["y"]
    place.get_by_label("Step into").click()
    assert place.locator(".told", has_text="receives the gradient").is_visible()
    assert abs(place.locator(".bar").bounding_box()["y"] - bar) < 1


@pytest.mark.parametrize("height", [680, 900])
def test_a_long_reply_is_seen_whole_and_moves_nothing_below_the_graph(show, page, height):
    page.set_viewport_size({"width": 1280, "height": height})
    question = asked(
        WhichNodeRunsNext(line="a.backward()", node="MeanBackward0", why="So it goes on. " * 100),
        shared,
    )
    place = opened_at(show(static_html([trace(shared)], question=question)), "shared")
    tops = [place.locator(".bar").bounding_box()["y"]]
    for name in ("Show me", "Ask me again"):
        place.get_by_role("button", name=name).click()
        box = place.locator(".question")
        assert box.evaluate("box => box.scrollHeight - box.clientHeight") <= 0
        tops.append(place.locator(".bar").bounding_box()["y"])
    assert max(tops) - min(tops) < 1


def test_an_unanswered_player_prints_with_the_graph_that_it_asks_about(show, page):
    question = asked(WhichNodeRunsNext(line="a.backward()", node="MeanBackward0"), shared)
    page = show(static_html([trace(shared)], question=question))
    place = opened_at(page, "shared")
    page.emulate_media(media="print")
    place.locator(".graph .box", has_text="ExpBackward0").first.wait_for()
    assert place.locator(".prompt").is_visible()
    for hidden in (".outcome", ".memory", ".buttons"):
        assert not place.locator(hidden).is_visible()
