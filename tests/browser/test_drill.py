"""The drill in a real browser: with the keyboard alone, and without scripts."""

import json
from pathlib import Path

PAGE = "book/drill.html"
PROGRAMS = json.loads((Path(__file__).parents[2] / "book" / "drill.json").read_text("utf-8"))


def test_the_keyboard_alone_drills(visit, server):
    page = visit(server + PAGE, server)
    form = page.locator("form.drill")
    assert form.count() == 1 and form.locator("input").count() == len(PROGRAMS[0]["lines"])
    assert form.locator("legend").inner_text().startswith(f"Program 1 of {len(PROGRAMS)}: line")
    status = form.locator("[role=status]")
    form.locator("button", has_text="Check").press("Enter")
    assert status.inner_text() == "Choose a line."
    form.locator("input").first.press("Space")
    page.keyboard.press("Enter")
    assert status.inner_text().startswith("✗ Not right: line 1 frees nothing.")
    for _ in range(PROGRAMS[0]["freed"] - 1):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert status.inner_text().startswith("✓ Right.") and "0 of 1" in status.inner_text()
    form.locator("button", has_text="Next").press("Enter")
    assert form.locator("legend").inner_text().startswith("Program 2 of")
    assert page.evaluate("document.activeElement.name") == "line"
    assert page.complaints == []


def test_every_line_has_its_answer(visit, server):
    page = visit(server + PAGE, server)
    form = page.locator("form.drill")
    for number, program in enumerate(PROGRAMS, 1):
        for line, text in enumerate(program["lines"], 1):
            form.locator("input").nth(line - 1).check()
            form.locator("button", has_text="Check").click()
            said = form.locator("[role=status]").inner_text()
            assert said.startswith("✓") == (line == program["freed"])
            assert ("frees nothing" in said) == (".backward(" not in text)
            assert ("is where it raises" in said) == (line == len(program["lines"]))
        assert f"At the first try: 0 of {number}." in said  # line 1 came first
        form.locator("button", has_text="Next").click()
    assert form.locator("legend").inner_text().startswith("Program 1 of")


def test_without_scripts_all_programs_are_there(browser, server):
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(server + PAGE)
        assert page.locator(".drill").count() == len(PROGRAMS)
        answer = page.locator(".drill details").first
        answer.locator("summary").click()
        assert f"Line {PROGRAMS[0]['freed']}, " in answer.inner_text()
