"""Exercise ``shared_trunk``: which backward calls must retain, and what stays in memory.

A program is drawn: networks that read the data or one another, perhaps detached, and a row of
backward calls.  What a right answer is follows from running that program in PyTorch: the flags are
used, and then each of them is left out; the bytes are read off the graphs.  Some programs of a draw
are drawn until they tell a belief from the truth: a detached reader of which a flag depends, a
trunk whose output a reader holds after it was freed, a flag without any loss called twice.
"""

import torch
from torch.nn import functional as F

from backward_twice.checks.comparison import Finding
from backward_twice.checks.question import Task
from gradtrace import snapshot


def _draw_program(generator, tells):
    while not tells(**(program := _draw_any_program(generator))):
        pass
    return program


def _draw_any_program(generator):
    def one_of(values):
        return values[torch.randint(len(values), (), generator=generator)]

    def chance(probability):
        return torch.rand((), generator=generator).item() < probability

    names = [f"net{number}" for number in range(1, one_of([4, 5, 6]))]
    reads = {
        name: "data" if not position or chance(0.2) else one_of(names[:position])
        for position, name in enumerate(names)
    }
    return {
        "reads": reads,
        "detached": [name for name in names if reads[name] != "data" and chance(0.3)],
        "calls": [one_of(names) for _ in range(one_of([3, 4, 5]))],
    }


def _losses(reads, detached, widths, batch):
    """The data, and the loss of each network."""
    outputs, losses = {"data": torch.ones(batch, 3)}, {}
    for name, source in reads.items():
        source_output = outputs[source].detach() if name in detached else outputs[source]
        weight = torch.full((widths[name], source_output.shape[1]), 0.1, requires_grad=True)
        bias = torch.ones(widths[name], requires_grad=True)
        outputs[name] = torch.tanh(F.linear(source_output, weight, bias))
        losses[name] = outputs[name].mean()
    return outputs["data"], losses


def _fails_at(flags, reads, detached, calls):
    """The number of the backward call that raises, counted from 0; None if none does."""
    _, losses = _losses(reads, detached, dict.fromkeys(reads, 1), 1)
    for number, (name, retain) in enumerate(zip(calls, flags, strict=True)):
        try:
            losses[name].backward(retain_graph=retain)
        except RuntimeError:
            return number
    return None


def _without(flags, number):
    return [flag and i != number for i, flag in enumerate(flags)]


def _needed(reads, detached, calls):
    every = [True] * len(calls)
    fails = [_fails_at(_without(every, i), reads, detached, calls) for i in range(len(calls))]
    return [number is not None for number in fails]


def _described(reads, detached, calls, **_):
    networks = [
        f"{name}({source}{'.detach()' if name in detached else ''})"
        for name, source in reads.items()
    ]
    return f"in {', '.join(networks)} with backward from {', '.join(calls)}"


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


def _draw_programs(generator):
    return {"programs": [_draw_program(generator, tells) for tells in _TELL]}


def _run(answer, programs):
    return {f"program {n}": answer(**program) for n, program in enumerate(programs, 1)}


def _judge_flags(observed, programs):
    return [
        Finding(name, *_verdict_on_flags(observed.get(name), program))
        for name, program in ((f"program {n}", p) for n, p in enumerate(programs, 1))
    ]


def _verdict_on_flags(flags, program):
    calls, description = program["calls"], _described(**program)
    if not isinstance(flags, list) or [type(flag) for flag in flags] != [bool] * len(calls):
        return False, f"not a list of {len(calls)} truth values, {description}"
    failed = _fails_at(flags, **program)
    if failed is not None:
        return False, f"call {failed + 1} raises, {description}"
    for number, flag in enumerate(flags):
        if flag and _fails_at(_without(flags, number), **program) is None:
            return False, f"call {number + 1} retains for nothing, {description}"
    return True, "no call raises, and no flag can be left out"


def _source(property_name, value, programs):
    """The networks and the backward calls with the flags that the answer gave."""
    program = programs[int(property_name.removeprefix("program ")) - 1]
    reads, detached, calls = (program[name] for name in ("reads", "detached", "calls"))
    lines = ["data = torch.ones(1, 3)"]
    for name, source in reads.items():
        source_output = f"{source}.detach()" if name in detached else source
        lines.append(
            f"{name} = torch.nn.Linear({3 if source == 'data' else 1}, 1)({source_output}).tanh()"
        )
    lines += [f"loss_{name} = {name}.mean()" for name in dict.fromkeys(calls)]
    flags = program.get("flags", value)
    if not isinstance(flags, list) or [type(flag) for flag in flags] != [bool] * len(calls):
        return ""
    retained_calls = zip(calls, flags, strict=True)
    return "\n".join(
        [*lines, *(f"loss_{name}.backward(retain_graph={flag})" for name, flag in retained_calls)]
    )


retain_flags = Task("retain_flags", _draw_programs, run=_run, judge=_judge_flags, program=_source)


def _draw_sized(generator):
    programs = []
    for tells in _TELL:
        program = _draw_program(generator, tells)
        flags = _needed(**program)
        if tells is _any:
            spare = torch.rand(len(flags), generator=generator) < 0.3
            flags = [flag or is_spare for flag, is_spare in zip(flags, spare.tolist(), strict=True)]
        flags[0] = True
        sizes = torch.randint(2, 10, (len(program["reads"]) + 1,), generator=generator).tolist()
        widths = dict(zip(program["reads"], sizes[1:], strict=True))
        programs.append(program | {"flags": flags, "widths": widths, "batch": sizes[0]})
    return {"programs": programs}


def _held(reads, detached, calls, flags, widths, batch):
    data, losses = _losses(reads, detached, widths, batch)
    byte_counts = []
    for name, retain in zip(calls, flags, strict=True):
        losses[name].backward(retain_graph=retain)
        byte_counts.append(snapshot(*losses.values(), inputs=[data]).held.activations)
    return byte_counts


def _judge_held(observed, programs):
    return [
        Finding(name, *_verdict_on_bytes(observed.get(name), program))
        for name, program in ((f"program {n}", p) for n, p in enumerate(programs, 1))
    ]


def _verdict_on_bytes(claims, program):
    byte_counts, flags = _held(**program), program["flags"]
    sizes = f"batch {program['batch']}, widths {list(program['widths'].values())}"
    description = f"{_described(**program)}, retain_graph={flags}, {sizes}"
    if (
        not isinstance(claims, list)
        or len(claims) != len(byte_counts)
        or not all(type(claimed) is int and 0 <= claimed < 10**9 for claimed in claims)
    ):
        return False, f"not a list of {len(byte_counts)} numbers of bytes, {description}"
    for number, (right, claimed) in enumerate(zip(byte_counts, claims, strict=True), 1):
        if claimed != right:
            off = f"{abs(claimed - right)} too {'many' if claimed > right else 'few'}"
            return False, f"{claimed} bytes after call {number} are {off}, {description}"
    return True, "exact after every call"


held_bytes = Task("held_bytes", _draw_sized, run=_run, judge=_judge_held)
