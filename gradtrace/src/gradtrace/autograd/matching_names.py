"""The program's names for parameters and their modules, and what a word in a name refers to."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TypeVar

import torch

from gradtrace.autograd.frames import user_variables

_SHOWN = 4  # names
_COMMON_WORDS = {
    "loss", "losses", "opt", "optim", "optimizer", "optimiser", "err", "error", "self", "net",
    "model", "backward", "total", "cost", "the", "of", "retain", "graph", "true", "inputs", "list",
    "parameters", "weight", "bias",
}  # fmt: skip


def _words(text: str) -> set[str]:
    separated = re.sub(r"([a-z])([A-Z])", r"\1_\2", text)
    return {word.lower() for word in re.findall(r"[A-Za-z]+", separated)} - _COMMON_WORDS


_Key = TypeVar("_Key")


def named_like(name: str, descriptions: Mapping[_Key, str]) -> _Key | None:
    """Return the key whose description shares a word, or the start of one, with a name.

    Return None if there is no such key, or more than one.

    >>> named_like("g_loss", {1: "opt_d discriminator", 2: "opt_g generator"})
    2
    >>> named_like("loss", {1: "opt_d", 2: "opt_g"})
    """
    words = _words(name)
    keys = [
        key
        for key, description in descriptions.items()
        if any(a.startswith(b) or b.startswith(a) for a in words for b in _words(description))
    ]
    return keys[0] if len(keys) == 1 else None


def names_of(parameters: Iterable[torch.Tensor]) -> str | None:
    """Return the names under which the program's variables reach these parameters."""
    names = _names(parameters)
    remainder = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + remainder or None


def module_of(parameters: Iterable[torch.Tensor]) -> str | None:
    """Return the name of the module that holds all these parameters, or None."""
    paths = [name.rpartition(".")[0].replace(".", "/") for name in _names(parameters)]
    path = posixpath.commonpath(paths) if paths else ""
    return re.sub(r"(/\d+)+$", "", path).replace("/", ".") or None


def _names(parameters: Iterable[torch.Tensor]) -> list[str]:
    """Return one name for each of these parameters that a variable reaches."""
    ids, names = {id(parameter) for parameter in parameters}, dict[int, str]()
    for variable in user_variables(sys._getframe(1)):
        if id(variable.value) in ids:
            names.setdefault(id(variable.value), variable.name)
    return [*names.values()]
