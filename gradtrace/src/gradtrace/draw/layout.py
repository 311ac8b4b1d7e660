"""Lay out a scene: layers from top (leaves) to bottom (losses), each tensor beside its home.

The layout is computed once for everything that ever existed, so that nothing moves from step to
step. Its stages, after the graph has been folded, are those of Sugiyama's method.
"""

from collections import defaultdict

from gradtrace.draw.drawing import Drawing
from gradtrace.draw.fold import views
from gradtrace.draw.groups import Group, View
from gradtrace.draw.placement import Placement, best_placement
from gradtrace.draw.plan import Plan, add_tensors, plan_view
from gradtrace.draw.scene import Scene


def drawings_of(scene: Scene) -> list[Drawing]:
    """Return the drawings of a scene: the first view, and one for each group that can be opened."""
    at_home: dict[int, list[int]] = defaultdict(list)
    for k, tensor in enumerate(scene.tensors):
        if tensor is not None:
            at_home[tensor.home].append(k)

    drawings: list[Drawing] = []
    plans: list[Plan] = []
    placed: dict[object, Placement] = {}
    tried: list[tuple[list[int | Group], Plan, Placement]] = []

    def excess(view: View) -> float:
        plan = plan_view(scene, view, None if view.parent is None else plans[view.parent])
        add_tensors(scene, plan, at_home)
        key = plan.key()
        if key not in placed:  # the steps of a loop look alike
            placed[key] = best_placement(plan)
        tried.append((view.boxes, plan, placed[key]))
        return placed[key].excess

    for view in views(scene, excess):
        plan, places = next((plan, at) for boxes, plan, at in tried if boxes is view.boxes)
        tried.clear()
        for box, opens in zip(plan.boxes, view.opens, strict=False):  # beyond them are stubs
            box.view = opens
        plans.append(plan)
        drawings.append(places.drawing(plan, view))
    return drawings
