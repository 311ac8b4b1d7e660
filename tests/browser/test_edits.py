"""Readers edit a program in a real browser: by a click, in the menu, and by the keyboard."""

import sys

import pytest
import torch

from gradtrace import Exploration, explore
from gradtrace.questions import WhichLineRaises

EDITS = {
    "retain": {"a.backward()": "a.backward(retain_graph=True)"},
    "add": {"a.backward()": "", "b.backward()": "(a + b).backward()"},
    "detach": {"b = (h * w).sum()": "b = (h.detach() * w).sum()"},
    "recompute": {"a.backward()": "...\nh = w.exp()"},
}


def two_losses(size):
    w = torch.ones(size, requires_grad=True)
    h = w.exp()
    a = h.sum()
    a.backward()
    b = (h * w).sum()
    b.backward()


@pytest.fixture
def explored(monkeypatch):
    monkeypatch.setattr(sys.modules[Exploration.__module__], "display", lambda _: None)
    return explore(two_losses, edits=EDITS, size=[3, 4])


@pytest.fixture
def show(visit, page, tmp_path):
    """Open the page of an exploration; returns its player."""

    def show(exploration):
        file = tmp_path / "page.html"
        exploration.to_html(file)
        visit(file.as_uri(), file.as_uri())
        page.set_default_timeout(5000)
        place = page.locator(".gradtrace")
        place.locator(".lines").wait_for()
        return place

    return show


ROWS = """rows => rows.map(row => {
  const text = row.querySelector(".text").cloneNode(true);
  text.querySelectorAll(".flags, .pen").forEach(part => part.remove());
  return [row.dataset.line, text.textContent.trim()];
})"""


def program(place):
    """The lines that are shown, a removed one with its sign."""
    rows = place.locator(".lines > div").evaluate_all(ROWS)
    return [text if number else f"- {text}" for number, text in rows]


def source(exploration, edits):
    return [text.strip() for text in exploration.trace(edits=edits, size=3).source.values()]


def end(place):
    place.get_by_label("Last step").press("Enter")
    return place.locator(".outcome").inner_text()


def test_a_click_on_a_call_changes_its_argument_and_another_takes_it_back(show, explored):
    place = show(explored)
    assert program(place) == source(explored, "as written")
    assert "second time" in end(place)
    place.locator(".can-edit", has_text="backward()").click()
    assert program(place) == source(explored, "retain")
    assert place.locator(".added .edit").inner_text() == "retain_graph=True"
    assert "Ends without an error" in end(place)
    place.locator(".added .edit").click()
    assert program(place) == source(explored, "as written")


def test_a_click_on_a_use_detaches_it_and_the_reader_stays_at_the_line(show, explored):
    place = show(explored)
    place.locator('[role="button"]', has_text="a.backward()").click(position={"x": 200, "y": 8})
    before = place.locator(".position").inner_text()
    assert "step 5" in before
    place.locator(".can-edit", has_text="h").click()
    assert program(place) == source(explored, "detach")
    assert place.locator(".position").inner_text() == before


def test_an_edit_of_several_lines_shows_what_it_removed(show, explored):
    place = show(explored)
    place.locator(".can-edit").get_by_text("b", exact=True).click()
    shown = program(place)
    assert "- a.backward()" in shown and "- b.backward()" in shown
    assert [line for line in shown if not line.startswith("- ")] == source(explored, "add")
    place.locator(".removed .edit").first.click()
    assert program(place) == source(explored, "as written")


def test_a_line_is_inserted_at_the_mark(show, explored):
    place = show(explored)
    place.locator(".pen").click()
    assert program(place) == source(explored, "recompute")
    place.locator(".can-edit", has_text="backward()").click()
    assert [text for text in program(place) if text[0] != "-"] == source(
        explored, "retain + recompute"
    )


def test_the_menu_does_the_same_by_keyboard_and_excludes_what_cannot_be_combined(show, explored):
    place = show(explored)
    page = place.page
    place.locator('[data-line][tabindex="0"]').focus()
    page.keyboard.press("e")
    retain = place.get_by_role("checkbox", name="retain")
    assert retain.evaluate("box => box.getRootNode().activeElement === box")
    page.keyboard.press("Space")
    assert program(place) == source(explored, "retain")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")  # adding the losses replaces the same line
    assert [text for text in program(place) if text[0] != "-"] == source(explored, "add")
    assert not retain.is_checked()
    page.keyboard.press("Escape")
    assert not retain.is_visible()
    assert place.get_by_role("button", name="Edit the program").evaluate(
        "button => button.getRootNode().activeElement === button"
    )


def test_edits_and_parameters_combine(show, explored):
    place = show(explored)
    place.locator(".can-edit", has_text="backward()").click()
    place.get_by_role("combobox").select_option("4")
    assert "[4]" in place.locator(".graph").text_content()
    assert program(place) == source(explored, "retain")


def test_nothing_can_be_edited_before_the_answer(show, monkeypatch):
    monkeypatch.setattr(sys.modules[Exploration.__module__], "display", lambda _: None)
    place = show(explore(two_losses, edits=EDITS, size=[3], ask=WhichLineRaises()))
    opener = place.get_by_role("button", name="Edit the program")
    assert opener.get_attribute("aria-disabled") == "true"
    opener.click(force=True)
    assert not place.get_by_role("checkbox").first.is_visible()
    place.locator(".can-edit", has_text="h").click()  # chooses the line as an answer
    assert place.locator(".picked").count() == 1 and place.locator(".added").count() == 0
    place.get_by_role("button", name="Show me").click()
    place.locator(".can-edit", has_text="h").click()
    assert place.locator(".added").count() == 1


def test_the_copied_cell_runs_in_an_empty_notebook(show, explored, page, capsys):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    place = show(explored)
    place.locator(".can-edit", has_text="h").click()
    place.get_by_role("button", name="Edit the program").click()
    place.get_by_role("button", name="Copy").click()
    place.locator(".note", has_text="notebook").wait_for()
    field = place.locator(".note textarea")
    cell = field.input_value() if field.count() else page.evaluate("navigator.clipboard.readText()")
    assert "h.detach()" in cell and cell.endswith("trace(two_losses, size=3)")
    statements = cell.removesuffix("trace(two_losses, size=3)")
    namespace = {}
    exec(statements, namespace)
    namespace["two_losses"](size=3)


def test_axe_finds_nothing_in_the_open_menu(show, explored, page, axe):
    place = show(explored)
    page.evaluate(axe)
    place.locator(".can-edit", has_text="h").click()
    place.get_by_role("button", name="Edit the program").click()
    found = page.evaluate(
        "async () => (await axe.run()).violations.flatMap(rule => rule.nodes.map(node => "
        "`${rule.id}: ${node.html}`))"
    )
    assert found == []
