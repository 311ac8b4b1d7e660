"""What the player costs in a real browser: building it, a step, boxes at first sight, kB of pages.

A step is a click on "Step back" with the layout that it causes: the median over all steps (of a
long trace every tenth), three times over.  To its right stands how long it takes until the step is
on the screen, as a multiple of the same for a page on which nothing changes.  Bytes are those of
the standalone page of each large model, and of all files that a page of the course loads, each
compressed with gzip as a web server does it.
"""

import functools
import gzip
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from models import MODELS, recurrent_loop
from playwright.sync_api import Browser, sync_playwright

from gradtrace import trace
from gradtrace.draw.layout import drawings_of
from gradtrace.player.page import static_html
from gradtrace.player.trace_scene import scene_of

SITE = Path(__file__).parents[2] / "_build" / "html"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]

FRAMES = """
async () => {
  const frame = () => new Promise(requestAnimationFrame);
  const times = [];
  for (let i = 0; i < 60; i++) {
    await frame();
    const began = performance.now();
    await frame();
    times.push(performance.now() - began);
  }
  return times;
}
"""

STEPS = """
async (every) => {
  const frame = () => new Promise(requestAnimationFrame);
  const root = document.querySelector(".gradtrace > div").shadowRoot;
  const press = label => root.querySelector(`[aria-label="${label}"]`).click();
  const over = () => root.querySelector('[aria-label="Step back"]').ariaDisabled === "true";
  const times = [], painted = [];
  for (let run = 0; run < 3; run++) {
    press("Last step");
    for (let step = 0; !over(); step++) {
      if (step % every) {
        press("Step back");
        continue;
      }
      await frame();
      const began = performance.now();
      press("Step back");
      root.querySelector(".player").getBoundingClientRect();
      times.push(performance.now() - began);
      await frame();
      painted.push(performance.now() - began);
    }
  }
  return [times, painted];
}
"""

# A player far below the view is not built yet; the Tab key would build it so.
BUILD = """
() => {
  const place = document.querySelector(".gradtrace");
  const began = performance.now();
  place.querySelector("div").dispatchEvent(new Event("focus"));
  place.getBoundingClientRect();
  return performance.now() - began;
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


def measure(browser: Browser, program: Callable[[], object], file: Path) -> None:
    seen = trace(program, max_steps=10**6)
    seen.to_html(file)
    weight = len(gzip.compress(file.read_bytes(), 6))
    views = drawings_of(scene_of(seen))
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto("about:blank")
    empty = statistics.median(page.evaluate(FRAMES))
    page.goto(file.as_uri())
    page.locator(".player").first.wait_for()
    times, painted = page.evaluate(STEPS, 1 if len(seen.steps) < 50 else 10)
    file.write_text(f"<!doctype html><div style='height: 9999px'></div>{static_html([seen])}")
    page.goto(file.as_uri())
    page.locator(".gradtrace[data-mounted]").wait_for(state="attached")
    built = page.evaluate(BUILD)
    page.close()
    print(
        f"{seen.function}: {len(seen.nodes):,} nodes, {len(seen.steps)} steps; "
        f"{len(views[0].boxes)} boxes at first sight, at most "
        f"{max(len(view.boxes) for view in views)} in {len(views)} views; "
        f"page {weight / 1e3:.0f} kB compressed; built in {built:.0f} ms; "
        f"a step: median {statistics.median(times):.1f} ms, slowest {max(times):.1f} ms, "
        f"on the screen after {statistics.median(painted) / empty:.1f} empty frames"
    )


def main() -> None:
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        for program in (two_networks, functools.partial(recurrent_loop, 125), *MODELS):
            measure(browser, program, Path(folder, "page.html"))
        for name in ("index", "notebooks/01_two_networks"):
            if not (SITE / f"{name}.html").exists():
                print(f"{name}: not built (make book)")
                continue
            page = browser.new_page()
            loaded = []
            page.on("response", lambda response, loaded=loaded: loaded.append(response))
            page.goto((SITE / f"{name}.html").as_uri(), wait_until="networkidle")
            sizes = [len(gzip.compress(response.body(), 6)) for response in loaded]
            print(f"{name}: {sum(sizes) / 1e3:.0f} kB compressed in {len(sizes)} files")
        browser.close()


if __name__ == "__main__":
    main()
