"""Plain data, the only data that passes between a learner's code and the code that judges it.

Plain data are tensors, numbers (NumPy's scalars too), text, booleans, ``None``, and lists, tuples
and dicts of them.  In its JSON text, a tensor is its values, dtype and shape, and a tuple a list;
values survive exactly.  Reading builds nothing else: no pickle, no object that the sender defines.
"""

import json
import math
import sys
from typing import Any

import torch

Plain = Any
"""What :func:`dumps` takes and :func:`loads` gives."""

MAX_VALUES = 100_000
"""The most values that one tensor may have."""

MAX_DIMENSIONS = 64
"""The most dimensions of a tensor, as of most operations in PyTorch."""

MAX_CHARACTERS = 4_000_000
"""The longest text that is read."""

MAX_DEPTH = 20
"""How deep lists and dicts may lie in one another."""

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}
_TENSOR = {"tensor", "dtype", "shape"}


def dumps(value: Plain) -> str:
    """Return ``value`` as JSON text.

    Raises:
        TypeError: something in it is not plain data; the message says where.
        ValueError: a tensor has more than :data:`MAX_VALUES` values or :data:`MAX_DIMENSIONS`
            dimensions, or something lies deeper than :data:`MAX_DEPTH`.

    >>> dumps({"grad": torch.tensor([1.0, 2.5])})
    '{"grad": {"tensor": [1.0, 2.5], "dtype": "float32", "shape": [2]}}'
    """
    return json.dumps(_encode(value, "the answer"))


def _encode(value: Plain, place: str, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(f"{place}: lists in lists, more than {MAX_DEPTH} deep")
    numpy = sys.modules.get("numpy")  # who has a scalar of NumPy's has imported it
    if numpy is not None and isinstance(value, numpy.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in _DTYPES:
            raise TypeError(f"{place} is a tensor of {value.dtype}; return one of real numbers")
        if value.numel() > MAX_VALUES:
            raise ValueError(
                f"{place} is a tensor of {value.numel()} values; at most {MAX_VALUES} are accepted"
            )
        if value.dim() > MAX_DIMENSIONS:
            raise ValueError(
                f"{place} is a tensor of {value.dim()} dimensions; "
                f"at most {MAX_DIMENSIONS} are accepted"
            )
        values = value.detach().cpu().reshape(-1).tolist()
        return {"tensor": values, "dtype": dtype, "shape": list(value.shape)}
    if isinstance(value, list | tuple):
        return [_encode(item, f"{place}[{i}]", depth + 1) for i, item in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{place} has the key {key!r}; its keys must be text")
        return {key: _encode(item, f"{place}[{key!r}]", depth + 1) for key, item in value.items()}
    raise TypeError(
        f"{place} is of type {type(value).__name__}; "
        "return tensors, numbers, text, or lists and dicts of them"
    )


def loads(text: str) -> Plain:
    """Return the value of a text from :func:`dumps`; the text is not trusted.

    Raises:
        ValueError: the text is not what :func:`dumps` writes; nothing else is raised.

    >>> loads(dumps([torch.arange(3), None]))
    [tensor([0, 1, 2]), None]
    >>> loads('{"tensor": [1, "two"], "dtype": "int64", "shape": [2]}')
    Traceback (most recent call last):
        ...
    ValueError: not plain data: a tensor with values that are not int64
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"not plain data: {len(text)} characters, more than {MAX_CHARACTERS}")
    try:
        value = json.loads(text, object_hook=_decode)
        if isinstance(value, list | dict):
            _refuse_depth(value)
        return value
    except RecursionError:
        raise ValueError("not plain data: nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not plain data: {error}") from None


def _refuse_depth(value: Any, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise ValueError("not plain data: nested too deeply")
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, list | dict):
            _refuse_depth(item, depth + 1)


def _decode(value: dict[str, Any]) -> Any:
    if value.keys() != _TENSOR:
        return value
    values, dtype, shape = value["tensor"], value["dtype"], value["shape"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise ValueError("not plain data: a tensor of an unknown dtype")
    if not (
        isinstance(shape, list)
        and len(shape) <= MAX_DIMENSIONS  # first: the product of a million sizes takes a minute
        and all(type(size) is int and 0 <= size <= MAX_VALUES for size in shape)
        and isinstance(values, list)
        and len(values) == math.prod(shape) <= MAX_VALUES
    ):
        raise ValueError("not plain data: a tensor whose values do not fit its shape")
    kind = bool if dtype == "bool" else int if "int" in dtype else float
    if not all(type(value) is kind for value in values):
        raise ValueError(f"not plain data: a tensor with values that are not {dtype}")
    try:
        return torch.tensor(values, dtype=_DTYPES[dtype]).reshape(shape)
    except (OverflowError, RuntimeError):
        raise ValueError(f"not plain data: a tensor with values beyond {dtype}") from None
