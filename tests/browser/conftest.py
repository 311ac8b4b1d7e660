"""A real browser for the tests in this folder: the system's Chromium, driven by Playwright.

Every request that leaves the site under test is refused and counts as a failure, as does every
failed request, console error and uncaught exception.  Without a Chromium the tests are skipped;
with BROWSER=required in the environment they fail instead.
"""

import functools
import http.server
import os
import re
import shutil
import threading
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

SITE = Path(__file__).parents[2] / "_build" / "html"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
ABORTED = "net::ERR_ABORTED"


def chromium():
    """The path of the browser, None where there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def browser():
    found = chromium()
    if found is None:
        reason = f"no browser: install Chromium (looked for {', '.join(NAMES)} and $CHROMIUM)"
        (pytest.fail if os.environ.get("BROWSER") == "required" else pytest.skip)(reason)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def axe():
    """The source of axe-core, which finds what is not accessible."""
    if not AXE.exists():
        reason = "axe-core is not installed: `make test` does it where npm and its registry are"
        (pytest.fail if os.environ.get("BROWSER") == "required" else pytest.skip)(reason)
    return AXE.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def site():
    """The folder of the built book."""
    if not (SITE / "index.html").exists():
        pytest.fail("the book is not built: run `make book` first")
    return SITE


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="session")
def server(site):
    """The address at which the built book is served."""
    handler = functools.partial(_Quiet, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}/"
        httpd.shutdown()


@pytest.fixture(params=["http", "file"])
def base(request):
    """The site over HTTP, then opened from its folder."""
    if request.param == "http":
        return request.getfixturevalue("server")
    return request.getfixturevalue("site").as_uri() + "/"


@pytest.fixture
def page(browser):
    """An empty page; ``page.complaints`` collects what went wrong, and must end up empty."""
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.complaints = []
        note = page.complaints.append
        page.on("console", lambda message: message.type == "error" and note(message.text))
        page.on("pageerror", lambda error: note(str(error)))
        # One that a new page has made needless is no complaint.
        page.on("requestfailed", lambda r: r.failure != ABORTED and note(f"failed: {r.url}"))
        page.on("response", lambda r: r.status >= 400 and note(f"{r.status}: {r.url}"))
        yield page


@pytest.fixture
def visit(page):
    """Open an address; requests to anywhere outside ``inside`` are refused."""

    def open_page(address: str, inside: str):
        # The driver itself lets the others go on: to ask Python for each takes long.
        page.route(re.compile(f"^(?!{re.escape(inside)}|data:|blob:)"), lambda route: route.abort())
        page.goto(address)
        return page

    return open_page
