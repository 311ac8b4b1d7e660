"""A snapshot of the live autograd graph of some tensors."""

import math
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import torch

from gradtrace._torch import LiveNode
from gradtrace.autograd.nodes import FREED, HeldBytes, Node
from gradtrace.autograd.saved import describe
from gradtrace.autograd.tensors import has_graph, storage_of
from gradtrace.autograd.traversal import root_node, undisturbed, walk
from gradtrace.draw.svg import size
from gradtrace.snapshots.pictures import Pictures

_TITLE = "The autograd graph"
_FEW = 5_000  # nodes: what they made is read without being asked for


class Graph:
    """Plain data about an autograd graph, as :func:`snapshot` returns it.

    ``nodes`` are in breadth-first order; ``model`` is the name of the model's class, or empty.
    """

    def __init__(self, nodes: list[Node], model: str = ""):
        self.nodes = nodes
        self.model = model

    @cached_property
    def edges(self) -> list[tuple[int, int]]:
        """Pairs ``(from, to)`` of node indices, in the direction of the backward pass."""
        return [(i, j) for i, node in enumerate(self.nodes) for j in node.next]

    @cached_property
    def leaves(self) -> list[Node]:
        """The AccumulateGrad nodes, where backward ends in some tensor's ``.grad``."""
        return [node for node in self.nodes if node.leaf is not None]

    @cached_property
    def freed(self) -> list[Node]:
        """The nodes whose saved tensors are freed, so that a backward pass through them fails."""
        return [node for node in self.nodes if node.state == FREED]

    @cached_property
    def held(self) -> HeldBytes:
        """The bytes that saved tensors keep alive now."""
        storages = {saved.storage: saved for node in self.nodes for saved in node.saved}
        totals = {"activation": 0, "leaf": 0, "input": 0}
        for saved in storages.values():
            if saved.role is not None:
                totals[saved.role] += saved.storage_nbytes or 0
        return HeldBytes(totals["activation"], totals["leaf"], totals["input"])

    def to_svg(self, path: str | Path | None = None) -> str:
        """Return the graph as SVG text, and write it to the file ``path`` if one is given.

        A large graph is folded into groups: by module if parameters have names, else by repetition.
        """
        text = self._pictures()[0].svg(_TITLE, self._sentence(), standalone=True)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def _repr_html_(self) -> str:
        return self._pictures().html(_TITLE, self._sentence())

    def _pictures(self) -> Pictures:
        return Pictures(self.nodes, self.model)

    def _sentence(self) -> str:
        """Describe the graph in one sentence."""
        total = self.held
        freed = f", {len(self.freed)} of them freed" if self.freed else ""
        leaves = [node.leaf for node in self.leaves if node.leaf is not None]
        numbers = sum(math.prod(leaf.shape) for leaf in leaves)
        return (
            f"{len(self.nodes)} nodes{freed}; {len(leaves)} leaves with {numbers:,} numbers; "
            f"saved tensors hold {size(total.activations)} of activations, {size(total.leaves)} of"
            f" leaves and {size(total.inputs)} of inputs."
        )

    def __repr__(self) -> str:
        return (
            f"Graph({len(self.nodes)} nodes, {len(self.leaves)} leaves, "
            f"{len(self.freed)} freed, {self.held.activations} bytes of activations)"
        )


def snapshot(
    *tensors: torch.Tensor,
    inputs: Iterable[torch.Tensor] = (),
    model: torch.nn.Module | None = None,
) -> Graph:
    """Describe the autograd graph that ``tensors`` reach, as it is now.

    Args:
        tensors: losses, outputs or leaves that require grad, of any shape, dtype and device.
        inputs: tensors that the program keeps alive anyway (the data).  Their bytes, if the graph
            saved them, are counted separately from the activations.
        model: gives leaves the names of its parameters, so that the picture folds by module and
            shows the bytes of each.  Its other tensors, such as the running statistics of a batch
            norm, count as inputs.

    Returns:
        A :class:`Graph` of plain data.  Nothing of the graph is changed or kept alive.

    Raises:
        TypeError: there are no tensors, or an argument has the wrong type.
        ValueError: a tensor has no graph; the message says why.

    >>> import torch
    >>> x = torch.ones(3, requires_grad=True)
    >>> y = x.exp()
    >>> loss = y.sum()
    >>> graph = snapshot(loss)
    >>> [node.name for node in graph.nodes]
    ['SumBackward0', 'ExpBackward0', 'AccumulateGrad']
    >>> graph.nodes[1].saved[0].name, graph.nodes[1].saved[0].state, graph.held.activations
    ('result', 'alive', 12)
    >>> loss.backward()
    >>> snapshot(loss).freed[0].name
    'ExpBackward0'
    """
    if not tensors:
        raise TypeError(
            "snapshot() needs at least one tensor: pass the loss, or the output of the model"
        )
    inputs = list(inputs)
    for data in inputs:
        if not isinstance(data, torch.Tensor):
            raise TypeError(
                f"snapshot() takes tensors as inputs, but one is of type {type(data).__name__!r}"
            )
    if model is not None and not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"snapshot() takes a torch.nn.Module as model, but got one of type "
            f"{type(model).__name__!r}"
        )
    with undisturbed():
        roots = [_root(tensor, position) for position, tensor in enumerate(tensors)]
        live, links = walk(roots)
        if model is not None:
            inputs += [*model.parameters(), *model.buffers()]
        roles = {storage_of(tensor)[0]: "input" for tensor in inputs}
        named = () if model is None else model.named_parameters()
        names = {id(parameter): name for name, parameter in named}
        with_outputs = model is not None or len(live) <= _FEW
        nodes = describe(live, links, roles, names, with_outputs)
        return Graph(nodes, "" if model is None else type(model).__name__)


def _root(tensor: object, position: int) -> LiveNode:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"snapshot() takes tensors, but argument {position} is of type "
            f"{type(tensor).__name__!r}: pass the loss, or the output of the model"
        )
    if not has_graph(tensor):
        if tensor.is_inference():
            reason = "it was made in torch.inference_mode(), which records no graph"
        elif tensor.requires_grad:
            reason = (
                "it is one of several views, as split() makes them, and a view or their base was "
                "written in place: PyTorch no longer knows its history"
            )
        else:
            reason = (
                "it does not require grad: it is plain data, or was made under torch.no_grad(), "
                "by detach(), or by an operation that has no derivative"
            )
        raise ValueError(f"argument {position} of snapshot() has no graph: {reason}")
    return root_node(tensor)
