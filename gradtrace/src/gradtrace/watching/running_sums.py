"""Totals that one line adds to in every iteration."""

from typing import Any

from gradtrace import _torch
from gradtrace.watching.record import SUM_TAG, Sum

LONG = 10  # additions that make a sum worth following
_SCALING = ("MulBackward0", "DivBackward0", "NegBackward0")


def with_scaled(node: _torch.LiveNode, *kinds: str) -> list[_torch.LiveNode]:
    """Return the node and the nodes that it only scales: those of ``0.9 * total`` and ``total``.

    Nodes of these other ``kinds`` count as scaling, too, if they have one input.
    """
    scaled = [node]
    for scaling in scaled:
        if type(scaling).__name__ in (*_SCALING, *kinds):
            inputs = [inner for inner, _ in _torch.edges_of(scaling) if inner is not None]
            scaled += inputs if len(inputs) == 1 else []
    return scaled


def adds_the_same_parameters(node: Any, total: Sum) -> bool:
    """Whether the terms of a total share leaves, as the losses of iterations do.

    Of each term one leaf is looked up; at most half as many as there are terms may be distinct.
    """
    leaves, additions = set(), 0
    pending = [node]
    for adding in pending:
        for successor, _ in _torch.edges_of(adding):
            successor = with_scaled(successor)[-1]
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
