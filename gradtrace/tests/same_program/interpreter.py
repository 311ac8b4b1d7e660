"""What a program asks Python about itself: annotations, files, frames, arguments, signals."""

import argparse
import atexit
import dataclasses
import functools
import inspect
import logging
import os
import signal
import sys
import tempfile
import threading
import typing
import warnings
from pathlib import Path

import end_state
import torch
from torch import Tensor

here, frame = inspect.stack()[-1], sys._getframe()
print(len(inspect.stack()), Path(here.filename).name, frame.f_back, frame.f_code.co_name)
print(__name__, Path(__file__).name, __spec__, type(__loader__).__name__, sys.argv)
print(sys.modules["__main__"].__dict__ is globals(), sys.getrecursionlimit(), sys.flags)


@dataclasses.dataclass
class Settings:
    rate: float = 0.5
    rounds: int = 2
    name: str = "net"


parser = argparse.ArgumentParser()
for field in dataclasses.fields(Settings):
    parser.add_argument(f"--{field.name}", type=field.type, default=field.default)
settings = Settings(**vars(parser.parse_args(["--rounds", "3"])))
print(settings, typing.get_type_hints(Settings), inspect.signature(Settings))


class Batch(typing.NamedTuple):
    inputs: Tensor
    count: int = 1


def scaled(x: Tensor, by: float) -> Tensor:
    return x * by


print(Batch.__annotations__, scaled.__annotations__, inspect.getsource(Batch).splitlines()[0])


@functools.singledispatch
def kind(x):
    return "any"


@kind.register
def _(x: int):
    return "int"


print(kind(1), kind("a"))


@torch.jit.script
def repeated(x, times: int):
    return x * times


print(repeated(torch.ones(2), 3))


@torch.library.custom_op("same::scaled", mutates_args=())
def op(x: Tensor, by: float) -> Tensor:
    return x * by


print(op(torch.ones(2), 2.0))


def depth():
    try:
        return 1 + depth()
    except RecursionError:
        return 1


print(depth())


def later():
    w = torch.ones(2, requires_grad=True)
    torch.autograd.backward([w.exp().sum()])
    print("at exit", w.grad, "settings" in globals(), len(inspect.stack()))


atexit.register(later)
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
logging.getLogger(__name__).info("logged")
signal.signal(signal.SIGUSR1, lambda number, frame: print("signal", frame.f_code.co_name))
os.kill(os.getpid(), signal.SIGUSR1)
w = torch.ones(settings.rounds, requires_grad=True)


def in_a_thread():
    for _ in range(settings.rounds):
        (w * settings.rate).sum().backward()
    print("thread", len(inspect.stack()))


worker = threading.Thread(target=in_a_thread)
worker.start()
worker.join()
print(w.grad)
warnings.warn("from the program", stacklevel=1)
print("standard error", file=sys.stderr)
os.chdir(tempfile.gettempdir())
print(Path(__file__).exists(), inspect.getsource(scaled).splitlines()[-1])
os.chdir(end_state.FOLDER)
sys.exit("bye")
