"""The drawing of a trace: everything placed once, nothing on top of anything else."""

from itertools import combinations

import pytest
import torch

from gradtrace import trace
from gradtrace.layout import MAX_LEAVES, MAX_OPERATIONS, layout, needed_slots, title


def empty():
    return 1


def only_a_leaf():
    return torch.ones(1, requires_grad=True)


def diamond():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    a, b = y.sin().sum(), (y * x).sum()
    (a + b).backward()


def skips_many_ranks():
    x = torch.ones(2, requires_grad=True)
    y = x
    for _ in range(6):
        y = y.exp()
    return (y * x).sum()


def chain(length=300):
    y = torch.ones(1, requires_grad=True)
    for _ in range(length):
        y = y.exp()
    z = y.sum()
    return z


def deep():
    y = chain()
    return y


def recurrent():
    cell = torch.nn.GRUCell(2, 2)
    h = torch.zeros(1, 2)
    for _ in range(8):
        h = cell(torch.ones(1, 2), h)
    h.sum().backward()


def many_leaves():
    leaves = [torch.ones(1, requires_grad=True) for _ in range(40)]
    return sum(leaf.exp() for leaf in leaves)


def iterations():
    x = torch.ones(1, requires_grad=True)
    for _ in range(5):
        y = x.exp()
        y.backward()
        del y


def comes_back():
    x = torch.ones(1, requires_grad=True)
    y = x.exp()

    def hidden(y=y):
        return y

    del y
    z = x.sin()
    y = hidden()
    return y, z


PROGRAMS = [empty, only_a_leaf, diamond, skips_many_ranks, chain, recurrent, many_leaves,
            iterations, comes_back]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_node_in_one_box_and_no_box_on_another(program):
    seen = trace(program)
    placed = layout(seen)
    assert sorted(n for box in placed.boxes for n in box.nodes) == list(range(len(seen.nodes)))
    lives = {}
    for time, step in enumerate(seen.steps):
        for state in step.nodes:
            lives.setdefault(state.node, set()).add(time)
    for one, other in combinations(placed.boxes, 2):
        together = set.union(*(lives[n] for n in one.nodes)) & set.union(
            *(lives[n] for n in other.nodes)
        )
        apart = (
            one.x + one.width <= other.x
            or other.x + other.width <= one.x
            or one.y + one.height <= other.y
            or other.y + other.height <= one.y
        )
        assert apart or not together, (one, other)
    for box in placed.boxes:
        assert 0 <= box.x <= box.x + box.width <= placed.width
        assert 0 <= box.y <= box.y + box.height <= placed.height


@pytest.mark.parametrize("program", PROGRAMS)
def test_backward_runs_upwards_along_every_edge(program):
    seen = trace(program)
    placed = layout(seen)
    box_of = {node: i for i, box in enumerate(placed.boxes) for node in box.nodes}
    links = {(box_of[i], box_of[j]) for i, node in enumerate(seen.nodes) for j in node.next}
    assert {(e.start, e.end) for e in placed.edges} == {(i, j) for i, j in links if i != j}
    for edge in placed.edges:
        start, end = placed.boxes[edge.start], placed.boxes[edge.end]
        heights = [start.y, *(y for _, y in edge.bends), end.y]
        assert heights == sorted(heights, reverse=True)


def test_the_same_trace_is_drawn_the_same_way():
    seen = trace(recurrent)
    assert layout(seen) == layout(seen)


def test_a_large_part_is_folded_and_stays_small():
    seen = trace(deep)
    placed = layout(seen)
    many = [box for box in placed.boxes if len(box.nodes) > 1]
    assert len(many) == 1
    assert title(seen, many[0].nodes) == f"{301 - MAX_OPERATIONS} more operations"
    assert placed.height < layout(trace(chain, 45)).height * 1.1
    assert title(seen, placed.boxes[-1].nodes) in ("SumBackward0", "ExpBackward0")


def test_many_leaves_are_folded():
    seen = trace(many_leaves)
    titles = [title(seen, box.nodes) for box in layout(seen).boxes]
    assert f"{40 - MAX_LEAVES} more leaves" in titles


def test_iterations_that_never_live_together_share_a_column():
    placed = layout(trace(iterations))
    operations = [box for box in placed.boxes if not box.leaf]
    assert len(operations) == 5
    assert len({box.x for box in operations}) == 1


def test_parts_that_live_together_for_one_step_stand_apart():
    def program():
        x = torch.ones(1, requires_grad=True)
        y = x.exp()
        z = x.sin()
        del y
        return z

    operations = [box for box in layout(trace(program)).boxes if not box.leaf]
    assert len({box.x for box in operations}) == 2


def test_a_box_has_room_for_its_texts():
    seen = trace(diamond)
    for box in layout(seen).boxes:
        (node,) = box.nodes
        assert box.width > 7 * len(title(seen, box.nodes))
        assert box.height >= 16 * (1 + len(needed_slots(seen, node)))
