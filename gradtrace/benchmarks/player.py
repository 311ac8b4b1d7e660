"""What the player costs in a real browser: milliseconds to build it and for a step, bytes.

A step is drawn and laid out; each is given in milliseconds and as a multiple of an empty frame: one
text changed in an empty page, and laid out.  Of each program all steps are drawn three times over.
Boxes are those of the step that shows most, at the scale at which their text is shown (1 is 12 px);
"scrolls" where they do not fit the panel.  Bytes are those of a page with this one player, and of
all files that a page of the book loads, compressed with gzip as a web server does it.
"""

import gzip
import os
import shutil
import statistics
import tempfile
from pathlib import Path

import torch
from models import recurrent_loop, residual_network, transformer
from playwright.sync_api import Browser, sync_playwright

from gradtrace import trace
from gradtrace.page import static_html

SITE = Path(__file__).parents[2] / "_build" / "html"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]

EMPTY_FRAME = """
() => {
  const box = document.createElement("p");
  document.body.append(box);
  const times = [];
  for (let i = 0; i < 300; i += 1) {
    const began = performance.now();
    box.textContent = String(i);
    box.getBoundingClientRect();
    times.push(performance.now() - began);
  }
  box.remove();
  return times;
}
"""

MEASURED = """
() => {
  const place = document.querySelector(".gradtrace");
  const began = performance.now();
  place.querySelector("div").dispatchEvent(new Event("focus"));  // as the Tab key builds it
  place.getBoundingClientRect();
  const build = performance.now() - began;
  const player = place.gradtrace;
  const { scroll, boxes, scale } = player.scene.graph;
  const [steps, shown] = [[], []];
  for (let run = 0; run < 3; run += 1) {
    for (let step = 0; step <= player.timeline.last; step += 1) {
      const before = performance.now();
      player.go(step);
      player.box.getBoundingClientRect();
      steps.push(performance.now() - before);
      const drawn = [...boxes.values()].filter(({ group }) => !group.classList.contains("absent"));
      shown.push(drawn.length);
    }
  }
  const fits = scroll.scrollWidth <= scroll.clientWidth + 1
    && scroll.scrollHeight <= scroll.clientHeight + 1;
  return { build, steps, boxes: Math.max(...shown), scale, fits };
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


def measure(browser: Browser, folder: Path) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto("about:blank")
    # A clock of 0.1 ms: the mean, not the median.
    frame = statistics.mean(page.evaluate(EMPTY_FRAME))
    print(f"an empty frame: {frame:.3f} ms")
    print("| program | nodes | boxes, scale | build | a step, median | slowest | page |")
    print("|---|---|---|---|---|---|---|")
    for program in (two_networks, transformer, residual_network, recurrent_loop):
        seen = trace(program)
        html = f"<!doctype html><meta charset=utf-8>{'<p>prose' * 200}{static_html([seen])}"
        file = folder / f"{program.__name__}.html"
        file.write_text(html)
        page.goto(file.as_uri())
        page.wait_for_selector(".gradtrace[data-mounted]", state="attached")
        found = page.evaluate(MEASURED)
        times = [
            f"{time:.1f} ms, × {time / frame:.0f}"
            for time in (statistics.median(found["steps"]), max(found["steps"]))
        ]
        fits = "" if found["fits"] else ", scrolls"
        print(
            f"| {program.__name__} | {len(seen.nodes)} | "
            f"{found['boxes']}, {found['scale']:.2f}{fits} | {found['build']:.0f} ms | "
            f"{' | '.join(times)} | "
            f"{len(gzip.compress(html.encode(), 6)) / 1e3:.0f} kB |"
        )


def weigh(browser: Browser) -> None:
    for name in ("index", "notebooks/01_two_networks", "notebooks/05_second_time"):
        page = browser.new_page()
        loaded = []
        page.on("response", lambda response, loaded=loaded: loaded.append(response))
        page.goto((SITE / f"{name}.html").as_uri(), wait_until="networkidle")
        sizes = [len(gzip.compress(response.body(), 6)) for response in loaded]
        print(f"{name}: {sum(sizes) / 1e3:.0f} kB compressed in {len(sizes)} files")


def main() -> None:
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        measure(browser, Path(folder))
        if (SITE / "index.html").exists():
            weigh(browser)
        browser.close()


if __name__ == "__main__":
    main()
