"""Compiled code: as many graphs, breaks and recompilations as without a watch."""

import traceback
import warnings

import end_state  # noqa: F401
import torch
import torch._dynamo.utils as utils
from torch import nn

net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
x, y = torch.randn(6, 4), torch.randn(6, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.1)


def report(title):
    for key in ("stats", "frames", "graph_break", "unimplemented", "aot_autograd"):
        print(
            title, key, sorted((str(k).split("\n")[0], v) for k, v in utils.counters[key].items())
        )
    torch._dynamo.reset()
    utils.counters.clear()


def step(model):
    optimizer.zero_grad()
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())


def printing(graph, inputs):
    print(graph.code, [tuple(value.shape) for value in inputs])
    return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)


for whole in (True, False):
    model = torch.compile(net, backend=printing, fullgraph=whole)
    for _ in range(3):
        step(model)
    report(f"fullgraph={whole}")


@torch.compile(backend="aot_eager")
def with_breaks(t):
    t = t.sin()
    print("in between", t.shape)
    if t.sum() > 0:
        t = t * 2
    return t.cos()


w = torch.linspace(-1, 1, 5, requires_grad=True)
for size in (5, 4, 3):
    with_breaks(w[:size]).sum().backward()
report("with breaks")


@torch.compile(backend="aot_eager", fullgraph=True)
def failing(t):
    return t @ t.T @ torch.ones(9)


@torch.compile(backend="aot_eager", fullgraph=True)
def breaking(t):
    print("not in a graph")
    return t * 2


@torch.compile(backend="aot_eager")
def raising(t):
    t = t * 2
    raise KeyError("of the program")


for function in (failing, breaking, raising):
    try:
        function(torch.ones(2, 3))
    except Exception as error:
        # The text names temporary files and the frames of the compiler.
        print(type(error).__module__, type(error).__name__, str(error).splitlines()[:3])
        print(
            [f.name for f in traceback.extract_tb(error.__traceback__) if "torch" not in f.filename]
        )
report("failing")


@torch.compile(backend="aot_eager")
def optimize():
    optimizer.step()


for _ in range(2):
    net(x).sum().backward()
    optimize()
report("optimizer")


@torch.compile(backend="aot_eager", fullgraph=True)
def twice(t):
    return (t.exp() * w).sum()


loss = twice(w)
loss.backward()
with warnings.catch_warnings(record=True) as caught:
    try:
        loss.backward()
    except RuntimeError as error:
        print(str(error)[:60], [str(warning.message) for warning in caught])
print(torch.compiler.is_compiling(), torch._dynamo.is_compiling())
report("end")
