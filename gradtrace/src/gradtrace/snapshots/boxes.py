"""The texts in the box of a node, and the scene of a snapshot's nodes."""

from collections.abc import Sequence

from gradtrace.autograd.nodes import ALIVE, FREED, NOT_NEEDED, Node, SavedTensor, shapes_of
from gradtrace.draw.scene import Scene, SceneNode, SceneTensor, clipped, module_of
from gradtrace.draw.svg import size

_GLYPHS = {FREED: "□", "modified": "▲", "packed": "◧"}


def label_of(node: Node) -> str:
    """Return the title of a node's box: ``ExpBackward0``, ``layer.weight`` or ``leaf [2]``."""
    if node.leaf is None:
        return node.name
    return node.leaf.name or f"leaf {shape_text(node.leaf.shape)}"


def shape_text(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]" if shape else "scalar"


def needed_slots(node: Node) -> list[SavedTensor]:
    """Return the slots of a node in which it saved a tensor."""
    return [saved for saved in node.saved if saved.state != NOT_NEEDED]


def _row(saved: SavedTensor) -> str:
    shape = "" if saved.shape is None else f" {shape_text(saved.shape)}"
    state = "" if saved.state == ALIVE else f"  {saved.state}"
    return f"{_GLYPHS.get(saved.state, '■')} {saved.name}{shape}{state}"


def rows_of(node: Node) -> list[str]:
    """Return the rows below the title of a node's box."""
    if (leaf := node.leaf) is not None:
        shape = shape_text(leaf.shape) if leaf.name else ""
        grad = "grad" if leaf.has_grad else "no grad"
        return ["  ".join(filter(None, [shape, size(leaf.storage_nbytes), grad]))]
    return [_row(saved) for saved in needed_slots(node)]


def module_path(node: Node, model: str) -> tuple[str, ...]:
    """Return the path of a parameter's module, ``model`` for the outermost; else an empty path."""
    if node.leaf is None or node.leaf.name is None:
        return ()
    return module_of(node.leaf.name) or (model,)


def scene_of_nodes(nodes: Sequence[Node], model: str) -> Scene:
    leaves = {node.leaf.storage for node in nodes if node.leaf is not None}
    scene_nodes = [
        SceneNode(
            name=node.name,
            label=label_of(node),
            leaf=node.leaf is not None,
            next=node.next,
            order=node.sequence_nr,
            moment=None,
            line=None,
            text=max(len(clipped(label_of(node))) + 7, *map(len, rows_of(node) or [""])),
            rows=len(rows_of(node)),
            module=module_path(node, model),
            outputs="" if node.leaf else shapes_of(node.outputs),  # a leaf's row says it
        )
        for node in nodes
    ]
    scene_tensors = [
        None
        if storage in leaves
        else SceneTensor(
            nbytes, min(savers, key=lambda i: nodes[i].sequence_nr or 0), frozenset(savers)
        )
        for storage, (nbytes, savers) in saved_storages(nodes).items()
    ]
    return Scene(scene_nodes, scene_tensors, [(0, 0)] * len(nodes))


def saved_storages(nodes: Sequence[Node]) -> dict[int, tuple[int, list[int]]]:
    """Map each saved storage to its bytes and to the indices of the nodes that saved it."""
    storages: dict[int, tuple[int, list[int]]] = {}
    for i, node in enumerate(nodes):
        for saved in node.saved:
            if saved.storage is not None:
                _, savers = storages.setdefault(saved.storage, (saved.storage_nbytes or 0, []))
                savers.append(i)
    return storages


def activations_of(node: Node) -> dict[int, int]:
    """Return the storages of activations that a node keeps alive, with their bytes."""
    return {
        saved.storage: saved.storage_nbytes or 0
        for saved in node.saved
        if saved.role == "activation" and saved.storage is not None
    }
