"""See the life of PyTorch's autograd graph: what is saved, what is freed, and by which line."""

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
    "explore",
    "snapshot",
    "trace",
    "watch",
]
