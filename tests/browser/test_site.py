"""The built book in a real browser, without a kernel and without a network."""

import gzip
from urllib.parse import urlsplit

import pytest

CHAPTER = "notebooks/01_two_networks.html"
PAGES = ["index.html", "book/verdicts.html", CHAPTER]


def player(page, function):
    """The player of ``function``, built, its question (if it asks) answered."""
    place = page.locator(f'.gradtrace[data-function="{function}"]')
    place.scroll_into_view_if_needed()
    place.locator(".player").wait_for()
    if (tell := place.get_by_role("button", name="Show me")).count():
        tell.click()
    return place


def step_text(player):
    return player.locator(".position").inner_text()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_for_nothing_outside_and_complains_of_nothing(visit, base, name):
    page = visit(base + name, base)
    page.wait_for_load_state("networkidle")
    assert page.locator("h1").first.inner_text()
    assert page.complaints == []


def test_the_root_is_the_landing_page_itself(visit, server):
    page = visit(server, server)
    assert page.url == server
    assert page.locator("meta[http-equiv=refresh]").count() == 0
    assert "Trying to backward through the graph a second time" in page.inner_text("body")


def test_a_control_changes_graph_and_outcome(visit, base):
    page = visit(base + CHAPTER, base)
    shared = player(page, "shared_encoder")
    shared.get_by_label("Last step").press("Enter")
    outcome = shared.locator(".outcome")
    assert "RuntimeError: Trying to backward through the graph a second time" in (
        outcome.inner_text()
    )
    assert shared.locator("g.stopped").count() == 1
    shared.get_by_role("button", name="Edit the program").click()
    shared.get_by_role("checkbox", name="add the losses").check()
    page.keyboard.press("Escape")
    shared.get_by_label("Last step").press("Enter")
    assert outcome.inner_text() == "✓ Ends without an error."
    assert shared.locator("g.stopped").count() == 0
    assert page.complaints == []


def test_the_keyboard_alone_drives_it(visit, server):
    page = visit(server + CHAPTER, server)
    shared = player(page, "retain_the_first")
    page.evaluate("scrollTo(0, 0)")

    def tab_to(element, at_most):
        for _ in range(at_most):
            page.keyboard.press("Tab")
            if element.evaluate("element => element.getRootNode().activeElement === element"):
                break
        assert element.evaluate("element => element.matches(':focus-visible')")

    # From the top of the page, as a reader without a mouse would.
    tab_to(shared.get_by_role("button", name="Edit the program"), 400)
    page.keyboard.press("Enter")
    checkbox = shared.get_by_role("checkbox").first
    if not checkbox.evaluate("box => box.getRootNode().activeElement === box"):
        tab_to(checkbox, 20)
    before = checkbox.is_checked()
    page.keyboard.press("Space")
    assert checkbox.is_checked() != before
    page.keyboard.press("Escape")
    focus = "element => element.getRootNode().activeElement?.getAttribute('aria-label')"
    for _ in range(20):
        page.keyboard.press("Tab")
        if shared.locator(".bar").evaluate(focus) == "Step back (Left arrow)":
            break
    page.keyboard.press("End")
    total = int(step_text(shared).split(" of ")[1].split(":")[0])
    assert step_text(shared).startswith(f"step {total} of")
    page.keyboard.press("Enter")
    assert step_text(shared).startswith(f"step {total - 1} of")
    page.keyboard.press("ArrowLeft")
    assert step_text(shared).startswith(f"step {total - 2} of")
    page.keyboard.press("Home")
    assert step_text(shared).startswith("step 1 of")
    assert shared.locator(".empty").is_visible()  # there is no graph yet


def test_stepping_shows_a_node_freed_and_says_so(visit, server):
    page = visit(server + CHAPTER, server)
    shared = player(page, "shared_encoder")
    shared.get_by_label("First step").click()
    said = []
    while shared.get_by_label("Step over").is_enabled():
        shared.get_by_label("Step over").click()
        said.append(shared.locator(".unseen[role=status]").inner_text())
    assert any("Freed: " in text and "TanhBackward0" in text for text in said)
    assert "raised RuntimeError" in said[-1]
    shared.locator("summary", has_text="in words").click()
    shared.locator(".twin li").first.wait_for()  # filled once it is unfolded
    words = shared.locator(".twin li").all_inner_texts()
    assert any("TanhBackward0" in text and "freed" in text for text in words)
    assert any("backward stopped here" in text for text in words)


def test_without_scripts_each_outcome_is_there_to_read(browser, server):
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(server + CHAPTER)
        text = page.inner_text("body")
        assert "edits = detach the fake Ends without an error." in " ".join(text.split())
        assert "Line 22 raises RuntimeError" in text


def test_a_narrow_screen_does_not_scroll_sideways(visit, server):
    page = visit(server + CHAPTER, server)
    page.set_viewport_size({"width": 320, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_light(page, visit, server, site, name):
    """Bytes as a server that compresses would send them."""
    loaded = set()
    page.on("response", lambda response: loaded.add(urlsplit(response.url).path.lstrip("/")))
    visit(server + name, server).wait_for_load_state("networkidle")
    sizes = {file: len(gzip.compress((site / file).read_bytes(), 6)) for file in loaded}
    assert name in sizes
    assert sum(sizes.values()) < 500_000, sorted(sizes.items(), key=lambda item: -item[1])[:5]


@pytest.mark.parametrize("how", ["click", "tap", "keyboard"])
def test_a_menu_opens(browser, server, how):
    with browser.new_context(has_touch=True, viewport={"width": 360, "height": 800}) as context:
        page = context.new_page()
        page.goto(server + CHAPTER)
        page.wait_for_load_state("networkidle")
        button = page.get_by_role("button", name="Download this page")
        assert button.get_attribute("aria-expanded") == "false"
        if how == "keyboard":
            button.focus()
            page.keyboard.press("Enter")
        else:
            getattr(button, how)()
        page.locator(".dropdown-toggle[aria-expanded=true]").wait_for(timeout=5000)
        assert page.get_by_role("link", name=".ipynb").is_visible()


def test_a_link_into_a_folded_player_unfolds_it(visit, server):
    page = visit(server + "notebooks/05_second_time.html", server)
    folded = page.locator("details", has=page.locator("[data-function=two_iterations]"))
    assert folded.get_attribute("open") is None
    page.locator("details[data-observe=two_iterations] > summary").press("Enter")
    page.locator("a.play[href*='#play:two_iterations:']").focus()
    page.keyboard.press("Enter")
    assert folded.get_attribute("open") is not None
    assert page.complaints == []
