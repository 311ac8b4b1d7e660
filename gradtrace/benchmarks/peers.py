"""The same models drawn by gradtrace and by other libraries: ``python benchmarks/peers.py FOLDER``.

Writes into ``FOLDER`` what each of them draws, with its own defaults, and prints how long it took
and how large the file is.  The libraries are no dependency of gradtrace: install those that you
want to see (``pip install torchview torchlens torchvista torchviz``; all but torchvista need
Graphviz's ``dot``); one that is missing, or fails, is named and left out.
"""

import contextlib
import io
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from models import ResidualNetwork
from torch import nn

from gradtrace import snapshot, trace


def perceptron() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)), torch.randn(4, 8)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return nn.TransformerEncoder(layer, 12), torch.randn(2, 16, 64)


def residual_network() -> tuple[nn.Module, torch.Tensor]:
    return ResidualNetwork(), torch.randn(2, 3, 8, 8)


def recurrent() -> tuple[nn.Module, torch.Tensor]:
    return nn.GRU(8, 8), torch.randn(200, 1, 8)


MODELS = (perceptron, transformer, residual_network, recurrent)


def loss_of(model: nn.Module, given: torch.Tensor) -> torch.Tensor:
    out = model(given)
    return (out[0] if isinstance(out, tuple) else out).pow(2).mean()


# Each writes what it draws into the folder and returns the file.


def gradtrace_snapshot(model: nn.Module, given: torch.Tensor, folder: Path) -> Path:
    file = folder / "gradtrace.svg"
    snapshot(loss_of(model, given), model=model).to_svg(file)
    return file


def gradtrace_page(model: nn.Module, given: torch.Tensor, folder: Path) -> Path:
    def step() -> None:
        out = model(given)
        out = out[0] if isinstance(out, tuple) else out
        loss = out.pow(2).mean()
        loss.backward()

    file = folder / "gradtrace.html"
    trace(step, peaks=True).to_html(file)
    return file


def torchview(model: nn.Module, given: torch.Tensor, folder: Path) -> Path:
    from torchview import draw_graph

    drawn = draw_graph(model, given, mode="train", expand_nested=True)
    return Path(drawn.visual_graph.render(folder / "torchview", format="svg", cleanup=True))


def torchlens(model: nn.Module, given: torch.Tensor, folder: Path) -> Path:
    import torchlens

    seen = torchlens.trace(model, given)
    seen.draw(vis_outpath=str(folder / "torchlens"), vis_save_only=True, vis_fileformat="svg")
    return folder / "torchlens.svg"


def torchvista(model: nn.Module, given: torch.Tensor, folder: Path) -> Path:
    from torchvista import trace_model

    file = folder / "torchvista.html"
    trace_model(model, given, export_path=str(file))
    return file


def torchviz(model: nn.Module, given: torch.Tensor, folder: Path) -> Path:
    from torchviz import make_dot

    drawn = make_dot(loss_of(model, given), dict(model.named_parameters()))
    return Path(drawn.render(folder / "torchviz", format="svg", cleanup=True))


DRAWN_BY: tuple[Callable[[nn.Module, torch.Tensor, Path], Path], ...] = (
    gradtrace_snapshot,
    gradtrace_page,
    torchview,
    torchlens,
    torchvista,
    torchviz,
)


def main(folder: Path) -> None:
    for name in ("torch", "torchview", "torchlens", "torchvista", "torchviz"):
        try:
            print(name, version(name))
        except PackageNotFoundError:
            print(name, "is not installed")
    for make in MODELS:
        for draw in DRAWN_BY:
            torch.manual_seed(0)
            model, given = make()
            place = folder / make.__name__
            place.mkdir(parents=True, exist_ok=True)
            began = time.perf_counter()
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    file = draw(model, given, place)
            except Exception as error:
                print(
                    f"{make.__name__:17} {draw.__name__:19} {type(error).__name__}: {error}"[:150]
                )
                continue
            took = time.perf_counter() - began
            size = file.stat().st_size / 1000
            print(f"{make.__name__:17} {draw.__name__:19} {took:6.1f} s {size:8.0f} kB", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("python benchmarks/peers.py FOLDER")
    main(Path(sys.argv[1]))
