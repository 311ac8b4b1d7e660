"""See the life of PyTorch's autograd graph: what is saved, what is freed, and by which line.

Every public name is imported when it is first used, so that ``import gradtrace`` costs next to
nothing and the command line starts without PyTorch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradtrace.diagnosis import Diagnosis
    from gradtrace.graph import (
        Graph,
        HeldBytes,
        Leaf,
        ModuleBytes,
        Node,
        SavedTensor,
        snapshot,
    )
    from gradtrace.memory import LiveBytes
    from gradtrace.notebook.explore import (
        DeviceDropdown,
        Exploration,
        available_devices,
        explore,
    )
    from gradtrace.notebook.player import Player
    from gradtrace.picture import Comparison
    from gradtrace.postmortem import explain, load_ipython_extension
    from gradtrace.steps import Trace
    from gradtrace.tracer import trace
    from gradtrace.watcher import SilentFailure, Watch, watch

__version__ = "0.1.0"

_MODULES = {
    "graph": ("Graph", "HeldBytes", "Leaf", "ModuleBytes", "Node", "SavedTensor", "snapshot"),
    "memory": ("LiveBytes",),
    "notebook.explore": ("DeviceDropdown", "Exploration", "available_devices", "explore"),
    "notebook.player": ("Player",),
    "picture": ("Comparison",),
    "postmortem": ("explain", "load_ipython_extension"),
    "steps": ("Trace",),
    "tracer": ("trace",),
    "watcher": ("SilentFailure", "Watch", "watch"),
    "diagnosis": ("Diagnosis",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Comparison",
    "DeviceDropdown",
    "Diagnosis",
    "Exploration",
    "Graph",
    "HeldBytes",
    "Leaf",
    "LiveBytes",
    "ModuleBytes",
    "Node",
    "Player",
    "SavedTensor",
    "SilentFailure",
    "Trace",
    "Watch",
    "available_devices",
    "explain",
    "explore",
    "load_ipython_extension",
    "snapshot",
    "trace",
    "watch",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'gradtrace' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f"gradtrace.{module}"), name)
    except ModuleNotFoundError as error:
        if not module.startswith("notebook."):
            raise
        raise ModuleNotFoundError(
            f"gradtrace.{name} needs {error.name}: pip install 'gradtrace[notebook]'",
            name=error.name,
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
