"""Exercise ``strengths``: a checkpointed part that reads a value changed before its second run.

All forward passes run before the first backward pass, so values that a part reads from outside have
changed by its second run; hooks record the order.  The batches that its batch norm counted show
whether the part ran again, a run by the engine shows that it was checkpointed, and the saved data
shows whether the checkpoint covers everything from the input to the sum.
"""

from torch import nn

from backward_twice.checks.networks import leave_gradients
from backward_twice.checks.task import Task
from backward_twice.checks.witness import is_in_backward, saves_beside


def _draw(draws):
    normal = draws.double
    count = draws.integer(3, 5)
    return {
        "weights": {"0.weight": normal(4, 3), "1.weight": normal(4), "1.bias": normal(4)},
        "x": normal(8, 3),
        "strengths": [n + draws.uniform(0.5, 1.0) for n in range(count)],
    }


_ALL_OF_IT = "between x and the loss's sum, no tensor is saved outside a checkpoint"


def _run(answer, weights, x, strengths):
    part = nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Tanh()).double()
    part.load_state_dict(weights, strict=False)
    leave_gradients(part)
    order, outer_runs = [], 0

    def runs(*_):
        nonlocal outer_runs
        outer_runs += not is_in_backward()
        order.append("run")

    part.register_forward_pre_hook(runs)
    part[0].weight.register_hook(lambda _: order.append("gradient"))
    gradients = []
    saves = saves_beside(
        [x, *part.parameters()], lambda: gradients.extend(answer(part, x, list(strengths)))
    )
    return {
        **{f"gradient, strength {n}": gradient for n, gradient in enumerate(gradients, 1)},
        _ALL_OF_IT: not saves,
        "runs of the part before the first gradient": [*order, "gradient"].index("gradient"),
        "runs of the part outside of backward": outer_runs,
        "batches that the part has seen": int(part[1].num_batches_tracked),
        **{f".grad of {name}": parameter.grad for name, parameter in part.named_parameters()},
    }


gradients = Task("gradients", _draw, run=_run)
