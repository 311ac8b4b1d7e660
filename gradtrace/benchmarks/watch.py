"""What a watch costs: ratios of medians from one run, one thread.

Blocks of training steps alternate between the ways of running, so that a busy machine disturbs all
alike.  Anomaly mode stands beside: it is what PyTorch itself offers to find the cause of a failed
backward.  Then: what importing costs, many losses in one list, and a thousand watched steps.
"""

import contextlib
import gc
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch

from gradtrace import watch

Step = Callable[[], None]


def trained(model: torch.nn.Module, loss: Callable[[], torch.Tensor]) -> Step:
    """A training step with plain SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def transformer() -> Step:
    """6 layers, d = 256, batch 8 × 128."""
    layer = torch.nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    x = torch.randn(8, 128, 256)
    return trained(model, lambda: model(x).pow(2).mean())


def mlp() -> Step:
    """Three linear layers of width 64, batch 128."""
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 1),
    )
    x, y = torch.randn(128, 64), torch.randn(128, 1)
    return trained(model, lambda: torch.nn.functional.mse_loss(model(x), y))


def cells(kind: type[torch.nn.RNNCellBase], steps: int) -> Step:
    """A recurrent cell of 64 over ``steps`` inputs, batch 8."""
    cell, x = kind(64, 64), torch.randn(steps, 8, 64)

    def loss() -> torch.Tensor:
        state = None
        for row in x:
            state = cell(row, state)
        return (state[0] if isinstance(state, tuple) else state).pow(2).mean()

    return trained(cell, loss)


PROGRAMS: dict[str, tuple[Callable[[], Step], int, int]] = {  # rounds, steps in a block
    "transformer": (transformer, 9, 1),
    "MLP of 64": (mlp, 60, 50),
    "LSTMCell × 50": (lambda: cells(torch.nn.LSTMCell, 50), 40, 3),
    "GRUCell × 200": (lambda: cells(torch.nn.GRUCell, 200), 25, 1),
}
WAYS = {
    "plain": contextlib.nullcontext,
    "watch()": watch,
    "watch(strict=True)": lambda: watch(strict=True),
    "anomaly mode": torch.autograd.detect_anomaly,
}


def medians(step: Step, rounds: int, block: int) -> dict[str, float]:
    """Median milliseconds of a step in each way."""
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for name, way in WAYS.items():
            gc.collect()
            with way():
                step()
                began = time.perf_counter()
                for _ in range(block):
                    step()
                times[name].append((time.perf_counter() - began) / block)
    return {name: statistics.median(values) * 1e3 for name, values in times.items()}


def imported(statement: str) -> float:
    """Median seconds that a statement takes in a fresh Python that has imported torch."""
    text = f"import time, torch; t = time.perf_counter(); {statement}; print(time.perf_counter()-t)"
    runs = [subprocess.check_output([sys.executable, "-c", text]) for _ in range(7)]
    return statistics.median(map(float, runs))


def many_losses(count: int) -> float:
    """Milliseconds for each of ``count`` losses: all built first, then gone backward one by one."""
    w = torch.ones(8, requires_grad=True)
    shared = w.view(8)
    losses = [(shared * i).exp().sum() for i in range(count)]
    began = time.perf_counter()
    with watch():
        for loss in losses:
            loss.backward()
    return (time.perf_counter() - began) / count * 1e3


def main() -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, medians, 1 thread")
    for name, (make, rounds, block) in PROGRAMS.items():
        torch.manual_seed(0)
        cost = medians(make(), rounds, block)
        for way, value in cost.items():
            print(f"{name:<14} {way:<19} {value:8.3f} ms  × {value / cost['plain']:.3f}")

    text = "import time; t = time.perf_counter(); import torch; print(time.perf_counter()-t)"
    runs = [subprocess.check_output([sys.executable, "-c", text]) for _ in range(7)]
    torch_alone = statistics.median(map(float, runs))
    for statement in ("import gradtrace", "from gradtrace import watch"):
        share = imported(statement) / torch_alone
        print(f"{statement}: {share:.2%} of the {torch_alone:.2f} s of importing torch")

    few, many = many_losses(1_000), many_losses(10_000)
    print(f"each of 10,000 losses in one list costs × {many / few:.2f} of each of 1,000")

    step, times, peaks = cells(torch.nn.GRUCell, 200), [], []
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
