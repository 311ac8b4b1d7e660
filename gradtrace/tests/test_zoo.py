"""Real models at every level: few boxes, within the panel, named as readers know them."""

import functools
import re
import sys
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from gradtrace import trace
from gradtrace.draw.layout import drawings_of
from gradtrace.player.trace_scene import scene_of

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from models import ZOO

# The panel of a page of the course at 1440 × 900 is 508 × 594 pixels, and a drawing is shown at
# 0.72 of its size at least, with 16 free around it.
WIDTH, HEIGHT = 508 / 0.72 - 32, 594 / 0.72 - 32
MOST_BOXES = 25
MOST_CROSSINGS = 6  # at first sight
MOST_INSIDE = 10
# Batch norms that three calls share, node by node: nothing in them can be folded.
HIGHER = {"siamese": 1.25}


@functools.cache
def views_of(program):
    seen = trace(program, max_steps=10**6)
    assert seen.error is None
    return drawings_of(scene_of(seen))


@pytest.fixture(params=ZOO, ids=lambda program: program.__name__)
def view(request):
    return views_of(request.param)[0]


def test_the_first_view_fits_its_panel(view):
    assert 0 < len(view.boxes) <= MOST_BOXES
    assert view.width <= WIDTH
    assert view.height <= HEIGHT


def test_every_group_is_named_by_a_module_a_line_an_iteration_or_a_step(view):
    for box in view.boxes:
        if box.kind == "group":
            assert "Backward" not in box.title, box.title
            assert not re.search(r"^lines? \d+( to \d+)?$", box.title), box.title


def test_nothing_floats_loose_but_what_says_that_it_is_unused(view):
    linked = {end for edge in view.edges for end in (edge.start, edge.end)}
    loose = [box.title for i, box in enumerate(view.boxes) if i not in linked]
    assert [title for title in loose if "unused" not in title] == []


def test_few_edges_cross(view):
    assert crossings(view) <= MOST_CROSSINGS


@pytest.mark.parametrize("program", ZOO, ids=lambda program: program.__name__)
def test_every_view_that_can_be_opened_fits_too(program):
    most = HEIGHT * HIGHER.get(program.__name__, 1)
    for view in distinct(views_of(program)):
        assert len(view.boxes) <= MOST_BOXES, view.title
        assert view.width <= WIDTH, view.title
        assert view.height <= most, view.title
        assert crossings(view) <= MOST_INSIDE, view.title
        # What is inside is not called what it is inside of.
        assert view.title not in [box.title for box in view.boxes if box.kind == "group"]


def test_of_many_steps_the_first_the_second_and_the_last_are_seen():
    found = {program.__name__: [box.title for box in views_of(program)[0].boxes] for program in ZOO}
    steps = [title for title in found["recurrent_module"] if title.startswith("step")]
    assert steps == [f"step{n} of model" for n in (" 0", " 1", "s 2 to 198", " 199")]
    iterations = [title for title in found["recurrent_loop"] if title.startswith("iteration")]
    assert [title.split(",")[0] for title in iterations] == [
        "iteration 1", "iteration 2", "iterations 3 to 199", "iteration 200"
    ]  # fmt: skip


def test_layers_that_look_alike_are_one_box_also_where_there_are_six():
    found = {program.__name__: [box.title for box in views_of(program)[0].boxes] for program in ZOO}
    assert "model.layers.0 to 5 × 6" in found["small_transformer"]
    assert "model.blocks.0 to 3 × 4" in found["decoder_with_tied_embeddings"]
    assert "model.layers.0 to 11 × 12" in found["transformer"]


def test_crossings_are_seen():
    view = views_of(ZOO[0])[0]
    one, other = view.edges[0], view.edges[-1]
    one.bends[:] = [(0.0, 0.0), (50.0, 50.0)]
    other.bends[:] = [(0.0, 50.0), (50.0, 0.0)]
    assert crossings(view) > 0
    views_of.cache_clear()


def distinct(views):
    """Of the views that are drawn alike, as those of time steps are, the first."""
    drawn = {}
    for view in views:
        boxes = tuple((box.x, box.y, box.width, box.height) for box in view.boxes)
        drawn.setdefault((boxes, tuple((edge.start, edge.end) for edge in view.edges)), view)
    return drawn.values()


def crossings(view):
    """How many of the straight lines that are drawn cross, those that share an end aside."""
    lines = set()
    for edge in view.edges:
        start, end = view.boxes[edge.start], view.boxes[edge.end]
        first, last = (
            (start.x + start.width / 2, start.y),
            (end.x + end.width / 2, end.y + end.height),
        )
        lines |= set(pairwise([first, *edge.bends, last]))
    return sum(cross(one, other) for one, other in combinations(sorted(lines), 2))


def cross(one, other):
    (a, b), (c, d) = one, other
    if {a, b} & {c, d}:
        return False
    return turn(a, b, c) * turn(a, b, d) < 0 and turn(c, d, a) * turn(c, d, b) < 0


def turn(a, b, c):
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
