"""Totals that one line adds to in every iteration."""

from __future__ import annotations

from typing import Any

from gradtrace import _torch
from gradtrace.watching.record import SCALING, SUM_TAG, Sum

LONG = 10  # additions that make a sum worth following


def without_factors(node: _torch.LiveNode) -> _torch.LiveNode:
    """Skip multiplications by constants: return the node of ``total`` for ``0.9 * total``."""
    while type(node).__name__ in SCALING:
        inner = [input_node for input_node, _ in _torch.edges_of(node) if input_node is not None]
        if len(inner) != 1:
            break
        node = inner[0]
    return node


def adds_the_same_parameters(node: Any, total: Sum) -> bool:
    """Whether the terms of a total share leaves, as the losses of iterations do.

    Of each term one leaf is looked up; at most half as many as there are terms may be distinct.
    """
    leaves, additions = set(), 0
    pending = [node]
    for adding in pending:
        for successor, _ in _torch.edges_of(adding):
            successor = without_factors(successor)
            if successor is None:
                continue
            if not isinstance(successor, _torch.LEAF) and successor.metadata.get(SUM_TAG) is total:
                pending.append(successor)
                continue
            additions += 1
            while following := next((n for n, _ in _torch.edges_of(successor) if n), None):
                successor = following
            leaves.add(successor)
    return len(leaves) <= additions // 2
