"""What the player costs in a real browser: milliseconds for a step, bytes for a page.

A step is a click on "Step back" with the layout it causes, on a trace whose last graph has some 60
nodes; the median over all steps, three times over.  Bytes are those of all files that a chapter's
page loads, each compressed with gzip as a web server does it.
"""

import gzip
import os
import shutil
import statistics
import tempfile
from pathlib import Path

import torch
from playwright.sync_api import sync_playwright

from gradtrace import trace
from gradtrace.page import static_html

SITE = Path(__file__).parents[2] / "_build" / "html"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]

STEP_TIMES = """
() => {
  const root = document.querySelector(".gradtrace > div").shadowRoot;
  const press = label => root.querySelector(`[aria-label="${label}"]`).click();
  const times = [];
  for (let run = 0; run < 3; run++) {
    press("Last step");
    while (root.querySelector('[aria-label="Step back"]').ariaDisabled !== "true") {
      const began = performance.now();
      press("Step back");
      root.querySelector(".player").getBoundingClientRect();
      times.push(performance.now() - began);
    }
  }
  return times;
}
"""


def two_networks() -> None:
    def network():
        layers = [layer for _ in range(5) for layer in (torch.nn.Linear(4, 4), torch.nn.Tanh())]
        return torch.nn.Sequential(*layers)

    net1, net2 = network(), network()
    x = torch.ones(2, 4, requires_grad=True)
    hidden1 = net1(x)
    loss1 = hidden1.exp().mean()
    hidden2 = net2(x)
    loss2 = hidden2.exp().mean()
    loss1.backward()
    loss2.backward()


def main() -> None:
    seen = trace(two_networks)
    drawn = max(len(step.nodes) for step in seen.steps)
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        file = Path(folder, "player.html")
        file.write_text(f"<!doctype html><meta charset=utf-8>{static_html([seen])}")
        page.goto(file.as_uri())
        times = page.evaluate(STEP_TIMES)
        print(
            f"a step of the player, {drawn} nodes: median {statistics.median(times):.1f} ms, "
            f"slowest {max(times):.1f} ms ({len(times)} steps)"
        )
        for name in ("index", "notebooks/01_two_networks"):
            page = browser.new_page()
            loaded = []
            page.on("response", lambda response, loaded=loaded: loaded.append(response))
            page.goto((SITE / f"{name}.html").as_uri(), wait_until="networkidle")
            sizes = [len(gzip.compress(response.body(), 6)) for response in loaded]
            print(f"{name}: {sum(sizes) / 1e3:.0f} kB compressed in {len(sizes)} files")
        browser.close()


if __name__ == "__main__":
    main()
