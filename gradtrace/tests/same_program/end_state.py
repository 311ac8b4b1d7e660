"""Imported first by each program: seeds it and, at exit, writes down what it leaves behind.

Everything that a watch could have touched: random states, every tensor and module among the
program's variables bit for bit, switches of PyTorch, of Python and of this process.
"""

import atexit
import gc
import hashlib
import json
import logging
import os
import random
import sys
import threading
import warnings
from pathlib import Path

import numpy
import torch

FOLDER = Path.cwd()
PROCESS = os.getpid()


def digest(value):
    """Type, layout, bits, history and gradient of a tensor, or of all that a module holds."""
    if isinstance(value, torch.nn.Module):
        return {name: digest(inner) for name, inner in value.state_dict(keep_vars=True).items()}
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunction(), torch.no_grad():
            bits = b""
            plain = type(value).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
            if plain and value.device.type != "meta" and value.layout == torch.strided:
                bits = bytes(value.detach().contiguous().flatten().view(torch.uint8).tolist())
            return [
                type(value).__name__,
                str((value.dtype, tuple(value.shape), value.device, value.requires_grad)),
                None if value.is_inference() else value._version,
                None if value.grad_fn is None else value.grad_fn.name(),
                hashlib.sha256(bits).hexdigest(),
                digest(value.grad) if value.is_leaf and value.grad is not None else None,
                len(value._backward_hooks or ()),
            ]
    return None


def _of_python():
    return {
        "random": _hash(random.getstate()),
        "filters": repr(warnings.filters),
        "hooks": [repr(x).split(" at ")[0] for x in (sys.excepthook, sys.displayhook)],
        "warn": [f.__module__ for f in (warnings.showwarning, warnings.warn_explicit)],
        "threading": repr(threading.excepthook),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "traced": [repr(f) for f in (sys.gettrace(), sys.getprofile())],
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_debug(), len(gc.callbacks)],
        "limit": sys.getrecursionlimit(),
        "environment": dict(os.environ),
        "path": sys.path,
        "argv": sys.argv,
        "log": [str(logging.root.level), len(logging.root.handlers)],
        "folder": str(Path.cwd().relative_to(FOLDER)),
    }


def _hash(value):
    return hashlib.sha256(repr(value).encode()).hexdigest()


def _of_torch():
    variables = vars(sys.modules["__main__"])
    state = {name: digest(value) for name, value in sorted(variables.items())}
    return {
        "variables": {name: found for name, found in state.items() if found is not None},
        "random": _hash(torch.get_rng_state().tolist()),
        "switches": [
            str(switch)
            for switch in (
                torch.is_grad_enabled(),
                torch.is_inference_mode_enabled(),
                torch.get_default_dtype(),
                torch.get_default_device(),
                torch.get_num_threads(),
                torch.are_deterministic_algorithms_enabled(),
                torch.is_autocast_enabled("cpu"),
                torch.is_anomaly_enabled(),
            )
        ],
    }


def write():
    if os.getpid() != PROCESS:
        return
    state = {
        "python": _of_python(),
        "numpy": _hash(numpy.random.get_state(legacy=False)),
        "torch": _of_torch(),
    }
    text = json.dumps(state, indent=1).replace(str(FOLDER), "FOLDER")
    (FOLDER / "end_state.json").write_text(text, encoding="utf-8")


random.seed(1), numpy.random.seed(2), torch.manual_seed(3)
atexit.register(write)
