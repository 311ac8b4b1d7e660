"""What a watch costs on a training step: ratios of medians from one run, one thread.

Steps alternate between the ways of running, so that a busy machine disturbs all alike.  Anomaly
mode stands beside: it is what PyTorch itself offers to find the cause of a failed backward.
"""

import contextlib
import gc
import resource
import statistics
import time
from collections.abc import Callable

import torch

from gradtrace import watch


def transformer() -> Callable[[], None]:
    """One training step of 6 layers, d = 256, batch 8 × 128."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(8, 128, 256)

    def step() -> None:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def gru() -> Callable[[], None]:
    """One training step of a GRUCell(64) over 200 steps, batch 8."""
    torch.manual_seed(0)
    cell = torch.nn.GRUCell(64, 64)
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.01)
    x = torch.randn(200, 8, 64)

    def step() -> None:
        h = torch.zeros(8, 64)
        for row in x:
            h = cell(row, h)
        loss = h.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


WAYS = {
    "plain": contextlib.nullcontext,
    "watch()": watch,
    "watch(strict=True)": lambda: watch(strict=True),
    "anomaly mode": torch.autograd.detect_anomaly,
}


def medians(step: Callable[[], None], rounds: int) -> dict[str, float]:
    """Median milliseconds of a step in each way."""
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for way in WAYS.values():
        with way():
            step()
    for _ in range(rounds):
        for name, way in WAYS.items():
            gc.collect()
            with way():
                began = time.perf_counter()
                step()
                times[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) * 1e3 for name, values in times.items()}


def main() -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, medians, 1 thread")
    for make, rounds in ((transformer, 7), (gru, 31)):
        cost = medians(make(), rounds)
        for name, value in cost.items():
            print(f"{make.__name__:<12} {name:<19} {value:8.1f} ms  × {value / cost['plain']:.3f}")

    step, times, peaks = gru(), [], []
    with watch():
        for _ in range(1_000):
            began = time.perf_counter()
            step()
            times.append(time.perf_counter() - began)
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    early, late = statistics.median(times[100:200]), statistics.median(times[-100:])
    print(f"1,000 watched GRU steps: the last 100 take × {late / early:.2f} of the second 100;")
    print(f"peak memory grows by {(peaks[-1] - peaks[100]) / 1e3:.1f} MB after the first 100")


if __name__ == "__main__":
    main()
