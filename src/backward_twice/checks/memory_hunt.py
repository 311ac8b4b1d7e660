"""Exercise ``memory_hunt``: a training loop whose memory grows, and the references that cause it.

A drawn trainer stores values of each step under several names.  The habit of each name decides
whether it keeps the graphs of earlier steps alive; an answer sees only the object and has to
measure.  The loop to repair validates with a graph, and three references keep each of these graphs
alive, so all three must go.
"""

import weakref

import torch
from torch.nn import functional as F

from backward_twice.checks.cases import task_of_cases
from backward_twice.checks.networks import two_layers
from backward_twice.checks.task import Task
from backward_twice.checks.witness import most_held

_HABITS = {
    "sum of losses": (0.0, lambda t, name, loss, output: getattr(t, name) + loss),
    "losses": ([], lambda t, name, loss, output: [*getattr(t, name), loss]),
    "outputs by step": ({}, lambda t, name, loss, output: {**getattr(t, name), t.steps: output}),
    "pairs": ([], lambda t, name, loss, output: [*getattr(t, name), (t.steps, loss * 2)]),
    "sum of numbers": (0.0, lambda t, name, loss, output: getattr(t, name) + loss.item()),
    "detached outputs": ([], lambda t, name, loss, output: [*getattr(t, name), output.detach()]),
    "last output": (None, lambda t, name, loss, output: output),
    "last two losses": ([], lambda t, name, loss, output: [*getattr(t, name), loss][-2:]),
}
"""For each habit, the value of a name at first, and the function that gives it after a step."""
_GROWING = ("sum of losses", "losses", "outputs by step", "pairs")
_NAMES = ("metrics", "cache", "state", "best", "log")


class Trainer:
    """A network that trains step by step, and stores values in the ways that ``habits`` names."""

    def __init__(self, weights, inputs, habits):
        self.net = two_layers(weights)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        self.inputs = inputs
        self.steps = 0
        rules = {name: _HABITS[habit][1] for name, habit in habits.items()}
        for name, habit in habits.items():
            setattr(self, name, _HABITS[habit][0])

        def step():
            output = self.net(self.inputs)
            loss = output.square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.steps += 1
            for name, rule in rules.items():
                setattr(self, name, rule(self, name, loss, output))

        self.step = step


def _draw_grows(draws):
    harmless = [habit for habit in _HABITS if habit not in _GROWING]
    trainers = []
    for growing in (1, 2, 0, 3):
        habits = draws.shuffled(_GROWING)[:growing]
        habits += draws.shuffled(harmless)[: 5 - growing]
        names = draws.shuffled(_NAMES)[: len(habits)]
        trainers.append(
            {
                "weights": draws.layers(3, 4, 1),
                "inputs": draws.normal(5, 3),
                "habits": dict(zip(names, habits, strict=True)),
            }
        )
    return trainers


def _ask_what_grows(answer, **trainer):
    return ", ".join(sorted(answer(Trainer(**trainer)))) or "none"


what_grows = task_of_cases("what_grows", "trainer", _draw_grows, ask=_ask_what_grows)

_GRAPHS = "the graphs hold no more than two passes at once"
_HOOK = "after training, the network keeps no output of its first layer alive"
_CLUES = ("losses with a graph", "the average has a graph", "passes in evaluation mode")
_MOST_PASSES = 2.5
_STEPS, _ROWS, _TIMES = 6, 40, 16
"""Steps and rows of the run whose graphs are counted; how much wider its first layer is."""


def _draw_train(draws):
    rows = draws.integer(3, 6)
    return {
        "weights": draws.layers(3, 4, 1),
        "batches": draws.batches([rows] * 4, 3, 1),
        "validation": [draws.normal(5, 3), draws.normal(5, 1)],
        "decay": draws.uniform(0.5, 0.9),
        "rate": draws.uniform(0.05, 0.15),
    }


def _is_released(net, use):
    """Whether nothing keeps an output of the first layer alive after ``use()`` has returned."""
    references = []
    handle = net[0].register_forward_hook(
        lambda module, given, output: references.append(weakref.ref(output))
    )
    use()
    handle.remove()
    return all(reference() is None for reference in references)


def _run_train(answer, weights, batches, validation, decay, rate):
    net, evaluated = two_layers(weights, leftover=True), []
    net.register_forward_pre_hook(lambda module, given: evaluated.append(not module.training))
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    history, average = answer(net, optimizer, [tuple(b) for b in batches], tuple(validation), decay)

    first, first_bias, last, last_bias = weights
    wide = two_layers(
        [first.repeat(_TIMES, 1), first_bias.repeat(_TIMES), last.repeat(1, _TIMES), last_bias],
        leftover=True,
    )
    data = torch.ones(_ROWS, 3), torch.zeros(_ROWS, 1)

    def train_wide():
        sgd = torch.optim.SGD(wide.parameters(), lr=1e-6)
        answer(wide, sgd, [data] * _STEPS, data, decay)

    one_pass = most_held(lambda: F.mse_loss(wide(data[0]), data[1]))
    peaks = []
    is_released = _is_released(wide, lambda: peaks.append(most_held(train_wide)))
    results = {
        **dict(net.named_parameters()),
        **{f"validation loss {n}": loss for n, loss in enumerate(history, 1)},
        "average": average,
        _GRAPHS: peaks[0] < _MOST_PASSES * one_pass,
        _HOOK: is_released and _is_released(net, lambda: net(batches[0][0])),
    }
    clues = (
        sum(getattr(loss, "requires_grad", False) for loss in history),
        getattr(average, "requires_grad", False),
        sum(evaluated),
    )
    return results | dict(zip(_CLUES, clues, strict=True))


train = Task("train", _draw_train, run=_run_train, clues=_CLUES)
