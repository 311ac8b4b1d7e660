"""What every driver here does in the same way, so that two runs of it can be compared.

``begin`` seeds all generators, ``training`` measures, ``end`` prints digests of the parameters with
their gradients and of the random state.  A measurement differs from run to run and must not be
printed: it goes into the file that the environment's ``WILD_MEASURES`` names.  That file exists
from ``begin`` on, which tells the runner that the driver's libraries could be imported.
"""

import contextlib
import hashlib
import json
import os
import random
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch


def _write(**measures: float) -> None:
    if name := os.environ.get("WILD_MEASURES"):
        Path(name).write_text(json.dumps(measures), encoding="utf-8")


def begin(seed: int = 0) -> None:
    """Same numbers in every run: one thread, every generator seeded."""
    torch.set_num_threads(1)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    _write()


@contextlib.contextmanager
def training() -> Iterator[None]:
    """Measure what stands inside: seconds of the processor, peak of memory (kB) up to its end."""
    began = time.process_time()
    yield
    seconds = time.process_time() - began
    _write(seconds=seconds, peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"|".join(parts)).hexdigest()[:16]


def _bytes(tensor: torch.Tensor | None) -> bytes:
    return b"none" if tensor is None else tensor.detach().contiguous().cpu().numpy().tobytes()


def end(*trained: torch.nn.Module | torch.Tensor) -> None:
    """Print digests of all parameters, buffers and gradients, and of the random state."""
    tensors = []
    for thing in trained:
        if isinstance(thing, torch.nn.Module):
            tensors += [*thing.parameters(), *thing.buffers()]
        else:
            tensors.append(thing)
    gradients = [tensor.grad if tensor.is_leaf else None for tensor in tensors]
    numpy_state = np.random.get_state()
    print("parameters", _digest(*map(_bytes, tensors)))
    print("gradients", _digest(*map(_bytes, gradients)))
    print(
        "random",
        _digest(repr(random.getstate()).encode()),
        _digest(numpy_state[1].tobytes(), repr(numpy_state[2:]).encode()),
        _digest(torch.get_rng_state().numpy().tobytes()),
    )
