"""What the book makes of players: one front end, questions and their sum, links, landing page."""

import re

import pytest

CHAPTER = "notebooks/01_two_networks.html"
CHAPTERS = [
    CHAPTER,
    "notebooks/02_what_retain_graph_controls.html",
    "notebooks/03_freed_buffers.html",
    "notebooks/04_gru.html",
    "notebooks/05_second_time.html",
]


def player(page, function):
    """The player of this function, built and in view."""
    place = page.locator(f'.gradtrace[data-function="{function}"]')
    place.scroll_into_view_if_needed()
    return place.locator(".player")


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_front_end_is_loaded_once(visit, base, name):
    page = visit(base + name, base)
    places = page.locator(".gradtrace")
    assert places.count() > 1
    assert page.locator('script[type="module"]').count() == 0
    assert page.locator('script[src*="_static/player.js"]').count() == 1
    page.wait_for_function(
        "document.querySelectorAll('.gradtrace:not([data-mounted])').length == 0"
    )
    assert page.complaints == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_each_prediction_is_asked_and_summed_up(visit, server, name):
    page = visit(server + name, server)
    asked = page.locator(".gradtrace[data-question]").count()
    assert asked >= 3
    summary = page.locator(".gradtrace-answers")
    assert summary.inner_text().startswith(f"{asked} questions on this page, none answered yet.")


def test_an_answer_is_answered_summed_up_kept_and_forgotten(visit, server):
    page = visit(server + CHAPTER, server)
    asking = player(page, "two_networks")
    question = asking.locator(".question")
    assert "Ends without an error" not in asking.inner_text()
    asking.locator(".lines > div", has_text="loss2.backward()").click()
    question.get_by_role("button", name="Check").click()
    reply = question.locator(".reply").inner_text()
    assert "Line 21 ran." in reply and "The two graphs are separate" in reply
    assert "raises" not in reply.split("Ends without")[0]
    summary = page.locator(".gradtrace-answers")
    asked = page.locator(".gradtrace[data-question]").count()
    assert f"right in 0 of {asked}" in summary.inner_text()
    page.reload()
    assert f"right in 0 of {asked}" in summary.inner_text()
    assert "Look again: Which line raises?" in summary.inner_text()
    summary.get_by_role("button").click()
    assert "none answered yet" in summary.inner_text()
    assert page.complaints == []


def test_what_tells_the_answer_is_folded_until_there_is_one(visit, server):
    page = visit(server + CHAPTER, server)
    folds = page.locator("details.observe")
    assert folds.count() == page.locator(".gradtrace[data-question]").count()
    fold = page.locator('details[data-observe="two_networks"]')
    words, card = fold.get_by_text("Nothing raises"), fold.locator("#claim-1\\.1")
    printed = fold.get_by_text("error: None")
    told = (words, card, printed)
    assert not any(part.is_visible() for part in told)
    assert page.locator("#claim-1\\.11").is_visible()  # it tells nothing of what is asked
    page.emulate_media(media="print")
    assert all(part.is_visible() for part in told)
    assert not page.locator(".observe > summary").first.is_visible()
    page.emulate_media(media="screen")
    assert not any(part.is_visible() for part in told)
    asking = player(page, "two_networks")
    asking.get_by_role("button", name="Show me").click()
    assert all(part.is_visible() for part in told)
    assert page.locator("details.observe[open]").count() == 1
    page.reload()
    assert words.is_visible()
    player(page, "two_networks").get_by_role("button", name="Ask me again").click()
    assert not any(part.is_visible() for part in told)
    fold.locator("> summary").press("Enter")
    assert words.is_visible()  # who does not want to answer
    page.goto(server + CHAPTER + "#claim-1.8")  # as the page of all verdicts links it
    assert page.locator("#claim-1\\.8").is_visible()
    assert page.locator("details.observe[open]").count() == 2
    assert page.complaints == []


def test_what_tells_the_answer_of_a_quiz_is_folded_too(visit, server):
    page = visit(server + "notebooks/07_several_of_everything.html", server)
    told = page.get_by_text("The tidy way is wrong from the second round on")
    quiz = page.locator("form.quiz").first
    check = quiz.get_by_role("button", name="Check my answer")
    check.click()
    assert not told.is_visible()  # nothing was chosen
    quiz.locator("input").first.check()
    check.click()
    assert told.is_visible() and page.locator("details.observe[open]").count() == 1
    page.reload()
    assert told.is_visible()
    quiz.get_by_role("button", name="Begin again").click()
    told.wait_for(state="hidden")
    assert page.complaints == []


FOCUSED = """() => {
  let part = document.activeElement;
  while (part.shadowRoot?.activeElement) part = part.shadowRoot.activeElement;
  const bar = part.getRootNode().querySelector(".bar")?.getBoundingClientRect();
  const { top, bottom } = part.getBoundingClientRect();
  const isCovered = bar && !part.closest(".bar") && bottom > bar.top + 1 && top < bar.bottom;
  return [part.textContent.trim(), Boolean(bar), Boolean(isCovered)];
}"""


def test_the_bar_of_a_player_covers_nothing_that_has_the_focus(visit, server, page):
    page.set_viewport_size({"width": 1280, "height": 680})
    visit(server + "notebooks/00_life_of_a_graph.html", server)
    page.locator("main a.term").first.focus()
    reached = 0
    for _ in range(60):
        page.keyboard.press("Tab")
        text, in_player, is_covered = page.evaluate(FOCUSED)
        assert not is_covered, text
        reached += in_player
    assert reached > 20


def test_a_link_in_the_prose_moves_the_player(visit, base):
    page = visit(base + CHAPTER, base)
    link = page.locator('a[href="#play:two_networks:after=15"]')
    moved = player(page, "two_networks")
    moved.get_by_role("button", name="Show me").click()
    link.click()
    assert "before line 17" in moved.inner_text()
    assert page.complaints == []


def test_without_scripts_the_question_is_asked_and_the_answer_folded(browser, server):
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(server + CHAPTER)
        asking = page.locator('.gradtrace[data-function="two_networks"]')
        answer = asking.locator("details")
        assert "Which line raises?" in asking.inner_text()
        assert not answer.get_by_text("The two losses share no node").is_visible()
        answer.locator("summary").click()
        assert answer.get_by_text("The two losses share no node").is_visible()
        fold = page.locator('details[data-observe="two_networks"]')
        assert not fold.locator(".verdict").first.is_visible()
        fold.locator("> summary").click()
        assert fold.locator(".verdict").first.is_visible()


def test_on_paper_the_answers_stand_at_the_end(visit, server):
    page = visit(server + CHAPTER, server)
    answers = page.locator(".answers-on-paper")
    assert not answers.is_visible()
    page.emulate_media(media="print")
    assert answers.is_visible() and not page.locator(".your-answers").is_visible()
    assert answers.locator("li", has_text="The two losses share no node").count() == 1


@pytest.mark.parametrize("size", [(1440, 900), (360, 800)])
def test_the_landing_page_answers_before_the_fold(visit, server, size):
    page = visit(server, server)
    page.set_viewport_size({"width": size[0], "height": size[1]})
    error = "Trying to backward through the graph a second time"
    assert page.title().startswith(f"RuntimeError: {error}")
    assert page.locator(".bd-article h1").inner_text().startswith(f"RuntimeError: {error}")
    rows = page.locator("table.answer tr")
    assert rows.locator("th").all_inner_texts() == ["What you see", "Why", "What to write"]
    last = rows.last.bounding_box()
    assert last["y"] + last["height"] <= size[1]


@pytest.mark.parametrize(
    "name", ["index.html", "book/verdicts.html", "book/exercises.html", "book/versions.html"]
)
def test_on_a_phone_no_column_is_cut_and_no_claim_squeezed(visit, server, page, name):
    page.set_viewport_size({"width": 360, "height": 800})
    visit(server + name, server)
    cells = page.locator("article table :is(td, th)").evaluate_all(
        "cells => cells.map((cell) => cell.getBoundingClientRect().right)"
    )
    assert len(cells) > 6 and max(cells) <= 360
    claims = page.locator(
        ".claims-table td:nth-child(2), .claims-summary td:first-child, .gpu-table td"
    )
    widths = claims.evaluate_all("cells => cells.map((cell) => cell.clientWidth)")
    assert all(width >= 240 for width in widths)


@pytest.mark.parametrize("name", ["book/teaching.html", "notebooks/seven_switches.html"])
def test_on_a_phone_a_column_of_code_has_room_for_a_name(visit, server, page, name):
    page.set_viewport_size({"width": 360, "height": 800})
    visit(server + name, server)
    widths = page.locator("article td:has(code)").evaluate_all(
        "cells => cells.map((cell) => cell.clientWidth)"
    )
    assert widths and min(widths) >= 120


@pytest.mark.parametrize("name", ["index.html", *CHAPTERS])
def test_a_page_does_not_move_while_it_loads(visit, server, page, name):
    page.set_viewport_size({"width": 1280, "height": 680})
    page.add_init_script(
        "window.shifts = [];"
        "new PerformanceObserver((list) => window.shifts.push(...list.getEntries()"
        ".map((entry) => entry.value))).observe({ type: 'layout-shift', buffered: true });"
    )
    visit(server + name, server).wait_for_load_state("networkidle")
    assert sum(page.evaluate("shifts")) < 0.01
    gap = "document.querySelector('.bd-sidebar-secondary').getBoundingClientRect().x"
    assert page.evaluate(gap) >= 1040  # the place that was kept is the contents' own


def test_the_landing_page_goes_by_its_name_in_the_navigation(visit, server):
    page = visit(server + CHAPTER, server)
    names = page.locator(".bd-sidebar-primary nav a.reference").all_inner_texts()
    assert "Backward Twice" in [name.strip() for name in names]
    assert not any("RuntimeError" in name for name in names)


def test_the_landing_player_opens_where_the_page_says(visit, server):
    page = visit(server, server)
    shown = player(page, "two_losses")
    assert "loss2.backward()" in shown.locator(".next").inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_verdict_is_known_by_mark_word_and_colour(browser, server, theme):
    with browser.new_context(color_scheme=theme) as context:
        page = context.new_page()
        page.goto(server + CHAPTER)
        seen = {}
        for kind in ("holds", "fails", "depends"):
            badge = page.locator(f".verdict.{kind} > p.judged").first
            colour = badge.evaluate("element => getComputedStyle(element).color")
            mark, word = re.match(r"(\S) Claim [\d.]+ (\w+)", badge.text_content()).groups()
            assert word == kind
            seen[kind] = mark, colour
        assert len({mark for mark, _ in seen.values()}) == len(seen)
        assert len({colour for _, colour in seen.values()}) == len(seen)
        assert "`" not in "".join(page.locator(".verdict").all_text_contents())
