"""The joined style sheet makes pages look as the sheets do that it is made of."""

import pytest

# As theme and extensions link them.
SHEETS = [
    "basic.css",
    "styles/pydata-sphinx-theme.css",
    "pygments.css",
    "styles/sphinx-book-theme.css",
    "copybutton.css",
    "mystnb.*.css",
    "sphinx-design.min.css",
    "icons.css",
    "course.css",
    "forms.css",
]
# Of each element and of what is generated before and after it; variables are no looks.
LOOKS = """() => {
  const names = [...getComputedStyle(document.body)].filter((name) => !name.startsWith("--"));
  return [...document.querySelectorAll("html, body, body *")].flatMap((element) =>
    ["", "::before", "::after"].flatMap((part) => {
      const style = getComputedStyle(element, part);
      if (part && style.content === "none") return [];
      const looks = names.map((name) => `${name}: ${style.getPropertyValue(name)}`);
      return [[`${element.localName}.${element.className}${part}`, looks.join("; ")]];
    }));
}"""
ALL_BUT_PLAYERS = ".gradtrace { display: none } section { content-visibility: visible !important }"
LINK = """(url) => new Promise((done) => {
  const link = document.createElement("link");
  Object.assign(link, { rel: "stylesheet", href: url, onload: done });
  document.head.append(link);
})"""


@pytest.mark.parametrize(
    ("name", "width"), [("index.html", 1280), ("book/verdicts.html", 360), ("search.html", 820)]
)
def test_joined_sheets_look_as_the_sheets_do(visit, server, page, site, name, width):
    page.emulate_media(reduced_motion="reduce")  # else colours fade, and have to be waited for
    page.set_viewport_size({"width": width, "height": 900})
    visit(server + name, server).wait_for_load_state("networkidle")
    page.add_style_tag(content=ALL_BUT_PLAYERS)
    joined = page.evaluate(LOOKS)
    assert page.locator("link[rel=stylesheet]").count() == 1
    for pattern in SHEETS:
        (sheet,) = (site / "_static").glob(pattern)
        page.evaluate(LINK, f"{server}_static/{sheet.relative_to(site / '_static')}")
    page.evaluate("document.querySelector('link[rel=stylesheet]').remove()")
    looks = page.evaluate(LOOKS)
    assert len(looks) == len(joined) > 400
    different = [
        element for (element, one), (_, other) in zip(looks, joined, strict=True) if one != other
    ]
    assert different == []
