"""The kinds of operations that a strict watch tells apart, and the tensors in their arguments."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import torch

from gradtrace.autograd.tensors import tensors_in
from gradtrace.watching.call_sites import Site

# The meaning of an operation for the record.
OTHER, ADD, DETACH, EXPORT, READ = "other", "add", "cut", "export", "leave"
GRADIENT, GRAD_ATTRIBUTE = "gradient", "attribute grad"
SET_GRAD_MODE, SET_REQUIRES_GRAD, SET_ITEM, COPY = "region", "switch", "set item", "copy"
HOOK, SET_DATA, NO_EFFECT, FACT = "hook", "set data", "changes nothing", "a fact"
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_KIND_OF_NAME = {
    name: globals()[kind] for kind, names in _TABLES["kinds"].items() for name in names
}
_KIND_OF_SETTING = {"requires_grad": SET_REQUIRES_GRAD, "data": SET_DATA, "_backward_hooks": HOOK}
KINDS: dict[Callable[..., Any], str] = {}  # of PyTorch's own functions, which stay


def kind_of(func: Callable[..., Any]) -> str:
    """Return the kind of an operation, by the name of its function."""
    name = getattr(func, "__name__", "")
    owner = getattr(func, "__self__", None)
    if name == "__get__" and owner is not None:
        name = owner.__name__
        kind = GRAD_ATTRIBUTE if name == "grad" else _KIND_OF_NAME.get(name, OTHER)
    elif name == "__set__":
        kind = _KIND_OF_SETTING.get(getattr(owner, "__name__", ""), NO_EFFECT)
    else:
        kind = _KIND_OF_NAME.get(name.partition(".")[2] or name, OTHER)
    if not isinstance(func, FunctionType) or func.__module__.startswith("torch"):
        KINDS[func] = kind
    return kind


def is_in_place(func: Callable[..., Any]) -> bool:
    """Whether the name of an operation says that it changes its first argument."""
    name = getattr(func, "__name__", "")
    return name.endswith("_") and not name.endswith("__")


_CONVERSIONS, _PIECEWISE_CONSTANT, LINEAR_NODES = map(frozenset, _TABLES["properties"].values())
requires_grad: Callable[[torch.Tensor], bool] = attrgetter("requires_grad")


@dataclass(eq=False, slots=True)
class Operation:
    """An operation before it runs: its kind, its caller, its tensors and their versions."""

    kind: str
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    frame: FrameType
    site: Site
    tensors: list[torch.Tensor]
    versions: list[int | None]
    sequence_nr: int
    prior_state: Any  # of a gradient the last backward call, of a switch the old requires_grad

    @property
    def name(self) -> str:
        return getattr(self.func, "__name__", "")

    @property
    def about(self) -> list[torch.Tensor]:
        """The tensors whose gradient the operation computes or reads."""
        if self.kind is GRADIENT:
            return tensors_in((self.args[1] if len(self.args) > 1 else self.kwargs["inputs"],))
        return self.tensors if self.kind is GRAD_ATTRIBUTE else []

    @property
    def valued_tensors(self) -> list[torch.Tensor]:
        """The tensors whose values the operation uses: not ``y`` in ``x.view_as(y)``."""
        return self.tensors[:1] if self.name.endswith("_as") else self.tensors

    @property
    def subtrahend(self) -> object:
        """What the operation subtracts; None if it is no subtraction."""
        return self.args["rsub" not in self.name] if "sub" in self.name and self.args[1:] else None

    @property
    def converts_type(self) -> bool:
        """Whether it may return its input's values in another dtype, as ``to`` does."""
        return self.name in _CONVERSIONS

    @property
    def takes_shape(self) -> bool:
        """Whether it uses only its input's shape or dtype: ``randn_like``, ``new_zeros``."""
        is_new = self.name.startswith("new_") and self.name != "new_tensor"
        return is_new or self.name.endswith("_like")

    @property
    def has_zero_derivative(self) -> bool:
        """Whether its derivative is zero everywhere, or it uses only its input's shape."""
        return self.takes_shape or self.name.strip("_") in _PIECEWISE_CONSTANT

    @property
    def reads_data(self) -> bool:
        """Whether it reads the attribute ``.data``."""
        return getattr(getattr(self.func, "__self__", None), "__name__", "") == "data"
