"""The object that a name refers to, judged by its words: the optimizer of a loss ``g_loss``."""

import re
from collections.abc import Mapping
from typing import TypeVar

_COMMON_WORDS = {
    "loss", "losses", "opt", "optim", "optimizer", "optimiser", "err", "error", "self", "net",
    "model", "backward", "total", "cost", "the", "of", "retain", "graph", "true", "inputs", "list",
    "parameters", "weight", "bias", "step", "none",
}  # fmt: skip


def _words(text: str) -> set[str]:
    separated = re.sub(r"([a-z])([A-Z])", r"\1_\2", text)
    return {word.lower() for word in re.findall(r"[A-Za-z]+", separated)} - _COMMON_WORDS


_Key = TypeVar("_Key")


def named_like(name: str, descriptions: Mapping[_Key, str]) -> _Key | None:
    """Return the only key whose description shares an uncommon word, or its start, with a name.

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
