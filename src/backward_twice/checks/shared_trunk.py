"""Exercise ``shared_trunk``: which backward calls must retain the graph, and what stays alive.

A program is drawn: networks that read the data or one another, perhaps detached, and a row of
backward calls.  The right answer is found by running that program in PyTorch without each of the
flags in turn, and by reading the bytes of the graphs.  Some programs are redrawn until they
distinguish a misconception from the right answer: a flag depends on a detached reader, a reader
holds the output of a freed trunk, or a flag is needed although no loss is called twice.
"""

import torch
from torch.nn import functional as F

from backward_twice.checks.cases import task_of_cases
from backward_twice.checks.generator import drawn_until
from gradtrace import snapshot


def _draw_program(draws, tells):
    return drawn_until(lambda program: tells(**program), lambda: _draw_any_program(draws))


def _draw_any_program(draws):
    def chance(probability):
        return draws.uniform() < probability

    names = [f"net{number}" for number in range(1, draws.integer(4, 6))]
    reads = {
        name: "data" if not position or chance(0.2) else draws.one_of(names[:position])
        for position, name in enumerate(names)
    }
    return {
        "reads": reads,
        "detached": [name for name in names if reads[name] != "data" and chance(0.3)],
        "calls": [draws.one_of(names) for _ in range(draws.integer(3, 5))],
    }


def _losses(reads, detached, widths, batch):
    """Return the data, and the loss of each network."""
    outputs, losses = {"data": torch.ones(batch, 3)}, {}
    for name, source in reads.items():
        source_output = outputs[source].detach() if name in detached else outputs[source]
        weight = torch.full((widths[name], source_output.shape[1]), 0.1, requires_grad=True)
        bias = torch.ones(widths[name], requires_grad=True)
        outputs[name] = torch.tanh(F.linear(source_output, weight, bias))
        losses[name] = outputs[name].mean()
    return outputs["data"], losses


def _raises_without(number, reads, detached, calls):
    """Whether the program raises if every call but ``number`` retains its graph."""
    _, losses = _losses(reads, detached, dict.fromkeys(reads, 1), 1)
    try:
        for i, name in enumerate(calls):
            losses[name].backward(retain_graph=i != number)
    except RuntimeError:
        return True
    return False


def _needed(reads, detached, calls):
    """Return for each call whether it must retain the graph even if all other calls do."""
    return [_raises_without(number, reads, detached, calls) for number in range(len(calls))]


def _detach_matters(reads, detached, calls):
    return _needed(reads, detached, calls) != _needed(reads, [], calls)


def _trunk_outlives_its_graph(reads, detached, calls):
    sources = set(calls)
    for name in reversed(reads):
        if name in sources and name not in detached:
            sources.add(reads[name])
    return any(reads[name] in sources and name not in sources for name in detached)


def _share_without_a_repeat(reads, detached, calls):
    return len(set(calls)) == len(calls) and any(_needed(reads, detached, calls))


def _any(**_):
    return True


_TELL = (_trunk_outlives_its_graph, _detach_matters, _share_without_a_repeat, _any, _any)


def _draw_programs(draws):
    return [_draw_program(draws, tells) for tells in _TELL]


def _source(flags, reads, detached, calls):
    """Return the program with the answer's flags, or "" unless there is a bool for each call."""
    lines = ["data = torch.ones(1, 3)"]
    for name, source in reads.items():
        source_output = f"{source}.detach()" if name in detached else source
        lines.append(
            f"{name} = torch.nn.Linear({3 if source == 'data' else 1}, 1)({source_output}).tanh()"
        )
    lines += [f"loss_{name} = {name}.mean()" for name in dict.fromkeys(calls)]
    if not isinstance(flags, list) or [type(flag) for flag in flags] != [bool] * len(calls):
        return ""
    retained_calls = zip(calls, flags, strict=True)
    return "\n".join(
        [*lines, *(f"loss_{name}.backward(retain_graph={flag})" for name, flag in retained_calls)]
    )


retain_flags = task_of_cases("retain_flags", "program", _draw_programs, _needed, program=_source)


def _draw_sized(draws):
    programs = []
    for tells in _TELL:
        program = _draw_program(draws, tells)
        flags = _needed(**program)
        if tells is _any:
            flags = [draws.uniform() < 0.3 or flag for flag in flags]
        flags[0] = True
        batch, *sizes = draws.integers(1 + len(program["reads"]), 2, 9)
        widths = dict(zip(program["reads"], sizes, strict=True))
        programs.append(program | {"flags": flags, "widths": widths, "batch": batch})
    return programs


def _held(reads, detached, calls, flags, widths, batch):
    data, losses = _losses(reads, detached, widths, batch)
    byte_counts = []
    for name, retain in zip(calls, flags, strict=True):
        losses[name].backward(retain_graph=retain)
        byte_counts.append(snapshot(*losses.values(), inputs=[data]).held.activations)
    return byte_counts


def _described(reads, detached, calls, flags, widths, batch):
    networks = [
        f"{name}({source}{'.detach()' if name in detached else ''}) of width {widths[name]}"
        for name, source in reads.items()
    ]
    retained_calls = zip(calls, flags, strict=True)
    ends = [f"{name}{' retained' if retain else ''}" for name, retain in retained_calls]
    return f"bytes in {', '.join(networks)}, batch {batch}, with backward from {', '.join(ends)}"


held_bytes = task_of_cases("held_bytes", "program", _draw_sized, _held, name=_described)
