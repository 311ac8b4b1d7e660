"""The pictures of the player for README and social card, from the built site: ``make pictures``.

Drawn by a real browser, so they show what the landing page shows.  They are not compared by a test:
fonts differ between machines.
"""

import io
import shutil
from base64 import b64encode
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

BOOK = Path(__file__).parent
SITE = BOOK.parent / "_build" / "html"
STATIC = BOOK / "_static"

CARD = """
<body style="margin: 0; width: 1200px; height: 630px; overflow: hidden; background: white;
  font-family: system-ui, sans-serif; color: #1a1a1a">
<h1 style="margin: 44px 60px 6px; font-size: 58px">
  <img src="data:image/svg+xml;base64,{mark}" style="width: 52px; margin: 0 14px -4px 0">
  Backward Twice</h1>
<p style="margin: 0 60px 26px; font-size: 27px">
  “Trying to backward through the graph a second time”, played line by line</p>
<img src="data:image/png;base64,{player}" style="width: 1080px; margin: 0 60px">
"""


def write(name: str, png: bytes) -> None:
    """As a PNG of 128 colours: a third of the size, and nobody sees it."""
    Image.open(io.BytesIO(png)).convert("RGB").quantize(128).save(STATIC / name, optimize=True)
    print(f"{name}: {(STATIC / name).stat().st_size} bytes")


def draw(page: Page) -> None:
    page.goto((SITE / "index.html").as_uri())
    player = page.locator(".gradtrace").first
    player.scroll_into_view_if_needed()
    player.locator(".graph svg[role=group]").wait_for()
    # Up to and with the bytes: the tables below are for the page itself.
    for below in player.locator("details, .tables, .outcome").all():
        below.evaluate("element => { element.hidden = true; }")
    picture = player.screenshot()
    write("player.png", picture)
    mark = b64encode((STATIC / "favicon.svg").read_bytes()).decode()
    page.set_content(CARD.format(mark=mark, player=b64encode(picture).decode()))
    write("social.png", page.screenshot(clip={"x": 0, "y": 0, "width": 1200, "height": 630}))


def main() -> None:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=found, args=flags)
        page = browser.new_page(
            viewport={"width": 1400, "height": 1000}, color_scheme="light", device_scale_factor=1.5
        )
        draw(page)
        browser.close()


if __name__ == "__main__":
    main()
