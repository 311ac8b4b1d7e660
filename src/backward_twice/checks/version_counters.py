"""Exercise ``version_counters``: an in-place change that the engine refuses, and its counter."""

import torch

from backward_twice.checks.task import Task


def _draw_layer(draws):
    rows, inputs, hidden, outputs = draws.integers(4, 3, 6)
    mask = torch.rand(rows, hidden, generator=draws) < 0.6
    mask[0, 0], mask[-1, -1] = False, True
    return {
        "x": draws.normal(rows, inputs),
        "weight": draws.normal(inputs, hidden) / 2,
        "bias": draws.normal(hidden),
        "mask": mask / 0.6,
        "head": draws.normal(hidden, outputs),
    }


def _run_layer(answer, mask, **inputs):
    now = {name: value.requires_grad_() for name, value in inputs.items()}
    output = answer(mask=mask, **now)
    output.square().mean().backward()
    return {"output": output, **{f"gradient of {name}": leaf.grad for name, leaf in now.items()}}


masked_layer = Task("masked_layer", _draw_layer, run=_run_layer)


def _draw_steps(draws):
    kinds = ["new", "view", "view", "detach", "detach", "data", "data", "clone"]
    kinds += ["add"] * 5 + ["add under no_grad"] * 3 + ["product"] * 5
    steps = [["new", "a"], ["new", "b"], ["product", "y1", "a"]]
    names, products = ["a", "b"], 1
    for kind in draws.shuffled(kinds):
        source = draws.one_of(names)
        if kind.startswith("add"):
            steps.append([kind, source])
        elif kind == "product":
            products += 1
            steps.append([kind, f"y{products}", source])
        else:
            names.append("abcdefghijklm"[len(names)])
            steps.append([kind, names[-1], *([source] if kind != "new" else [])])
    # One product, at least, is refused, and one of a tensor that was changed is not.
    return {"steps": [*steps, ["add", "a"], ["product", f"y{products + 1}", "a"]]}


def _run_steps(answer, steps):
    versions, refused = answer(steps)
    return {
        **{f"version of {name}": version for name, version in versions.items()},
        **{f"{name} is refused": truth for name, truth in refused.items()},
    }


count_versions = Task("count_versions", _draw_steps, run=_run_steps)
