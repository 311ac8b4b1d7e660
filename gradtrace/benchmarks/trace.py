"""What a line-by-line trace costs, and its drawing: ratios of medians from one run, one thread.

A GRUCell(64) is unrolled, five lines a step, and goes backward once.  Untraced and traced runs
alternate, so that a busy machine disturbs both alike.  The last ratio of the first part tells
whether the cost is linear: twice the lines should take twice the time, although twice the graph is
alive.

Then large models are traced and drawn in turn; drawing is everything between the trace and the
text of its page, and should take no longer than the trace did.
"""

import functools
import json
import statistics
import time
from collections.abc import Callable

import torch
from models import MODELS

from gradtrace import trace
from gradtrace.page import payload

STEPS = (200, 400)
RUNS = 5


def unroll(steps: int) -> None:
    torch.manual_seed(0)
    cell, inputs = torch.nn.GRUCell(64, 64), torch.randn(steps, 8, 64)
    h = torch.zeros(8, 64)
    for step in range(steps):
        row = inputs[step]
        scaled = row * 0.5
        h = cell(scaled, h)
        done = step + 1
    loss = h.pow(2).mean() / done
    loss.backward()


def seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def main() -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, GRUCell(64), medians, 1 thread")
    traced = {}
    for steps in STEPS:
        seen = trace(unroll, steps, max_steps=10**6)
        runs = [
            (
                seconds(lambda steps=steps: unroll(steps)),
                seconds(lambda steps=steps: trace(unroll, steps, max_steps=10**6)),
            )
            for _ in range(RUNS)
        ]
        plain, traced[steps] = map(statistics.median, zip(*runs, strict=True))
        print(
            f"{len(seen.steps) - 1:,} lines, {len(seen.nodes):,} nodes: untraced "
            f"{plain * 1e3:.0f} ms, traced {traced[steps] * 1e3:.0f} ms "
            f"= × {traced[steps] / plain:.1f}"
        )
    print(f"twice the lines: × {traced[STEPS[1]] / traced[STEPS[0]]:.2f}")
    for program in (functools.partial(unroll, STEPS[0]), *MODELS):
        draw(program)


def draw(program: Callable[[], object]) -> None:
    seen = trace(program, max_steps=10**6)
    runs = [
        (
            seconds(lambda: trace(program, max_steps=10**6)),
            seconds(lambda: trace(program, max_steps=10**6, peaks=True)),
            seconds(lambda: json.dumps(payload(seen))),
        )
        for _ in range(RUNS)
    ]
    plain, peaks, drawn = map(statistics.median, zip(*runs, strict=True))
    print(
        f"{seen.function}, {len(seen.nodes):,} nodes, {len(seen.steps):,} steps: traced "
        f"{plain * 1e3:.0f} ms, with peaks × {peaks / plain:.2f}, drawing × {drawn / plain:.2f}"
    )


if __name__ == "__main__":
    main()
