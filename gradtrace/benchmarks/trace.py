"""What a line-by-line trace costs, and its drawing: ratios of medians from one run, one thread.

A GRUCell(64) is unrolled, five lines a step, and goes backward once.  Untraced and traced runs
alternate, so that a busy machine disturbs both alike.  All times are of the processor.  The last
ratio of the first part tells whether the cost is linear: twice the lines should take twice the
time, although twice the graph is alive.

Then models are traced and drawn in turn; drawing is everything between the trace and the text of
its page, and should take no longer than the trace did.

Last comes a GRU of more and more lines: seconds to trace it and to draw it, each also as a multiple
of those for half the lines, and the bytes of its page, compressed with gzip as a web server does.
"""

import functools
import gzip
import json
import statistics
import time
from collections.abc import Callable

import torch
from models import ZOO, recurrent_loop

from gradtrace import trace
from gradtrace.player.page import payload, standalone

STEPS = (200, 400)
LINES = (250, 500, 1_000, 2_000, 4_000)
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
    began = time.process_time()
    function()
    return time.process_time() - began


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
    for program in (functools.partial(unroll, STEPS[0]), *ZOO):
        draw(program)
    lengthen()


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


def lengthen() -> None:
    half: tuple[float, ...] = ()
    for lines in LINES:
        program = functools.partial(recurrent_loop, lines // 2)
        seen = trace(program, max_steps=10**6)
        runs = [
            (
                seconds(lambda program=program: trace(program, max_steps=10**6)),
                seconds(lambda seen=seen: json.dumps(payload(seen))),
            )
            for _ in range(RUNS)
        ]
        took = tuple(map(statistics.median, zip(*runs, strict=True)))
        more = [f" (× {now / before:.1f})" for now, before in zip(took, half, strict=False)]
        half = took
        said = [f"{now:.2f} s{ratio}" for now, ratio in zip(took, more or ["", ""], strict=True)]
        page = len(gzip.compress(standalone([seen], "GRU").encode(), 6))
        print(
            f"{len(seen.steps) - 1:,} lines of a GRU, {len(seen.nodes):,} nodes: traced in "
            f"{said[0]}, drawn in {said[1]}; page {page / 1e3:.0f} kB compressed"
        )


if __name__ == "__main__":
    main()
