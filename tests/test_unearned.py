"""Right values without the work that a question asks for have no points; other right ways have all.

What tells them apart is what an answer did on its way (:mod:`backward_twice.checks.witness`).
"""

from contextlib import suppress

import pytest
import torch
from torch import nn
from torch.autograd import Function, functional, gradcheck
from torch.autograd.graph import save_on_cpu
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from backward_twice.checks import question
from backward_twice.misconceptions import misconceptions_of
from gradtrace import snapshot

SEEDS = range(100, 105)


def wrong(name, answer, seed):
    """The names of the properties that are wrong."""
    asked = question(name)
    inputs = asked.inputs(seed)
    findings = asked.findings(asked.observe(answer, inputs), inputs)
    return {finding.what for finding in findings if not finding.passed}


# silently_wrong.wrong_gradients: what a function does can be read from the numbers that it holds.

HARMLESS = {
    "scale the result": lambda x: -1 / x.tanh() ** 2,
    "add to what was saved": lambda x: -2 * x.tanh(),
    "scale under no_grad": lambda x: x,
    "detach": lambda x: x,
}


def formulas(function, inputs):
    [asked] = [c.cell_contents for c in function.__closure__ if callable(c.cell_contents)]
    held = dict(zip(asked.__code__.co_freevars, asked.__closure__, strict=True))
    habits, sizes = (held[name].cell_contents for name in ("habits", "sizes"))
    return [
        habit in HARMLESS and not torch.allclose(size, HARMLESS[habit](x))
        for x, habit, size in zip(inputs, habits, sizes, strict=True)
    ]


def formulas_and_calls_for_show(function, inputs):
    function(*[x.clone().requires_grad_() for x in inputs])
    function(*[x + 1e-5 for x in inputs])
    return formulas(function, inputs)


def formulas_and_one_number_of_each_moved(function, inputs):
    function(*[x.clone().requires_grad_() for x in inputs]).backward()
    for place in range(len(inputs)):
        moved = [x.clone() for x in inputs]
        moved[place][0] += 1e-5
        function(*moved)
    return formulas(function, inputs)


def measured(function, inputs, place, step=1e-5):
    gradient = torch.zeros_like(inputs[place])
    for i in range(len(gradient)):
        ends = []
        for signed in (step, -step):
            moved = [x.clone() for x in inputs]
            moved[place][i] += signed
            ends.append(function(*moved).item())
        gradient[i] = (ends[0] - ends[1]) / (2 * step)
    return gradient


def differ(function, inputs, gradients):
    return [
        not torch.allclose(gradient, measured(function, inputs, place), rtol=1e-5, atol=1e-8)
        for place, gradient in enumerate(gradients)
    ]


def by_torch_func(function, inputs):
    places = tuple(range(len(inputs)))
    return differ(function, inputs, torch.func.grad(function, argnums=places)(*inputs))


def by_jacobian(function, inputs):
    return differ(function, inputs, functional.jacobian(function, tuple(inputs)))


def by_gradcheck(function, inputs, fast=False):
    def one(place):
        leaves = [x.clone().requires_grad_(i == place) for i, x in enumerate(inputs)]
        return gradcheck(function, leaves, raise_exception=False, fast_mode=fast)

    return [not one(place) for place in range(len(inputs))]


def by_fast_gradcheck(function, inputs):
    return by_gradcheck(function, inputs, fast=True)


# hessian_vector.hessian_vectors


def whole_hessian(f, x, vectors):
    hessian = functional.hessian(f, x)
    return [hessian @ v for v in vectors]


def whole_hessian_at_once(f, x, vectors):
    hessian = torch.func.hessian(f)(x)
    return [hessian @ v for v in vectors]


def forward_over_reverse(f, x, vectors):
    return [torch.func.jvp(torch.func.grad(f), (x,), (v,))[1] for v in vectors]


def gradient_anew_for_each(f, x, vectors):
    products = []
    for v in vectors:
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(f(leaf), leaf, create_graph=True)
        (gradient @ v).backward()
        products.append(leaf.grad)
    return products


def by_products_of_torchs_own(f, x, vectors):
    return [functional.hvp(f, x, v)[1] for v in vectors]


def all_in_one(f, x, vectors):
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(f(x), x, create_graph=True)
    (rows,) = torch.autograd.grad(gradient, x, torch.stack(vectors), is_grads_batched=True)
    return list(rows)


# custom_function


class NoFunction:
    @staticmethod
    def apply(x, slope):
        return torch.tanh(slope * x)


class Unrolled:
    @staticmethod
    def apply(x, a):
        y = x
        for _ in range(30):
            y = y - (y + a * y**3 - x) / (1 + 3 * a * y**2)
        return y


class OneNodeOfTorchs:
    """addcmul with a value of 0: one node of PyTorch's own in front of what autograd follows."""

    @staticmethod
    def apply(x, slope):
        return torch.addcmul(torch.tanh(slope * x), x, slope, value=0)


class OneNodeAfterUnrolling:
    @staticmethod
    def apply(x, a):
        return torch.addcmul(Unrolled.apply(x, a), x, a, value=0)


class WithSetUp(Function):
    @staticmethod
    def forward(x, slope):
        return torch.tanh(slope * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, grad):
        x, slope, y = ctx.saved_tensors
        inner = grad * (1 - y * y)
        return inner * slope, (inner * x).sum()


# strengths.gradients


def no_checkpoint(part, x, strengths):
    losses = [(part(x) * strength).sin().sum() for strength in strengths]
    gradients = []
    for loss in losses:
        part(x)  # so that as many batches are seen
        gradients += torch.autograd.grad(loss, part[0].weight)
    return gradients


def run_first_for_show(part, x, strengths):
    with torch.no_grad():
        for _ in strengths:
            part(x)
    return [
        torch.autograd.grad((part(x) * strength).sin().sum(), part[0].weight)[0]
        for strength in strengths
    ]


def saved_elsewhere(part, x, strengths):
    with save_on_cpu():
        return no_checkpoint(part, x, strengths)


def checkpointed(part, x, strength, around=checkpoint):
    return around(lambda x: (part(x) * strength).sin(), x, use_reentrant=False).sum()


def only_the_part(part, x, strengths):
    losses = [
        (checkpoint(part, x, use_reentrant=False) * strength).sin().sum() for strength in strengths
    ]
    return [torch.autograd.grad(loss, part[0].weight)[0] for loss in losses]


def all_but_the_sine_elsewhere(part, x, strengths):
    """Under a checkpoint but for the last operation, and that under other hooks."""
    with save_on_cpu():
        losses = [
            checkpoint(lambda x, s: part(x) * s, x, strength, use_reentrant=False).sin().sum()
            for strength in strengths
        ]
    return [torch.autograd.grad(loss, part[0].weight)[0] for loss in losses]


def others_keep_a_gradient(part, x, strengths):
    weight, left, gradients = part[0].weight, part[0].weight.grad, []
    for loss in [checkpointed(part, x, strength) for strength in strengths]:
        weight.grad = None
        loss.backward()
        gradients.append(weight.grad)
    weight.grad = left
    return gradients


def backward_to_the_weight_alone(part, x, strengths):
    weight, left, gradients = part[0].weight, part[0].weight.grad, []
    for loss in [checkpointed(part, x, strength) for strength in strengths]:
        weight.grad = None
        loss.backward(inputs=[weight])
        gradients.append(weight.grad)
    weight.grad = left
    return gradients


class RunAgain(Function):
    """A checkpoint of one's own."""

    @staticmethod
    def forward(ctx, x, weight, function):
        ctx.function = function
        ctx.save_for_backward(x, weight)
        return function(x)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        with torch.enable_grad():
            y = ctx.function(x)
        return None, *torch.autograd.grad(y, weight, grad), None


def own_checkpoint(part, x, strengths):
    weight = part[0].weight
    losses = [
        RunAgain.apply(x, weight, lambda x, strength=strength: (part(x) * strength).sin()).sum()
        for strength in strengths
    ]
    return [torch.autograd.grad(loss, weight)[0] for loss in losses]


# accumulated_gradients.piecewise_step


def whole_batch(trunk, head, optimizer, x, target, sizes):
    optimizer.zero_grad()
    F.mse_loss(head(trunk(x)), target).backward()
    optimizer.step()


def whole_batch_by_hand(trunk, head, optimizer, x, target, sizes):
    optimizer.zero_grad()
    F.mse_loss(F.linear(trunk(x), head.weight, head.bias), target).backward()
    optimizer.step()


def trunk_for_each_piece(trunk, head, optimizer, x, target, sizes):
    optimizer.zero_grad()
    for part, wanted in zip(x.split(sizes), target.split(sizes), strict=True):
        (F.mse_loss(head(trunk(part)), wanted) * len(part) / len(x)).backward()
    optimizer.step()


def one_sum(trunk, head, optimizer, x, target, sizes):
    optimizer.zero_grad()
    pieces = zip(trunk(x).split(sizes), target.split(sizes), strict=True)
    sum(F.mse_loss(head(part), wanted) * len(part) / len(x) for part, wanted in pieces).backward()
    optimizer.step()


def outputs_in_one_tensor(trunk, head, optimizer, x, target, sizes):
    optimizer.zero_grad()
    F.mse_loss(torch.cat([head(part) for part in trunk(x).split(sizes)]), target).backward()
    optimizer.step()


def trunk_once(trunk, head, optimizer, x, target, sizes):
    optimizer.zero_grad()
    features = trunk(x)
    leaf = features.detach().requires_grad_()
    for part, wanted in zip(leaf.split(sizes), target.split(sizes), strict=True):
        (F.mse_loss(head(part), wanted) * len(part) / len(x)).backward()
    features.backward(leaf.grad)
    optimizer.step()


def one_sum_saved_elsewhere(trunk, head, optimizer, x, target, sizes):
    with save_on_cpu():
        one_sum(trunk, head, optimizer, x, target, sizes)


def one_sum_of_checkpoints(trunk, head, optimizer, x, target, sizes):
    def loss(part, wanted):
        return F.mse_loss(head(part), wanted) * len(part) / len(x)

    optimizer.zero_grad()
    pieces = zip(trunk(x).split(sizes), target.split(sizes), strict=True)
    sum(checkpoint(loss, *piece, use_reentrant=False) for piece in pieces).backward()
    optimizer.step()


# outside_the_loop.train_sampled


def sample_weight(mean, rho, generator):
    return mean + F.softplus(rho) * torch.randn(mean.shape, generator=generator)


def one_backward(mean, rho, optimizer, chunks, updates, generator):
    for _ in range(updates):
        weight = sample_weight(mean, rho, generator)
        optimizer.zero_grad()
        sum((x @ weight - target).square().mean() for x, target in chunks).backward()
        optimizer.step()


def one_backward_saved_elsewhere(mean, rho, optimizer, chunks, updates, generator):
    with save_on_cpu():
        one_backward(mean, rho, optimizer, chunks, updates, generator)


def one_gradient_of_torch_func(mean, rho, optimizer, chunks, updates, generator):
    def loss(mean, rho, noise):
        weight = mean + F.softplus(rho) * noise
        return sum((x @ weight - target).square().mean() for x, target in chunks)

    for _ in range(updates):
        noise = torch.randn(mean.shape, generator=generator)
        mean.grad, rho.grad = torch.func.grad(loss, argnums=(0, 1))(mean, rho, noise)
        optimizer.step()


def one_product(mean, rho, optimizer, chunks, updates, generator):
    x, target = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    rows = torch.cat([torch.full_like(target, len(target)) for _, target in chunks])
    for _ in range(updates):
        weight = sample_weight(mean, rho, generator)
        optimizer.zero_grad()
        ((x @ weight - target).square() / rows).sum().backward()
        optimizer.step()


def one_backward_of_einsum(mean, rho, optimizer, chunks, updates, generator):
    for _ in range(updates):
        optimizer.zero_grad()
        weight = sample_weight(mean, rho, generator)
        outputs = [torch.einsum("ni,ij->nj", x, weight) for x, _ in chunks]
        pairs = zip(outputs, (target for _, target in chunks), strict=True)
        sum((output - target).square().mean() for output, target in pairs).backward()
        optimizer.step()


def all_but_the_first_together(mean, rho, optimizer, chunks, updates, generator):
    for _ in range(updates):
        optimizer.zero_grad()
        weight = sample_weight(mean, rho, generator)
        first, rest = chunks[:1], chunks[1:]
        for group in (first, rest):
            loss = sum((x @ weight - target).square().mean() for x, target in group)
            loss.backward(retain_graph=group is first)
        optimizer.step()


def retained_but_for_the_last(mean, rho, optimizer, chunks, updates, generator):
    for _ in range(updates):
        weight = sample_weight(mean, rho, generator)
        optimizer.zero_grad()
        for left, (x, target) in enumerate(chunks, 1 - len(chunks)):
            loss = F.mse_loss(x @ weight, target)
            loss.backward(retain_graph=left < 0)
        optimizer.step()


# uneven_pieces.accumulate


def copies_in_one_batch(net, optimizer, pieces, count):
    x, target = map(torch.cat, zip(*((x.clone(), y.clone()) for x, y in pieces), strict=True))
    optimizer.zero_grad()
    F.mse_loss(net(x), target).backward()
    optimizer.step()


def copies_in_three_dimensions(net, optimizer, pieces, count):
    optimizer.zero_grad()
    x, target = map(torch.cat, zip(*((x.clone(), y.clone()) for x, y in pieces), strict=True))
    (net(x[None]) - target).square().mean().backward()
    optimizer.step()


def copies_by_einsum(net, optimizer, pieces, count):
    optimizer.zero_grad()
    x, target = map(torch.cat, zip(*((x.clone(), y.clone()) for x, y in pieces), strict=True))
    hidden = (torch.einsum("ni,oi->no", x, net[0].weight) + net[0].bias).tanh()
    output = torch.einsum("nh,oh->no", hidden, net[2].weight) + net[2].bias
    (output - target).square().mean().backward()
    optimizer.step()


def copies_in_one_sum(net, optimizer, pieces, count):
    optimizer.zero_grad()
    pieces = [(x.clone(), target.clone()) for x, target in pieces]
    sum((net(x) - target).square().sum() / count for x, target in pieces).backward()
    optimizer.step()


def copies_saved_elsewhere(net, optimizer, pieces, count):
    with save_on_cpu():
        copies_in_one_sum(net, optimizer, pieces, count)


def copies_by_torch_func(net, optimizer, pieces, count):
    x, target = map(torch.cat, zip(*((x.clone(), y.clone()) for x, y in pieces), strict=True))
    by_torch_func_piece_by_piece(net, optimizer, [(x, target)], count)


def copied_one_by_one(net, optimizer, pieces, count):
    total = None
    for x, target in [(x.clone(), target.clone()) for x, target in pieces]:
        loss = (net(x) - target).square().sum() / count
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        before = total or [0] * len(gradients)
        total = [a + b for a, b in zip(before, gradients, strict=True)]
    for parameter, gradient in zip(net.parameters(), total, strict=True):
        parameter.grad = gradient
    optimizer.step()


def by_torch_func_piece_by_piece(net, optimizer, pieces, count):
    parameters, begun = dict(net.named_parameters()), False

    def loss(parameters, x, target):
        output = torch.func.functional_call(net, parameters, (x,))
        return (output - target).square().sum() / count

    for x, target in pieces:
        found = torch.func.grad(loss)(parameters, x, target)
        for name, parameter in parameters.items():
            before = parameter.grad if begun else 0
            parameter.grad = before + found[name]
        begun = True
    optimizer.step()


# kept_gradients.record


def added_by_hand(parameter, losses):
    records, total = [], parameter.grad
    for loss in losses:
        total = total + torch.autograd.grad(loss, parameter)[0]
        records.append(total)
    parameter.grad = total
    return records


# memory_hunt.train


def validated_with_a_graph(net, optimizer, batches, validation, decay):
    x_val, target_val = validation
    history, average = [], None
    with save_on_cpu():
        for x, target in batches:
            train_with_penalty(net, net[0](x), optimizer, target)
            loss = F.mse_loss(net(x_val), target_val)
            average = loss if average is None else decay * average + (1 - decay) * loss
            history.append(loss)
    return history, average


def features_in_an_attribute(net, optimizer, batches, validation, decay):
    x_val, target_val = validation
    history, average = [], None
    for x, target in batches:
        net.features = net[0](x)
        train_with_penalty(net, net.features, optimizer, target)
        with torch.no_grad():
            loss = F.mse_loss(net(x_val), target_val).item()
        average = loss if average is None else decay * average + (1 - decay) * loss
        history.append(loss)
    return history, average


def train_with_penalty(net, features, optimizer, target):
    loss = F.mse_loss(net[1:](features), target) + 0.01 * features.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# cached_tensor.spectral_linear


class SpectralLinear(nn.Module):
    def __init__(self, weight, bias, u):
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)
        self.register_buffer("u", u)
        self.cache = None

    def size(self):
        with torch.no_grad():
            v = F.normalize(self.weight.T @ self.u, dim=0)
            self.u = F.normalize(self.weight @ v, dim=0)
        return self.u @ self.weight @ v

    def train(self, mode=True):
        self.cache = None
        return super().train(mode)

    def forward(self, x):
        if self.training:
            return F.linear(x, self.weight / self.size(), self.bias)
        if self.cache is None:
            self.cache = self.cached()
        return F.linear(x, self.in_evaluation(), self.bias)


class SizeCached(SpectralLinear):
    """The weight is divided in each call, so it is no constant there."""

    def cached(self):
        return self.size().detach()

    def in_evaluation(self):
        return self.weight / self.cache


class CachedWithoutAGraph(SpectralLinear):
    @torch.no_grad()
    def cached(self):
        return self.weight / self.size()

    def in_evaluation(self):
        return self.cache


# gan_step and own_losses_only: a forward pass that moves no running mean


def forward_again_unnoticed(generator, discriminator, optimizer_g, optimizer_d, noise, real):
    with torch.no_grad():
        fake = generator(noise)
    optimizer_d.zero_grad()
    loss_d = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake)).mean()
    loss_d.backward()
    optimizer_d.step()
    generator[1].track_running_stats = False
    optimizer_g.zero_grad()
    F.softplus(-discriminator(generator(noise))).mean().backward()
    optimizer_g.step()
    generator[1].track_running_stats = True


def rated_again_unnoticed(actor, critic, actor_optimizer, critic_optimizer, states, rewards):
    actor_optimizer.zero_grad()
    critic_optimizer.zero_grad()
    actions = actor(states)
    rating = critic(torch.cat([states, actions.detach()], dim=1))
    critic[1].track_running_stats = False
    again = critic(torch.cat([states, actions], dim=1))
    critic[1].track_running_stats = True
    F.mse_loss(rating, rewards).backward()
    (-again.mean()).backward(inputs=list(actor.parameters()))
    critic_optimizer.step()
    actor_optimizer.step()


# retained_bytes


def by_heart(network, x):
    """What layers save, by their kinds."""
    total, is_saved, rows = 0, True, len(x)
    for layer in network:
        if isinstance(layer, nn.Linear):
            total, width = total + 4 * rows * layer.in_features * (not is_saved), layer.out_features
            continue
        total += 4 * rows * width + 8 * rows * isinstance(layer, nn.LayerNorm)
        is_saved = not isinstance(layer, nn.LayerNorm | nn.GELU)
    return total


def by_hooks(network, x):
    held = {}

    def pack(tensor):
        held[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        network(x).mean()
    for tensor in (x, *network.parameters()):
        held.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(tensor.untyped_storage().nbytes() for tensor in held.values())


def built(batch, inputs, layers, squared, itemsize):
    y = x = torch.zeros(batch, inputs, dtype={4: torch.float32, 8: torch.float64}[itemsize])
    for width, function in layers:
        y = nn.Linear(y.shape[1], width, dtype=x.dtype)(y)
        y = y if function == "none" else getattr(F, function, torch.abs)(y)
    return snapshot((y**2 if squared else y).mean(), inputs=[x]).held.activations


BACKWARD = "a backward pass ran through every function, with each input requiring grad"
FEW = "for each vector, computed at most as much as eight calls of f"
MOVED = "every function was called with each input changed slightly, and the others unchanged"
PIECES = "the head received all rows, and never more than one piece at once"
OUTSIDE = "runs of the part outside of backward"
OUTPUTS = "the graphs never hold the head's outputs of more than a few pieces"
APART = "the graphs never hold more than two chunks at once"
PIECES_APART = "the graphs never hold more than two pieces at once"
ALL_OF_IT = "between x and the loss's sum, no tensor is saved outside a checkpoint"
ONE_NODE = "apply is one node of the graph, with its own backward method"
UNEARNED = [
    ("silently_wrong.wrong_gradients", formulas, {BACKWARD, MOVED}),
    ("silently_wrong.wrong_gradients", formulas_and_calls_for_show, {BACKWARD, MOVED}),
    ("silently_wrong.wrong_gradients", formulas_and_one_number_of_each_moved, {MOVED}),
    ("hessian_vector.hessian_vectors", whole_hessian, {FEW}),
    ("hessian_vector.hessian_vectors", whole_hessian_at_once, {FEW}),
    ("custom_function.squash", NoFunction, {ONE_NODE}),
    ("custom_function.root", Unrolled, {ONE_NODE}),
    ("custom_function.squash", OneNodeOfTorchs, {ONE_NODE}),
    ("custom_function.root", OneNodeAfterUnrolling, {ONE_NODE}),
    ("strengths.gradients", no_checkpoint, {OUTSIDE, ALL_OF_IT}),
    ("strengths.gradients", run_first_for_show, {OUTSIDE, ALL_OF_IT}),
    ("strengths.gradients", only_the_part, {ALL_OF_IT}),
    ("strengths.gradients", saved_elsewhere, {OUTSIDE, ALL_OF_IT}),
    ("strengths.gradients", all_but_the_sine_elsewhere, {ALL_OF_IT}),
    ("strengths.gradients", others_keep_a_gradient, {".grad of 1.weight", ".grad of 1.bias"}),
    ("accumulated_gradients.piecewise_step", whole_batch, {PIECES, OUTPUTS}),
    ("accumulated_gradients.piecewise_step", whole_batch_by_hand, {PIECES, OUTPUTS}),
    ("accumulated_gradients.piecewise_step", one_sum, {OUTPUTS}),
    ("accumulated_gradients.piecewise_step", outputs_in_one_tensor, {OUTPUTS}),
    ("accumulated_gradients.piecewise_step", one_sum_saved_elsewhere, {OUTPUTS}),
    (
        "accumulated_gradients.piecewise_step",
        trunk_for_each_piece,
        {"runs of the trunk, in both steps"},
    ),
    ("outside_the_loop.train_sampled", one_backward, {APART}),
    ("outside_the_loop.train_sampled", one_product, {APART}),
    ("outside_the_loop.train_sampled", one_backward_of_einsum, {APART}),
    ("outside_the_loop.train_sampled", all_but_the_first_together, {APART}),
    ("outside_the_loop.train_sampled", one_backward_saved_elsewhere, {APART}),
    ("outside_the_loop.train_sampled", one_gradient_of_torch_func, {APART}),
    ("uneven_pieces.accumulate", copies_in_one_batch, {PIECES_APART}),
    ("uneven_pieces.accumulate", copies_in_one_sum, {PIECES_APART}),
    ("uneven_pieces.accumulate", copies_in_three_dimensions, {PIECES_APART}),
    ("uneven_pieces.accumulate", copies_by_einsum, {PIECES_APART}),
    ("uneven_pieces.accumulate", copies_saved_elsewhere, {PIECES_APART}),
    ("uneven_pieces.accumulate", copies_by_torch_func, {PIECES_APART}),
    ("kept_gradients.record", added_by_hand, {"backward() has added to the tensor in .grad"}),
    (
        "memory_hunt.train",
        validated_with_a_graph,
        {"the graphs hold no more than two passes at once"},
    ),
    (
        "memory_hunt.train",
        features_in_an_attribute,
        {"after training, the network keeps no output of its first layer alive"},
    ),
    (
        "cached_tensor.spectral_linear",
        SizeCached,
        {"in evaluation no gradient reaches the weight"},
    ),
    ("gan_step.gan_step", forward_again_unnoticed, {"runs of the generator, in all rounds"}),
    (
        "own_losses_only.one_rating",
        rated_again_unnoticed,
        {"ratings of the critic, in all updates"},
    ),
]
EARNED = [
    ("silently_wrong.wrong_gradients", by_torch_func),
    ("silently_wrong.wrong_gradients", by_jacobian),
    ("silently_wrong.wrong_gradients", by_gradcheck),
    ("silently_wrong.wrong_gradients", by_fast_gradcheck),
    ("hessian_vector.hessian_vectors", forward_over_reverse),
    ("hessian_vector.hessian_vectors", gradient_anew_for_each),
    ("hessian_vector.hessian_vectors", by_products_of_torchs_own),
    ("hessian_vector.hessian_vectors", all_in_one),
    ("custom_function.squash", WithSetUp),
    ("strengths.gradients", backward_to_the_weight_alone),
    ("strengths.gradients", own_checkpoint),
    ("accumulated_gradients.piecewise_step", trunk_once),
    ("accumulated_gradients.piecewise_step", one_sum_of_checkpoints),
    ("cached_tensor.spectral_linear", CachedWithoutAGraph),
    ("outside_the_loop.train_sampled", retained_but_for_the_last),
    ("uneven_pieces.accumulate", copied_one_by_one),
    ("uneven_pieces.accumulate", by_torch_func_piece_by_piece),
    ("retained_bytes.measured_bytes", by_hooks),
]


def named(case):
    name, answer, *_ = case
    return f"{name}-{answer.__name__}"


@pytest.mark.parametrize(("name", "answer", "found"), UNEARNED, ids=map(named, UNEARNED))
def test_right_values_are_not_enough(name, answer, found):
    for seed in SEEDS:
        assert wrong(name, answer, seed) == found


@pytest.mark.parametrize(("name", "answer"), EARNED, ids=map(named, EARNED))
def test_another_right_way_has_all_points(name, answer):
    for seed in SEEDS:
        assert not wrong(name, answer, seed)


def test_who_knows_layers_by_heart_has_not_measured_them():
    assert all(wrong("retained_bytes.measured_bytes", by_heart, seed) for seed in SEEDS)


@pytest.mark.parametrize("name", ["kept_gradients.kept_values", "outside_the_loop.train_sampled"])
def test_who_hands_in_often_has_no_luck(name):
    """Some draws of these questions once passed a misconception."""
    for misconception in misconceptions_of(name):
        for seed in range(1000, 1060):
            with suppress(RuntimeError):
                assert wrong(name, misconception.answer(question(name).answer), seed)


def test_what_is_to_be_predicted_cannot_be_built():
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        wrong("retained_bytes.saved_bytes", built, 100)
