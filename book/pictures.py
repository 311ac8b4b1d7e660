"""The picture of the player for the README, from the built site: ``make pictures``.

Drawn by a real browser, so it shows what the landing page shows.  It is not compared by a test:
fonts differ between machines.
"""

import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

BOOK = Path(__file__).parent
SITE = BOOK.parent / "_build" / "html"
STATIC = BOOK / "_static"


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
    write("player.png", player.screenshot())


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
