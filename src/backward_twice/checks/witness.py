"""Observations of a running answer: how often a module ran, and how much its graphs saved.

They are made in the learner's own process, so an answer that means to deceive can falsify them.
"""

from contextlib import contextmanager, nullcontext
from unittest.mock import patch
from weakref import WeakSet

import torch
from torch.autograd import graph
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_map_only

from gradtrace._torch import current_node, unwrapped  # names that PyTorch does not publish


def rows_of_runs(module):
    """Return a list to which each run of a module appends its number of input rows."""
    rows = []

    def runs(_, given, named):
        [data] = (*given, *named.values())
        rows.append(len(data))

    module.register_forward_pre_hook(runs, with_kwargs=True)
    return rows


def is_in_backward():
    """Whether the calling code runs during a backward pass."""
    return current_node() is not None


def most_held(run):
    """Return the largest number of elements that graphs save at the same time during ``run()``.

    Shared memory counts once.  A checkpoint's tensors do not count before they are recomputed, and
    what the answer's own hooks store counts only if it is a tensor.
    """
    references, peak = WeakSet(), 0

    def pack(tensor):
        nonlocal peak
        new_reference = _Reference(tensor)
        references.add(new_reference)
        numbers = {}
        for saved_tensor in (reference.tensor for reference in references):
            storage = unwrapped(saved_tensor).untyped_storage()
            numbers[storage.data_ptr()] = storage.nbytes() // saved_tensor.element_size()
        peak = max(peak, sum(numbers.values()))
        return new_reference

    with _watched_saving(pack):
        run()
    return peak


def saves_beside(inputs, run):
    """Whether ``run()`` saves data for backward other than ``inputs`` and single numbers.

    Data that is saved during a backward pass, which runs something again, is not counted.
    """
    input_memory = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    saves_others = False

    def pack(tensor):
        nonlocal saves_others
        is_own = unwrapped(tensor).untyped_storage().data_ptr() in input_memory
        saves_others |= not (is_own or is_in_backward() or tensor.numel() == 1)
        return tensor

    with _watched_saving(pack, lambda tensor: tensor):
        run()
    return saves_others


class _Reference:
    """A reference to a saved tensor that exists as long as a graph saves the tensor."""

    def __init__(self, tensor):
        self.tensor = tensor


@contextmanager
def _watched_saving(pack, unpack=lambda reference: reference.tensor):
    """Install saved-tensor hooks that also see the objects that the answer's own hooks store."""
    enter = saved_tensors_hooks.__enter__

    def enter_watched(hooks):
        own_pack, own_unpack = hooks.pack_hook, hooks.unpack_hook
        hooks.pack_hook = lambda tensor: tree_map_only(torch.Tensor, pack, own_pack(tensor))
        hooks.unpack_hook = lambda saved: own_unpack(tree_map_only(_Reference, unpack, saved))
        return enter(hooks)

    with (
        saved_tensors_hooks(pack, unpack),
        patch.object(saved_tensors_hooks, "__enter__", enter_watched),
        # torch.func refuses hooks, but its gradients run them.
        patch.object(graph, "disable_saved_tensors_hooks", nullcontext),
    ):
        yield
