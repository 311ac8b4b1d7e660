"""The tensors in arguments, and facts about one: its graph, gradient, shape and storage."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from gradtrace._torch import coo_indices, coo_values, storage_identity

_NO_KEYWORDS: Mapping[str, Any] = {}


def tensors_in(args: Iterable[Any], kwargs: Mapping[str, Any] = _NO_KEYWORDS) -> list[torch.Tensor]:
    """Return the tensors among the arguments, and in nested lists and tuples among them."""
    tensors = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, (tuple, list)):
            tensors += [item for item in value if isinstance(item, torch.Tensor)]
            if value and isinstance(value[0], (tuple, list)):
                tensors += tensors_in(value)
    return tensors


def has_graph(tensor: torch.Tensor) -> bool:
    """Whether backward can start from the tensor; it never can from an inference tensor."""
    return tensor.requires_grad and not tensor.is_inference() and not is_cut_off(tensor)


def is_cut_off(tensor: torch.Tensor) -> bool:
    """Whether reading the tensor's ``is_leaf`` or ``grad_fn`` raises an error.

    This happens to views that must not be modified in place (those of ``split`` and ``unbind``)
    once their base or one of them was.
    """
    try:
        _ = tensor.is_leaf
    except RuntimeError:
        return True
    return False


def gradient_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return ``.grad`` of a leaf, or of a tensor that retains its gradient; else None."""
    if is_cut_off(tensor) or not (tensor.is_leaf or tensor.retains_grad):
        return None
    return tensor.grad


def shape_of(tensor: torch.Tensor) -> torch.Size:
    """Return the shape; for a nested tensor, which has none, the number of its elements."""
    if not tensor.is_nested:
        return tensor.shape
    elements = tensor if tensor.layout is torch.strided else tensor.values()
    return torch.Size((elements.numel(),))


def storage_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the identity and bytes of a tensor's storage; without one, a negative identity."""
    if tensor.layout is torch.sparse_coo:
        parts = [coo_values(tensor), coo_indices(tensor)]
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [tensor.values(), tensor.crow_indices(), tensor.col_indices()]
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = [tensor.values(), tensor.ccol_indices(), tensor.row_indices()]
    else:
        parts = [tensor]
    try:
        storages = [part.untyped_storage() for part in parts]
        return storage_identity(storages[0]), sum(storage.nbytes() for storage in storages)
    except (NotImplementedError, RuntimeError):  # tensors inside torch.func have no storage
        return -id(tensor), tensor.numel() * tensor.dtype.itemsize


def storages_in(tensors: Iterable[torch.Tensor]) -> frozenset[int]:
    """Return the identities of the tensors' storages."""
    return frozenset(storage_of(tensor)[0] for tensor in tensors)
