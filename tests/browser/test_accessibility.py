"""axe-core finds nothing on any page, light or dark; what it cannot see is tested beside it."""

from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "_build" / "html"
PAGES = sorted(
    str(path.relative_to(SITE))
    for path in (
        *SITE.glob("*.html"),
        *SITE.glob("[!._]*/*.html"),  # no folders of tools
        *SITE.glob("[!._]*/*/*.html"),
    )
)

FIND = """
(rules) => axe
  .run(rules.length ? { runOnly: { type: "rule", values: rules } } : {})
  .then(({ violations }) => violations.flatMap((rule) =>
    rule.nodes.map((node) => `${rule.id}: ${node.target.flat().join(" ")}`)))
"""
# What is far from the view is not laid out, and would not be looked at.
LAID_OUT = ".cell, section { content-visibility: visible !important; }"
# In the dark only colours differ.
RULES = {"light": [], "dark": ["color-contrast", "link-in-text-block"]}
WIDTHS = (640, 320)  # 1280 pixels at 200 %, and a phone


@pytest.fixture(scope="module")
def tab(browser):
    """One page for all visits: a browser takes half as long again for each new one."""
    # With motion colours fade, and have to be waited for.
    with browser.new_context(reduced_motion="reduce") as context:
        yield context.new_page()


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_and_no_page_scrolls_sideways(tab, server, axe, name):
    # As Lighthouse looks: on a phone, before what is far from the view is laid out.
    tab.set_viewport_size({"width": 412, "height": 823})
    tab.goto(server + name, wait_until="load")
    tab.evaluate(axe)
    assert tab.evaluate(FIND, ["target-size"]) == []
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.add_style_tag(content=LAID_OUT)
    found = {}
    for mode, rules in RULES.items():
        tab.evaluate("mode => { document.documentElement.dataset.theme = mode; }", mode)
        found[mode] = tab.evaluate(FIND, rules)
    assert found == {"light": [], "dark": []}
    wide = {}
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 700})
        if (needed := tab.evaluate("document.documentElement.scrollWidth")) > width:
            wide[width] = needed
    assert wide == {}


def test_code_far_from_the_view_is_neither_laid_out_nor_measured(visit, server, page):
    visit(server + "notebooks/error_atlas.html", server).wait_for_load_state("networkidle")
    code = page.locator("pre")
    assert page.locator("pre[tabindex]").count() == code.count()  # none is out of reach
    assert page.locator("pre[tabindex='-1']").count() < 0.2 * code.count()
    last = page.locator(".cell pre").last
    last.scroll_into_view_if_needed()
    page.wait_for_function("box => box.tabIndex === -1", arg=last.element_handle())
    assert last.evaluate("box => box.scrollWidth <= box.clientWidth")


def test_reduced_motion_is_respected(visit, server, page):
    page.emulate_media(reduced_motion="reduce")
    visit(server, server)
    moving = """() => [...document.querySelectorAll("*")].filter((element) => {
      const style = getComputedStyle(element);
      return style.scrollBehavior === "smooth" || parseFloat(style.transitionDuration) > 0.01;
    }).map((element) => element.outerHTML.slice(0, 80))"""
    assert page.evaluate(moving) == []
