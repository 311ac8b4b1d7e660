"""See the life of PyTorch's autograd graph: what is saved, what is freed, and by which line."""

from gradtrace.explain import explain, load_ipython_extension
from gradtrace.explore import DeviceDropdown, Exploration, available_devices, explore
from gradtrace.graph import Graph, HeldBytes, Leaf, Node, SavedTensor, snapshot
from gradtrace.player import Player
from gradtrace.trace import Trace, trace
from gradtrace.watch import SilentFailure, watch

__all__ = [
    "DeviceDropdown",
    "Exploration",
    "Graph",
    "HeldBytes",
    "Leaf",
    "Node",
    "Player",
    "SavedTensor",
    "SilentFailure",
    "Trace",
    "available_devices",
    "explain",
    "explore",
    "load_ipython_extension",
    "snapshot",
    "trace",
    "watch",
]
