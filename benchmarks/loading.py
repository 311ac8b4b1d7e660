"""What loading a page costs a phone's processor: ``make book``, then run this file.

Not a test.  Lighthouse (``lighthouse.py``) goes by the clock, so its figures hang on what else the
machine does; these are processor time and counts, from Chromium's own trace of the page's main
thread on a phone's screen, from the first request to 1.5 s after everything has come.
"""

import argparse
import collections
import functools
import http.server
import statistics
import threading
from typing import Any

from lighthouse import FLAGS, PAGES, SITE, SLOWDOWN, Compressed, chromium
from playwright.sync_api import Browser, sync_playwright

PHONE = {"viewport": {"width": 412, "height": 823}, "device_scale_factor": 1.75, "is_mobile": True,
         "has_touch": True}  # fmt: skip
CATEGORIES = ["devtools.timeline", "loading", "toplevel"]
LONG = 50  # ms: what a task takes beyond that blocks the reader


def events(browser: Browser, address: str) -> list[dict[str, Any]]:
    """What Chromium's trace says of loading a page."""
    with browser.new_context(**PHONE) as context:
        page = context.new_page()
        session = context.new_cdp_session(page)
        found: list[dict[str, Any]] = []
        complete: list[dict[str, Any]] = []
        session.on("Tracing.dataCollected", lambda part: found.extend(part["value"]))
        session.on("Tracing.tracingComplete", lambda end: complete.append(end))
        config = {"includedCategories": CATEGORIES}
        session.send("Tracing.start", {"transferMode": "ReportEvents", "traceConfig": config})
        page.goto(address)
        page.wait_for_load_state("load")
        page.wait_for_timeout(1500)
        session.send("Tracing.end")
        while not complete:
            page.wait_for_timeout(20)
    return found


def costs(found: list[dict[str, Any]]) -> tuple[float, float, int, int]:
    """Processor time (ms), blocking time on a phone four times slower than usual (ms), layouts and
    objects laid out."""
    threads = collections.Counter(
        (event["pid"], event["tid"]) for event in found if event["name"] == "Layout"
    )
    main = threads.most_common(1)[0][0]
    mine = [event for event in found if (event["pid"], event["tid"]) == main]
    paints = [event for event in found if event["name"] == "firstContentfulPaint"]
    seen = min(event["ts"] for event in paints if event["pid"] == main[0])
    tasks = [event for event in mine if event["name"].endswith("RunTask") and "tdur" in event]
    outer, end = [], 0
    for task in sorted(tasks, key=lambda task: (task["ts"], -task["dur"])):
        if task["ts"] >= end:
            outer.append(task)
            end = task["ts"] + task["dur"]
    slowed = (4 * SLOWDOWN * task["tdur"] / 1000 for task in outer if task["ts"] >= seen)
    layouts = [event for event in mine if event["name"] == "Layout"]
    objects = sum(event["args"]["beginData"]["dirtyObjects"] for event in layouts)
    took = sum(task["tdur"] for task in outer) / 1000
    return took, sum(max(0, time - LONG) for time in slowed), len(layouts), objects


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", default=PAGES, help="paths in the built site")
    parser.add_argument("--runs", type=int, default=5, help="the median of so many runs")
    arguments = parser.parse_args()
    found = chromium()
    if found is None:
        parser.error("this needs Chromium")
    if not (SITE / "index.html").exists():
        parser.error("the book is not built: run `make book` first")
    handler = functools.partial(Compressed, directory=SITE)
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd,
        sync_playwright() as playwright,
    ):
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        print("| page | processor time, ms | blocking at × 16, ms | layouts | objects laid out |")
        print("|---|---|---|---|---|")
        for page in arguments.pages:
            address = f"http://127.0.0.1:{httpd.server_port}/{page}"
            runs = [costs(events(browser, address)) for _ in range(arguments.runs)]
            medians = (statistics.median(column) for column in zip(*runs, strict=True))
            print(f"| {page} | {' | '.join(f'{value:.0f}' for value in medians)} |", flush=True)
        browser.close()
        httpd.shutdown()


if __name__ == "__main__":
    main()
