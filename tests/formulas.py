"""What the questions expect, by formulas: no modules, no optimizers, no ``.grad``, in float64.

A check compares an answer with the stored solution.  That the solution is right is tested here, by
another way to the same values.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.nn import functional as F

from backward_twice.checks import (
    accumulated_gradients,
    broken_script,
    custom_function,
    gan_step,
    hessian_vector,
    memory_hunt,
    own_losses_only,
    retained_bytes,
    silently_wrong,
    version_counters,
)
from backward_twice.checks.networks import PARAMETERS
from gradtrace import snapshot

LAYERS = ("0.weight", "0.bias", "2.weight", "2.bias")
FORMULAS: dict[str, Callable[..., dict]] = {}
"""For each question a function of its inputs.  What it leaves out of the results has to be True."""


def formula(question: str) -> Callable[[Callable], Callable]:
    """Enter a function into the formulas."""

    def entered(function: Callable) -> Callable:
        FORMULAS[question] = function
        return function

    return entered


def leaves(weights: Iterable[Tensor]) -> list[Tensor]:
    """Return the weights in float64, as new leaves that require a gradient."""
    return [weight.detach().double().requires_grad_() for weight in weights]


def output_of(weights: Iterable[Tensor], x: Tensor) -> Tensor:
    """Return the output of two linear layers with a tanh between them."""
    first, first_bias, last, last_bias = weights
    return (x @ first.T + first_bias).tanh() @ last.T + last_bias


def descended(weights: Sequence[Tensor], loss: Tensor, rate: float) -> list[Tensor]:
    """Return the weights after one step of gradient descent on the loss, as new leaves."""
    # The bias of a score may cancel out of a loss: its gradient is zero, and autograd says None.
    gradients = torch.autograd.grad(loss, weights, retain_graph=True, materialize_grads=True)
    return leaves(w - rate * g for w, g in zip(weights, gradients, strict=True))


def normalised(hidden: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Return a batch norm's output in training mode for the rows of ``hidden``."""
    variance = hidden.var(0, correction=0)
    return (hidden - hidden.mean(0)) / (variance + 1e-5).sqrt() * scale + shift


class Weights(dict[str, Tensor]):
    """Weights by names such as ``actor[0].bias``, with the formulas of the layers ``actor[0]``."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__(weights)
        for name, weight in self.items():
            weight.requires_grad_(not name.endswith("running_mean"))

    def linear(self, layer: str, x: Tensor) -> Tensor:
        """Return a linear layer's output."""
        return F.linear(x, self[f"{layer}.weight"], self.get(f"{layer}.bias"))

    def batch_norm(self, layer: str, hidden: Tensor) -> Tensor:
        """Return a batch norm's output in training mode, and move its running mean."""
        mean = f"{layer}.running_mean"
        self[mean] = 0.9 * self[mean] + 0.1 * hidden.detach().mean(0)
        return normalised(hidden, self[f"{layer}.weight"], self[f"{layer}.bias"])

    def descend(self, network: str, loss: Tensor, rate: float) -> None:
        """Replace the weights of a network, such as ``actor``, by those after a step."""
        names = [name for name in self if name.startswith(network) and self[name].requires_grad]
        values = descended([self[name] for name in names], loss, rate)
        self.update(zip(names, values, strict=True))


@formula("accumulated_gradients.piecewise_step")
def _accumulated_gradients_step(weights, batches, sizes, rate):
    weights = leaves(weights)
    for x, target in batches:
        loss = (output_of(weights, x.double()) - target).square().mean()
        weights = descended(weights, loss, rate)
    trained = dict(zip(accumulated_gradients._PARAMETERS, weights, strict=True))
    return trained | {accumulated_gradients._RUNS: len(batches)}


@formula("cached_tensor.spectral_linear")
def _cached_tensor(weight, bias, u, phases, rate):
    weight, bias = leaves([weight, bias])
    u, results = u.double(), {}
    for i, phase in enumerate(phases, 1):
        normalised = None
        for j, batch in enumerate(phase["batches"], 1):
            if phase["training"] or normalised is None:
                v = F.normalize(weight.detach().T @ u, dim=0)
                u = F.normalize(weight.detach() @ v, dim=0)
                normalised = weight / (u @ weight @ v)
            [x] = leaves([batch])
            output = x @ normalised.T + bias
            if phase["training"]:
                weight, bias = descended([weight, bias], (output - 1).square().mean(), rate)
            else:
                [gradient] = torch.autograd.grad((output - 1).square().mean(), x, retain_graph=True)
                results[f"output in evaluation, phase {i}, batch {j}"] = output
                results[f"gradient of the input, phase {i}, batch {j}"] = gradient
    return {**results, "weight": weight, "bias": bias, "u": u}


@formula("custom_function.squash")
def _squash(inputs, outer, vectors):
    def twice(x, slope):
        return (slope * (slope * x).tanh()).tanh()

    return custom_function._derivatives(twice, inputs, outer, vectors)


@formula("custom_function.root")
def _root(inputs, outer, vectors):
    def twice(x, a):
        return _newton(1 + _newton(x, a), a)

    return custom_function._derivatives(twice, inputs, outer, vectors)


def _newton(x, a):
    """Solve ``y + a * y**3 = x`` for ``y`` by Newton's method, each step recorded by autograd."""
    y = x
    for _ in range(30):
        y = y - (y + a * y**3 - x) / (1 + 3 * a * y**2)
    return y


@formula("custom_function.add_product")
def _custom_function_add_product(inputs, outer, vectors):
    def add_twice(total, x, weight):
        result = total.sin() + (x + x.cos()) @ weight.T
        return result + result.cos()

    derivatives = custom_function._derivatives(add_twice, inputs, outer, vectors)
    return derivatives | {custom_function._NEEDED: [0, 1, 1]}


@formula("gan_step.gan_step")
@formula("gan_step.several_critic_steps")
def _gan_step(weights, rounds, rate, critic_steps=1):
    now = Weights(weights)

    def score(sample):
        return now.linear("discriminator[2]", now.linear("discriminator[0]", sample).tanh())

    for inputs in rounds:
        hidden = now.batch_norm("generator[1]", now.linear("generator[0]", inputs["noise"]))
        fake = now.linear("generator[3]", hidden.tanh())
        for _ in range(critic_steps):
            of_fake = F.softplus(score(fake.detach())).mean()
            of_real = F.softplus(-score(inputs["real"])).mean()
            now.descend("discriminator", of_real + of_fake, rate)
        now.descend("generator", F.softplus(-score(fake)).mean(), rate)
    return {**now, gan_step._RUNS: len(rounds)}


@formula("gradient_penalty.critic_step")
def _gradient_penalty_critic(weights, batches, strength, rate):
    weights = leaves(weights)
    for batch in batches:
        real, fake, mix = (batch[name] for name in ("real", "fake", "mix"))
        w1, b1, w2, _ = weights
        of_fake, of_real, hidden = (
            (x @ w1.T + b1).tanh() for x in (fake, real, mix * real + (1 - mix) * fake)
        )
        of_input = ((1 - hidden**2) * w2) @ w1
        penalty = (of_input.norm(dim=1) - 1).square().mean()
        loss = (of_fake.mean(0) - of_real.mean(0)) @ w2[0] + strength * penalty
        weights = descended(weights, loss, rate)
    return dict(zip(PARAMETERS, weights, strict=True))


@formula("gradient_penalty.flat_gradients")
def _gradient_penalty_flat(weights, x, target, strength):
    def loss(*weights):
        return (output_of(weights, x) - target).square().mean()

    gradients = torch.autograd.functional.jacobian(loss, tuple(weights))
    # The gradient of a squared norm |g|² is twice the Hessian times g.
    _, products = torch.autograd.functional.hvp(loss, tuple(weights), gradients)
    return {
        f"gradient of the {name}": gradient + 2 * strength * product
        for name, gradient, product in zip(PARAMETERS, gradients, products, strict=True)
    }


@formula("hessian_vector.hessian_vectors")
def _hessian_vector_vectors(x, vectors, **weights):
    f = hessian_vector._function(**{name: weight.double() for name, weight in weights.items()})
    hessian = torch.autograd.functional.hessian(f, x.double())
    products = {f"product with vector {i}": hessian @ v.double() for i, v in enumerate(vectors, 1)}
    return products


@formula("hessian_vector.curvatures")
def _hessian_vector_curvatures(parameters, start, x, target, steps):
    def loss(flat):
        parts = flat.split([parameter.numel() for parameter in parameters])
        shaped = [
            part.view(parameter.shape) for part, parameter in zip(parts, parameters, strict=True)
        ]
        return (output_of(shaped, x) - target).square().mean()

    def flat(tensors):
        return torch.cat([tensor.flatten() for tensor in tensors])

    hessian = torch.autograd.functional.hessian(loss, flat(parameters))
    v, results = flat(start), {}
    for i in range(1, steps + 1):
        v = v / v.norm()
        results[f"curvature in step {i}"] = (v @ hessian @ v).item()
        v = hessian @ v
    return results


def _hidden_state(weights, chunks, rate, kind):
    names, weights = list(weights), leaves(weights.values())
    hidden, inputs = weights[1].shape[1], weights[0].shape[1]
    recurrent, state = kind(inputs, hidden).double(), None
    for chunk in chunks:
        state = _started_again(state, chunk.get("starts"))
        arguments = (chunk["x"].double(), state)
        parameters = dict(zip(names[:4], weights[:4], strict=True))
        outputs, state = functional_call(recurrent, parameters, arguments)
        error = outputs @ weights[4].T + weights[5] - chunk["y"]
        weights = descended(weights, error.square().mean(), rate)
    return dict(zip(names, weights, strict=True))


def _started_again(state, starts):
    """Return the state detached, and zero where a series starts; an LSTM's is only detached."""
    if isinstance(state, tuple):
        return tuple(part.detach() for part in state)
    return state if state is None else state.detach() * ~starts[:, None]


@formula("how_far_back.input_gradients")
def _how_far_back_gradients(weights, programs):
    w, u, b, c = (weight.double() for weight in weights)
    expected = {}
    for program in programs:
        [x] = leaves([program["x"]])
        state = torch.zeros(len(w)).double()
        for number, step in enumerate(x):
            state = state.detach() if number in program["cuts"] else state
            state = (w @ step + b + u @ state + c).tanh()
        [gradient] = torch.autograd.grad(state.square().sum(), x)
        expected[f"gradient, cuts before {program['cuts']}"] = gradient
    return expected


@formula("kept_gradients.record")
def _kept_gradients_record(start, left, factors):
    expected, total = {}, left
    for n, factor in enumerate(factors, 1):
        total = total + factor * (start * factor).exp()
        expected[f"record {n}"] = total
    return expected | {".grad at the end": total}


@formula("memory_hunt.train")
def _memory_hunt_train(weights, batches, validation, decay, rate):
    weights = leaves(weights)
    expected, average = {}, None

    def mean_square(x, target):
        return (output_of(weights, x.double()) - target).square().mean()

    for number, (x, target) in enumerate(batches, 1):
        features = x.double() @ weights[0].T + weights[1]
        loss = mean_square(x, target) + 0.01 * features.square().mean()
        weights = descended(weights, loss, rate)
        held_out = mean_square(*validation).item()
        expected[f"validation loss {number}"] = held_out
        average = held_out if average is None else decay * average + (1 - decay) * held_out
    trained = dict(zip(LAYERS, weights, strict=True))
    return {**trained, **expected, "average": average}


@formula("moving_window.train")
def _moving_window(weights, inputs, width, rate):
    weights = leaves(weights)
    rows = [torch.zeros(2).double() for _ in range(width)]
    for n, x in enumerate(inputs):
        rows[n % width] = row = output_of(weights, x.double())
        loss = (torch.stack(rows).sum(0) - 1).square().mean()
        rows[n % width] = row.detach()
        weights = descended(weights, loss, rate)
    return {**dict(zip(LAYERS, weights, strict=True)), "window": torch.stack(rows)}


@formula("outside_the_loop.train_unit_rows")
def _outside_the_loop_unit_rows(direction, scale, batches, rate):
    direction, scale = leaves([direction, torch.tensor(scale)])
    for x, target in batches:
        loss = (scale * x.double() @ F.normalize(direction).T - target).square().mean()
        direction, scale = descended([direction, scale], loss, rate)
    return {"direction": direction, "scale": scale, "returned weight": F.normalize(direction)}


@formula("outside_the_loop.train_sampled")
def _outside_the_loop_sampled(mean, rho, chunks, updates, seed, rate):
    generator = torch.Generator().manual_seed(seed)
    mean, rho = leaves([mean, rho])
    for _ in range(updates):
        weight = mean + F.softplus(rho) * torch.randn(mean.shape, generator=generator)
        loss = sum((x.double() @ weight - target).square().mean() for x, target in chunks)
        mean, rho = descended([mean, rho], loss, rate)
    return {"mean": mean, "rho": rho}


def _own_losses_only(weights, updates, rate, ratings):
    """Compute the expected result, with ``ratings`` forward passes of the critic in each update."""
    now = Weights(weights)
    for inputs in updates:
        actions = now.linear("actor[0]", inputs["states"]).tanh()
        hidden = now.linear("critic[0]", torch.cat([inputs["states"], actions], dim=1))
        for _ in range(ratings):
            scaled = now.batch_norm("critic[1]", hidden)
        rating = now.linear("critic[3]", scaled.tanh())
        of_critic = (rating - inputs["rewards"]).square().mean()
        now.descend("critic", of_critic, rate)
        now.descend("actor", -rating.mean(), rate)
    return {**now, own_losses_only._RATINGS: ratings * len(updates)}


@formula("running_total.normalised_training")
def _running_total_training(layers, batches, decay, rate):
    weights, history = leaves(layers), []
    for x, target in batches:
        loss = (output_of(weights, x.double()) - target).square().mean()
        value = loss.item()
        history.append(decay * history[-1] + (1 - decay) * value if history else value)
        weights = descended(weights, loss, rate / history[-1])
    by_batch = {f"running mean after batch {i}": value for i, value in enumerate(history, 1)}
    return dict(zip(PARAMETERS, weights, strict=True)) | by_batch


def _mixed_loss(scores, target, share):
    p = scores.softmax(-1)[range(len(target)), target]
    return -((1 - share) * p + share / scores.shape[-1]).log().mean()


@formula("silently_wrong.mixed_loss")
def _silently_wrong_loss(target, share, **inputs):
    doubles = {name: value.double() for name, value in inputs.items()}
    return silently_wrong._run_loss(_mixed_loss, target, share, **doubles)


@formula("strengths.gradients")
def _strengths(weights, x, strengths):
    weight = weights["0.weight"].requires_grad_()
    scale, shift = weights["1.weight"], weights["1.bias"]
    expected = {}
    for n, strength in enumerate(strengths, 1):
        hidden = normalised(F.linear(x, weight), scale, shift)
        out = (hidden.tanh() * strength).sin()
        (expected[f"gradient, strength {n}"],) = torch.autograd.grad(out.sum(), weight)
    return {
        **expected,
        "runs of the part before the first gradient": len(strengths) + 1,
        "runs of the part outside of backward": len(strengths),
        "batches that the part has seen": 2 * len(strengths),
        **{f".grad of {name}": value.detach().cos() for name, value in weights.items()},
    }


def _losses(weights, x, targets):
    first, second, *heads = weights
    features = ((x.double() @ first.T).tanh() @ second.T).tanh()
    return [
        (features @ head.T - target).square().mean()
        for head, target in zip(heads, targets, strict=True)
    ]


@formula("two_losses.one_update")
def _two_losses_one_update(weights, x, targets, rate):
    now = leaves(weights.values())
    now = descended(now, sum(_losses(now, x, targets)), rate)
    return {f"weight of the {name}": weight for name, weight in zip(weights, now, strict=True)}


@formula("two_losses.trunk_gradients")
def _two_losses_trunk_gradients(weights, x, targets, rate):
    now = leaves(weights.values())
    of_a, of_b = (
        torch.autograd.grad(loss, now[0], retain_graph=True)[0] for loss in _losses(now, x, targets)
    )
    remaining = {f".grad of the {name}": weight.cos() for name, weight in weights.items()}
    return {"from loss a": of_a, "from loss b": of_b, "from their sum": of_a + of_b, **remaining}


@formula("two_replicas.train")
def _two_replicas(weights, batches, rate):
    """Return the result computed in one process, with the rows of both replicas."""
    weights = leaves(weights)
    for halves in zip(*batches, strict=True):
        x, target_a, target_b = (torch.cat(parts).double() for parts in zip(*halves, strict=True))
        output = output_of(weights, x)
        loss = F.mse_loss(output[:, 0], target_a) + F.mse_loss(output[:, 1], target_b)
        weights = descended(weights, loss, rate)
    trained = {
        f"replica {replica}: {name}": weight
        for replica in (0, 1)
        for name, weight in zip(LAYERS, weights, strict=True)
    }
    return {"how often the gradients were averaged": [len(batches[0])] * 2, **trained}


@formula("uneven_pieces.accumulate")
def _uneven_pieces(weights, batches, rate, max_norm=float("inf")):
    weights = leaves(weights)
    for batch in batches:
        x, target = (torch.cat(parts).double() for parts in zip(*batch, strict=True))
        loss = (output_of(weights, x) - target).square().mean()
        norm = torch.cat(
            [g.flatten() for g in torch.autograd.grad(loss, weights, retain_graph=True)]
        ).norm()
        weights = descended(weights, loss, rate * min(1.0, max_norm / norm.item()))
    return dict(zip(LAYERS, weights, strict=True))


@formula("uneven_pieces.accumulate_scaled")
def _uneven_pieces_scaled(batches, scale, **given):
    """The update that overflows is skipped, and the scale then halved."""
    first, _, *others = batches
    return _uneven_pieces(batches=[first, *others], **given) | {"scale at the end": scale / 2}


def _masked_layer(x, weight, bias, mask, head):
    output = ((x @ weight + bias).tanh() * mask) @ head
    return output - output.mean(0)


@formula("version_counters.masked_layer")
def _version_counters_layer(mask, **inputs):
    doubles = {name: value.double() for name, value in inputs.items()}
    return version_counters._run_layer(_masked_layer, mask, **doubles)


@formula("silently_wrong.wrong_gradients")
def _silently_wrong_detector(functions, values):
    def are_wrong(function, inputs):
        return [not is_right(function, inputs, place) for place in range(len(inputs))]

    def is_right(function, inputs, place):
        leaves = [x.clone().requires_grad_(i == place) for i, x in enumerate(inputs)]
        return gradcheck(function, leaves, raise_exception=False)

    verdicts = silently_wrong._run_detector(are_wrong, functions, values)
    return {name: verdict for name, verdict in verdicts.items() if name.startswith("function ")}


@formula("memory_hunt.what_grows")
def _memory_hunt_grows(trainers):
    growing = [
        [name for name, habit in trainer["habits"].items() if habit in memory_hunt._GROWING]
        for trainer in trainers
    ]
    return {
        f"trainer {number}": ", ".join(sorted(names)) or "none"
        for number, names in enumerate(growing, 1)
    }


@formula("broken_script.repair")
def _broken_script(scripts):
    def repaired(script):
        for right, wrong in broken_script._FAULTS:
            script = script if right in script else script.replace(wrong, right)
        return script

    return broken_script._run(repaired, scripts)


@formula("version_counters.count_versions")
def _version_counters(steps):
    versions, refused = _right_steps(steps)
    return {
        **{f"version of {name}": version for name, version in versions.items()},
        **{f"{name} is refused": truth for name, truth in refused.items()},
    }


def _right_steps(steps):
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
    versions = {name: tensor._version for name, tensor in tensors.items()}
    return versions, {name: _refused(product) for name, product in products.items()}


def _refused(product):
    try:
        product.sum().backward()
    except RuntimeError:
        return True
    return False


@formula("state_in_bytes.steps_that_fit")
def _steps_that_fit(batchs):
    """Extrapolate from 4 and 8 steps."""
    results = {}
    for case in batchs:
        gru, byte_counts = nn.GRU(*case["sizes"]), []
        for steps in (4, 8):
            x = torch.ones(steps, case["batch"], gru.input_size)
            byte_counts.append(snapshot(gru(x)[0], inputs=[x]).held.activations)
        bytes_per_state = (byte_counts[1] - byte_counts[0]) // 4
        fitting = (case["budget"] - byte_counts[0]) // bytes_per_state + 4
        results[f"steps with a batch of {case['batch']}"] = fitting
    return results


@formula("retained_bytes.measured_bytes")
def _measured_bytes(networks):
    return {retained_bytes._named(**case): retained_bytes._measured(**case) for case in networks}


FORMULAS |= {
    "hidden_state.train_on_chunks": partial(_hidden_state, kind=nn.LSTM),
    "hidden_state.train_with_restarts": partial(_hidden_state, kind=nn.GRU),
    "own_losses_only.update": partial(_own_losses_only, ratings=2),
    "own_losses_only.one_rating": partial(_own_losses_only, ratings=1),
}
