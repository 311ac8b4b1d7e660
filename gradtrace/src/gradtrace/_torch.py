"""Every private name of PyTorch that gradtrace needs, and what stands in where there is none."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, methodcaller

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.weak import TensorWeakRef, WeakIdKeyDictionary

__all__ = [
    "DISABLE_TORCH_FUNCTION",
    "DISABLE_TORCH_MODES",
    "RAW_SAVED",
    "SAVED_TENSORS_SHOW_THEIR_DATA",
    "TensorWeakRef",
    "TorchDispatchMode",
    "WeakIdKeyDictionary",
    "current_node",
    "keeps_graph",
    "sequence_nr",
    "storage_identity",
    "version_of",
]

# Both are there since 2.0: read tensors past their subclass and past the modes of the program.
DISABLE_TORCH_FUNCTION = torch._C.DisableTorchFunction
DISABLE_TORCH_MODES = _disable_current_modes

# A node's attributes of this prefix are handles of what it saved.  A node without them saves
# nothing that can be seen.
RAW_SAVED = "_raw_saved_"
# Without ``data`` (2.10 has none, 2.13 does) a handle is unpacked as backward would.
SAVED_TENSORS_SHOW_THEIR_DATA = hasattr(torch._C._autograd.SavedTensor, "data")

# The node that backward runs now.
current_node: Callable[[], torch.autograd.graph.Node] = torch._C._current_autograd_node
# Whether the backward that runs now keeps the graph.  Without it, nodes that hide what they save
# stay "hidden" when freed.
keeps_graph: Callable[[], bool] = getattr(
    torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True
)

# A node's place among the operations that its thread recorded; a storage's address.
sequence_nr = methodcaller("_sequence_nr")
storage_identity = attrgetter("_cdata")


def version_of(tensor: torch.Tensor) -> int | None:
    """How often ``tensor`` was written in place; inference tensors do not count it."""
    return None if tensor.is_inference() else tensor._version
