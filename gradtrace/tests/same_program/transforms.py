"""What reads a program as a graph, or drives it: torch.func, jit, fx, export."""

import io
import pickle

import end_state  # noqa: F401
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
x, y = torch.randn(6, 4), torch.randn(6, 1)
weights = dict(net.named_parameters())


def loss_of(weights, x, y):
    return ((functional_call(net, weights, (x[None],)) - y) ** 2).mean()


def scalar(x):
    return net(x).pow(2).sum()


for name, value in vmap(grad(loss_of), (None, 0, 0))(weights, x, y).items():
    print(name, value.sum().item().hex(), value.requires_grad)
for transform in (jacrev, jacfwd, hessian):
    print(transform.__name__, transform(scalar)(x[0]))
print(torch.func.linearize(scalar, x[0])[0])
print(vjp(scalar, x)[1](torch.ones(())), jvp(scalar, (x,), (y.expand(6, 4),)))
print(vmap(lambda t: t + torch.randn(3), randomness="different")(torch.zeros(2, 3)))
print(torch.autograd.functional.hessian(scalar, x[0]), torch.autograd.functional.vhp(scalar, x, x))
with torch.autograd.forward_ad.dual_level():
    dual = torch.autograd.forward_ad.make_dual(x, x)
    print(torch.autograd.forward_ad.unpack_dual(dual.sin().sum()))
functional = torch.func.functionalize(lambda t: t.clone().add_(1).view(-1)[:2].mul_(2))
print(make_fx(functional)(x).code, make_fx(grad(scalar))(x).code)

traced, scripted = torch.jit.trace(net, x), torch.jit.script(net)
print(traced(x), scripted.code)
scripted(x).sum().backward()


@torch.jit.script
def looped(x, n: int):
    total = torch.zeros_like(x)
    for i in range(n):
        if i % 2 == 0:
            total = total + x * i
    return total


for _ in range(4):
    looped(x.requires_grad_(), 3).sum().backward()
print(looped.graph_for(x.detach(), 3))


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        h = torch.nn.functional.relu(x @ torch.ones(4, 4)) * self.scale
        return torch.cond(h.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (h,))


class Leaf(nn.Module):
    def forward(self, x):
        return torch.where(x > 0, x, -x).reshape(-1, 2)[..., None].squeeze(-1) + x.size(0)


symbolic = torch.fx.symbolic_trace(nn.Sequential(net, Leaf()))
print(symbolic.graph, symbolic.code)
for node in symbolic.graph.nodes:
    print(node.op, node.target, sorted(key for key in node.meta if "stack" not in key))
print(pickle.loads(pickle.dumps(symbolic))(x.detach()).sum().item().hex())
symbolic(x.detach()).pow(2).mean().backward()
x = x.detach()
for module in (net, Branching()):
    for strict in (False, True):
        exported = torch.export.export(module, (x,), strict=strict)
        print(exported.graph, exported.graph_signature, exported.graph_module.code)
        for node in exported.graph.nodes:
            print(node.name, sorted(node.meta), (node.meta.get("stack_trace") or "").count("\n"))
        print(exported.module()(x).sum().item().hex())
file = io.BytesIO()
torch.save(net, file)
file.seek(0)
copied = torch.load(file, weights_only=False)
