"""Lighthouse (mobile) on the built book: ``make book``, then run this file.

Not a test: its figures hang on the machine.  It takes Lighthouse from the npm registry (Node 18.20
or newer), serves the site compressed as a host would, and prints the four scores of each page as a
row of a table: with the processor that Lighthouse assumes, and with one four times slower.
"""

import argparse
import functools
import gzip
import http.server
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "browser"))

from conftest import FLAGS, SITE, chromium

LIGHTHOUSE = "lighthouse@12.8.2"  # the last that runs on Node 20
PAGES = [
    "index.html",
    *(f"notebooks/{path.stem}.html" for path in sorted((SITE / "notebooks").glob("0*.html"))),
    "notebooks/error_atlas.html",
    "book/verdicts.html",
]
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
SLOWDOWN = 4  # Lighthouse's own for a phone


class Compressed(http.server.SimpleHTTPRequestHandler):
    """The site, text compressed; ``404.html`` and caches do not matter here."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        path = path / "index.html" if path.is_dir() else path
        if not path.is_file():
            self.send_error(404)
            return
        body = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(path))
        if path.suffix in {".html", ".css", ".js", ".svg", ".json"}:
            body = gzip.compress(body, 6)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Cache-Control", "max-age=600")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


def scores(address: str, slowdown: int, browser: str) -> tuple[dict[str, float], float]:
    """The score of each category, of 100, and the blocking time in ms."""
    command = ["npx", "--yes", LIGHTHOUSE, address, "--quiet", "--output=json",
               f"--only-categories={','.join(CATEGORIES)}",
               f"--throttling.cpuSlowdownMultiplier={slowdown}",
               f"--chrome-flags=--headless=new {' '.join(FLAGS)}"]  # fmt: skip
    environment = os.environ | {"CHROME_PATH": browser}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    report = json.loads(run.stdout or "{}")
    if run.returncode or "runtimeError" in report:
        raise SystemExit(f"{address}: {report.get('runtimeError') or run.stderr}")
    found = {name: 100 * report["categories"][name]["score"] for name in CATEGORIES}
    return found, report["audits"]["total-blocking-time"]["numericValue"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", default=PAGES, help="paths in the built site")
    parser.add_argument("--runs", type=int, default=1, help="the median of so many runs")
    arguments = parser.parse_args()
    browser = chromium()
    if browser is None or shutil.which("npx") is None:
        parser.error("this needs Chromium and Node's npx")
    if not (SITE / "index.html").exists():
        parser.error("the book is not built: run `make book` first")
    handler = functools.partial(Compressed, directory=SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print(f"| page | processor slowed | {' | '.join(CATEGORIES)} | blocking, ms |")
        print(f"|---|---|{'---|' * len(CATEGORIES)}---|")
        for page in arguments.pages:
            for slowdown in (SLOWDOWN, 4 * SLOWDOWN):
                address = f"http://127.0.0.1:{httpd.server_port}/{page}"
                seen = [scores(address, slowdown, browser) for _ in range(arguments.runs)]
                medians = [statistics.median(found[name] for found, _ in seen)
                           for name in CATEGORIES]  # fmt: skip
                blocking = statistics.median(time for _, time in seen)
                row = " | ".join(f"{score:.0f}" for score in medians)
                print(f"| {page} | × {slowdown} | {row} | {blocking:.0f} |", flush=True)
        httpd.shutdown()


if __name__ == "__main__":
    main()
