"""See the life of PyTorch's autograd graph: what is saved, what is freed, and by which line.

Every public name is imported when it is first used, so that ``import gradtrace`` costs next to
nothing and the command line starts without PyTorch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradtrace.autograd.live_bytes import LiveBytes
    from gradtrace.autograd.nodes import HeldBytes, Leaf, Node, SavedTensor
    from gradtrace.explaining.diagnosis import Diagnosis
    from gradtrace.explaining.postmortem import explain
    from gradtrace.explaining.watcher import SilentFailure, Watch, watch
    from gradtrace.notebook.controls import DeviceDropdown, available_devices
    from gradtrace.notebook.exploration import Exploration, explore
    from gradtrace.notebook.extension import load_ipython_extension, unload_ipython_extension
    from gradtrace.notebook.widget import Player
    from gradtrace.player.playback import Trace, trace
    from gradtrace.snapshots.graph import Graph, snapshot

__version__ = "0.1.0"

_MODULES = {
    "autograd.live_bytes": ("LiveBytes",),
    "autograd.nodes": ("HeldBytes", "Leaf", "Node", "SavedTensor"),
    "explaining.diagnosis": ("Diagnosis",),
    "explaining.postmortem": ("explain",),
    "notebook.extension": ("load_ipython_extension", "unload_ipython_extension"),
    "explaining.watcher": ("SilentFailure", "Watch", "watch"),
    "notebook.controls": ("DeviceDropdown", "available_devices"),
    "notebook.exploration": ("Exploration", "explore"),
    "notebook.widget": ("Player",),
    "player.playback": ("Trace", "trace"),
    "snapshots.graph": ("Graph", "snapshot"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "DeviceDropdown", "Diagnosis", "Exploration", "Graph", "HeldBytes", "Leaf", "LiveBytes",
    "Node", "Player", "SavedTensor", "SilentFailure", "Trace", "Watch",
    "available_devices", "explain", "explore", "load_ipython_extension", "snapshot", "trace",
    "unload_ipython_extension", "watch",
]  # fmt: skip


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
