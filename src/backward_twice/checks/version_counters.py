"""Exercise ``version_counters``: an in-place change that backward refuses, and who counts what."""

import torch

from backward_twice.checks.question import Task


def _below(generator, low, high):
    return torch.randint(low, high, (1,), generator=generator).item()


def _draw_layer(generator):
    rows, inputs, hidden, outputs = (_below(generator, 3, 7) for _ in range(4))

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    mask = torch.rand(rows, hidden, generator=generator) < 0.6
    mask[0, 0], mask[-1, -1] = False, True
    return {
        "x": normal(rows, inputs),
        "weight": normal(inputs, hidden) / 2,
        "bias": normal(hidden),
        "mask": mask / 0.6,
        "head": normal(hidden, outputs),
    }


def _run_layer(answer, x, weight, bias, mask, head):
    leaves = {"x": x, "weight": weight, "bias": bias, "head": head}
    for leaf in leaves.values():
        leaf.requires_grad_()
    output = answer(x, weight, bias, mask, head)
    output.square().mean().backward()
    return {"output": output, **{f"gradient of {name}": leaves[name].grad for name in leaves}}


def _expect_layer(x, weight, bias, mask, head):
    """By the formulas of the chain rule, without autograd, in double precision."""
    x, weight, bias, mask, head = (t.double() for t in (x, weight, bias, mask, head))
    features = (x @ weight + bias).tanh()
    output = (features * mask) @ head
    output = output - output.mean(0)
    of_output = 2 * output / output.numel()
    of_hidden = (of_output @ head.T) * mask * (1 - features**2)
    return {
        "output": output,
        "gradient of x": of_hidden @ weight.T,
        "gradient of weight": x.T @ of_hidden,
        "gradient of bias": of_hidden.sum(0),
        "gradient of head": (features * mask).T @ of_output,
    }


masked_layer = Task("masked_layer", _draw_layer, _expect_layer, _run_layer)


def _draw_steps(generator):
    kinds = ["new", "view", "view", "detach", "detach", "data", "data", "clone"]
    kinds += ["add"] * 5 + ["add under no_grad"] * 3 + ["product"] * 5
    steps = [["new", "a"], ["new", "b"], ["product", "y1", "a"]]
    names, products = ["a", "b"], 1
    for i in torch.randperm(len(kinds), generator=generator).tolist():
        source = names[_below(generator, 0, len(names))]
        if kinds[i].startswith("add"):
            steps.append([kinds[i], source])
        elif kinds[i] == "product":
            products += 1
            steps.append([kinds[i], f"y{products}", source])
        else:
            names.append("abcdefghijklm"[len(names)])
            steps.append([kinds[i], names[-1], *([source] if kinds[i] != "new" else [])])
    # One product, at least, is refused, and one of a tensor that was changed is not.
    return {"steps": [*steps, ["add", "a"], ["product", f"y{products + 1}", "a"]]}


def _run_steps(answer, steps):
    versions, refused = answer(steps)
    return {
        **{f"version of {name}": version for name, version in versions.items()},
        **{f"{name} is refused": truth for name, truth in refused.items()},
    }


def _expect_steps(steps):
    """PyTorch runs the steps."""
    tensors, products = {}, {}
    w = torch.ones(1, requires_grad=True)
    for step, name, *source in steps:
        of = tensors[source[0]] if source else None
        if step == "new":
            tensors[name] = torch.ones(4)
        elif step == "view":
            tensors[name] = of[:2]
        elif step == "detach":
            tensors[name] = of.detach()
        elif step == "data":
            tensors[name] = of.data
        elif step == "clone":
            tensors[name] = of.clone()
        elif step == "product":
            products[name] = w * of
        else:
            with torch.set_grad_enabled(step == "add"):
                tensors[name].add_(1)
    return {
        **{f"version of {name}": tensor._version for name, tensor in tensors.items()},
        **{f"{name} is refused": _refused(product) for name, product in products.items()},
    }


def _refused(product):
    try:
        product.sum().backward()
    except RuntimeError:
        return True
    return False


count_versions = Task("count_versions", _draw_steps, _expect_steps, _run_steps)
