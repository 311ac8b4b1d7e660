"""Numbers of tensors as short texts, rounded to three digits so that every machine agrees."""

from typing import Any

import torch

_FEW = 8  # elements that are written out
_MANY = 1 << 16  # elements above which a value is not summed up: it would be read at every line

WITHOUT_VALUES = "without values"


def numbers_of(tensor: torch.Tensor) -> str:
    """Format up to eight elements one by one, more by their norm; "without values" if that fails.

    >>> numbers_of(torch.tensor([[1.0, 2.5], [1 / 3, 0]])), numbers_of(torch.tensor(2.0))
    ('[[1, 2.5], [0.333, 0]]', '2')
    >>> numbers_of(torch.ones(4, 4))
    'norm 4'
    """
    try:
        tensor = tensor.detach()
        values = tensor.to_dense() if tensor.layout is not torch.strided else tensor
        if values.numel() <= _FEW:
            return _listed(values.tolist())
        precise = torch.complex128 if values.is_complex() else torch.float64
        return f"norm {torch.linalg.vector_norm(values.to(precise)).item():.3g}"
    except Exception:  # the meta device, fake tensors, whatever subclasses raise instead
        return WITHOUT_VALUES


def value_of(tensor: torch.Tensor) -> str:
    """Return :func:`numbers_of` a tensor, or "" if that would take long: above 65,536 elements."""
    return numbers_of(tensor) if tensor.numel() <= _MANY else ""


def gradient_text(gradient: torch.Tensor | None) -> str | None:
    """Format a gradient: its numbers, or its shape and norm if it is large.

    >>> gradient_text(torch.ones(3)), gradient_text(torch.ones(4, 4)), gradient_text(None)
    ('[1, 1, 1]', '[4, 4] norm 4', None)
    """
    if gradient is None:
        return None
    text = numbers_of(gradient)
    return f"{list(gradient.shape)} {text}" if text.startswith("norm") else text


def _listed(values: Any) -> str:
    if isinstance(values, list):
        return f"[{', '.join(map(_listed, values))}]"
    if isinstance(values, (bool, str)):
        return str(values)
    return f"{values:.3g}"
