"""axe-core finds nothing on any page, light or dark; what it cannot see is tested beside it."""

import os
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
AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"

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


@pytest.fixture(scope="session")
def axe():
    if not AXE.exists():
        reason = "axe-core is not installed: `make test` does it where npm is"
        (pytest.fail if os.environ.get("BROWSER") == "required" else pytest.skip)(reason)
    return AXE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(visit, server, page, axe, name):
    page.emulate_media(reduced_motion="reduce")  # else colours fade, and have to be waited for
    visit(server + name, server)
    page.wait_for_load_state("load")
    page.add_style_tag(content=LAID_OUT)
    page.evaluate(axe)
    found = {}
    for mode, rules in RULES.items():
        page.evaluate("mode => { document.documentElement.dataset.theme = mode; }", mode)
        found[mode] = page.evaluate(FIND, rules)
    assert found == {"light": [], "dark": []}


def test_code_far_from_the_view_is_neither_laid_out_nor_measured(visit, server, page):
    visit(server + "notebooks/error_atlas.html", server).wait_for_load_state("networkidle")
    code = page.locator("pre")
    assert page.locator("pre[tabindex]").count() == code.count()  # none is out of reach
    assert page.locator("pre[tabindex='-1']").count() < 0.2 * code.count()
    last = page.locator(".cell pre").last
    last.scroll_into_view_if_needed()
    page.wait_for_function("box => box.tabIndex === -1", arg=last.element_handle())
    assert last.evaluate("box => box.scrollWidth <= box.clientWidth")


@pytest.mark.parametrize("width", [320, 640], ids=["a phone", "1280 pixels at 200 %"])
def test_no_page_scrolls_sideways(visit, server, page, width):
    page.set_viewport_size({"width": width, "height": 700})
    visit(server, server)
    wide = {}
    for name in PAGES:
        page.goto(server + name)
        if (needed := page.evaluate("document.documentElement.scrollWidth")) > width:
            wide[name] = needed
    assert wide == {}


def test_reduced_motion_is_respected(visit, server, page):
    page.emulate_media(reduced_motion="reduce")
    visit(server, server)
    moving = """() => [...document.querySelectorAll("*")].filter((element) => {
      const style = getComputedStyle(element);
      return style.scrollBehavior === "smooth" || parseFloat(style.transitionDuration) > 0.01;
    }).map((element) => element.outerHTML.slice(0, 80))"""
    assert page.evaluate(moving) == []
