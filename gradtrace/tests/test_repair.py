"""``gradtrace fix``: right repairs are proven, wrong ones rejected for what they do."""

import io
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradtrace.repair import proof_text
from gradtrace.repair.edits import Source
from gradtrace.repair.proof import Proof, _reference, prove
from gradtrace.repair.run.observations import ProgramRun, RunLimits, trains_alike
from gradtrace.repair.run.processes import Launcher

START = "import torch\nfrom torch import nn\n\ntorch.manual_seed(0)\n"

STATE = f"""{START}
cell = nn.GRUCell(2, 4)
h = torch.zeros(1, 4)
for step in range(4):
    h = cell(torch.randn(1, 2), h)  # one step
    loss = h.pow(2).mean()
    loss.backward()
"""
RETAINED = f"""{START}
cell = nn.GRUCell(2, 4)
opt, h = torch.optim.SGD(cell.parameters(), 0.1), torch.zeros(1, 4)
for step in range(5):
    h = cell(torch.randn(1, 2), h)
    opt.zero_grad()
    h.pow(2).mean().backward(retain_graph=True)
    opt.step()
"""
RUNNING_STATISTIC = f"""{START}
class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return x - self.mean

net = nn.Sequential(nn.Linear(2, 3), Centred(), nn.Tanh(), nn.Linear(3, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(4):
    loss = net(torch.randn(6, 2)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
LSTM = f"""{START}
def train(net, head):
    opt = torch.optim.Adam([*net.parameters(), *head.parameters()])
    state = None
    for step in range(3):
        y, state = net(torch.randn(3, 1, 2), state)
        loss = head(y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

train(nn.LSTM(2, 4, num_layers=2), nn.Linear(4, 1))
"""
CAUGHT = f"""{START}
net, x = nn.Linear(2, 1), torch.ones(3, 2)
features = net(x)

def train():
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(3):
        try:
            opt.zero_grad()
            features.pow(2).mean().backward()
            opt.step()
        except RuntimeError as error:
            print("failed:", error)

train()
"""
MODULE_STATE = f"""{START}
class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.reset()

    def reset(self):
        self.mem = torch.zeros(1, 2)

    def forward(self, x):
        self.mem = torch.tanh(self.fc(x) + self.mem)
        return self.mem

net = Memory()
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    loss = net(torch.randn(1, 2)).pow(2).sum() + net(torch.randn(1, 2)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
LAYERS = f"""{START}
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.h = nn.Linear(2, 2), None

    def clear(self):
        self.h = None

    def forward(self, x):
        self.h = torch.tanh(self.w(x) + (0 if self.h is None else self.h))
        return self.h

class Trace(nn.Module):
    def __init__(self):
        super().__init__()
        self.decay, self.trace = nn.Parameter(torch.ones(2)), torch.zeros(2)

    def clear(self):
        self.trace = torch.zeros(2)

    def forward(self, x):
        self.trace = self.decay * self.trace + x
        return self.trace

net = nn.Sequential(Cell(), Trace(), Cell())
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    loss = net(torch.randn(1, 2)).pow(2).sum() + net(torch.randn(1, 2)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
COPIED = f"""{START}
class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.out = nn.Linear(2, 2), nn.Linear(2, 1)

    def forward(self, x):
        self.weights = torch.sigmoid(self.gate(x))
        self.penalty = self.weights.mean()
        return self.out(self.weights * x)

net = Gated()
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    y = net(torch.randn(4, 2))
    # here
    loss = y.pow(2).mean() + net.penalty
    opt.zero_grad()
    loss.backward()
    opt.step()
    # there
"""
COPY = "kept = __import__('copy').deepcopy(net)"
TWO_PASSES = f"""{START}
net, x = nn.Linear(2, 3), torch.randn(4, 2)
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    loss, count = torch.zeros(()), 0
    for task in range(3):
        loss = loss + net(x)[:, task].pow(2).mean()
    loss.backward()
    with torch.no_grad():
        for p in net.parameters():
            p += 0.1 * p.grad
    opt.zero_grad()
    for task in range(3):
        loss = loss + net(x)[:, task].pow(2).mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
GRADIENT_OF_SLICE = f"""{START}
net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    x = torch.randn(4, 2, requires_grad=True)
    u = net(x)
    u_x = torch.autograd.grad(u.sum(), x[:, :1], create_graph=True)[0]
    opt.zero_grad()
    (u_x + u).pow(2).mean().backward()
    opt.step()
"""
CACHED = f"""{START}
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(3))
        self.scale = self.log_scale.exp()
        self.bias = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return x * self.scale + self.bias

net = Layer()
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    loss = net(torch.randn(5, 3)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
TWO_HEADS = f"""{START}
enc, a, b = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 1)
opt = torch.optim.SGD([*enc.parameters(), *a.parameters(), *b.parameters()], 0.1)
for step in range(3):
    z = torch.tanh(enc(torch.randn(5, 3)))
    opt.zero_grad()
    loss_a = a(z).pow(2).mean()
    loss_a.backward()
    loss_b = (b(z) - 1).pow(2).mean()
    loss_b.backward()
    opt.step()
"""
GAN = f"""{START}
G = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))
D = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
opt_g, opt_d = torch.optim.SGD(G.parameters(), 0.1), torch.optim.SGD(D.parameters(), 0.1)
for step in range(3):
    real = torch.randn(8, 3)
    noise = torch.randn(8, 2)
    fake = G(noise)
    score = D(fake)
    d_loss = nn.functional.softplus(score).mean() + nn.functional.softplus(-D(real)).mean()
    g_loss = nn.functional.softplus(-score).mean()
    opt_d.zero_grad()
    d_loss.backward(retain_graph=True)
    opt_d.step()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
"""
GAN_AFTER = GAN.replace(  # G learns from D as it is after its step
    "    g_loss.backward()",
    "    g_loss = nn.functional.softplus(-D(fake)).mean()\n    g_loss.backward()",
)
GAN_BEFORE = (
    GAN.replace("    opt_d.step()\n", "")
    .replace(  # and from D as it was before it
        "    opt_g.zero_grad()\n    g_loss.backward()\n",
        "    g_loss.backward(inputs=list(G.parameters()))\n    opt_d.step()\n",
    )
    .replace("    opt_d.zero_grad()", "    opt_d.zero_grad(); opt_g.zero_grad()")
)
GAN_BEFORE = GAN_BEFORE.replace("d_loss.backward(", "d_loss.backward(inputs=list(D.parameters()), ")
SHARED_FEATURES = f"""{START}
feat, clf, dom = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 1)
opt_clf = torch.optim.SGD([*feat.parameters(), *clf.parameters()], 0.1)
opt_dom = torch.optim.SGD(dom.parameters(), 0.1)
for step in range(3):
    z = torch.tanh(feat(torch.randn(5, 3)))
    clf_loss, dom_loss = clf(z).pow(2).mean(), (dom(z) - 1).pow(2).mean()
    opt_clf.zero_grad()
    clf_loss.backward()
    opt_dom.zero_grad()
    dom_loss.backward()
    opt_clf.step()
    opt_dom.step()
"""
ACCUMULATED_GAN = f"""{START}
G, D, count = nn.Linear(2, 3), nn.Linear(3, 1), 0
opt_g, opt_d = (torch.optim.SGD(net.parameters(), 0.1) for net in (G, D))
for step in range(6):
    g_loss = -D(G(torch.randn(4, 2))).tanh().mean() / 2
    g_loss.backward()
    if step % 2:
        opt_g.step()
        opt_g.zero_grad()
    d_loss = D(G(torch.randn(4, 2)).detach()).tanh().mean() / 2
    d_loss.backward()
    if step % 2:
        opt_d.step()
        opt_d.zero_grad()
        count += 1
"""
SAMPLES = f"""{START}
scale = nn.Parameter(torch.rand(3))
opt = torch.optim.SGD([scale], 0.1)

def error(k, x):
    out = torch.zeros(2)
    for i in range(2):
        out[i] = k * scale[i] * x[i]
    return out.pow(2).sum()

for step in range(3):
    k, x = torch.tensor([0, 2, 1]), torch.randn(3, 150)
    slopes = torch.func.vmap(torch.func.grad(error, argnums=1))(k, x)
    loss = slopes.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
INNER_GRADIENT = f"""{START}
def slope(x, w, h):
    h = (x * w).sin()
    return torch.autograd.grad(h.sum(), x, create_graph=True, materialize_grads=True)[0]

class Slope(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return slope(x, w, x * w)

    @staticmethod
    def backward(ctx, gradient):
        x, w = (tensor.detach().requires_grad_() for tensor in ctx.saved_tensors)
        with torch.enable_grad():
            y = slope(x, w, x * w)
        return torch.autograd.grad(y, (x, w), gradient)

w = nn.Parameter(torch.ones(2))
opt = torch.optim.SGD([w], 0.1)
for step in range(3):
    loss = Slope.apply(torch.randn(4, 2), w).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
SKIPPED_UPDATE = f"""{START}
net = nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for step in range(4):
    loss = net(torch.randn(3, 2)).pow(2).mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    if step != 1:
        scaler.step(opt)
        scaler.update()
"""
BOTH_CLEARED = f"""{START}
actor, critic = nn.Linear(3, 2), nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1))
a_opt = torch.optim.SGD(actor.parameters(), 0.1)
c_opt = torch.optim.SGD(critic.parameters(), 0.1)
for step in range(3):
    s = torch.randn(8, 3)
    q = critic(torch.cat([s, actor(s)], 1))
    critic_loss, actor_loss = (q - 1).pow(2).mean(), -q.mean()
    a_opt.zero_grad()
    c_opt.zero_grad()
    critic_loss.backward()
    actor_loss.backward()
    a_opt.step()
    c_opt.step()
"""
TIED = f"""{START}
emb = nn.Embedding(3, 5, max_norm=1.0)
w = torch.randn(7, 5, requires_grad=True)
a = emb.weight @ w.t()
b = emb(torch.tensor([1, 2])) @ w.t()
(a.unsqueeze(0) + b.unsqueeze(1)).sigmoid().mean().backward()
"""
IN_PLACE = f"""{START}
net = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid())
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    y = net(torch.randn(5, 3))
    y /= y.sum(1, keepdim=True)  # to one
    loss = (y * torch.arange(4.0)).sum()
    opt.zero_grad(); loss.backward(); opt.step()
"""
WEIGHTS_MOVED = f"""{START}
model = nn.Linear(3, 1)
x = torch.randn(4, 3)
out = model(x)
out.pow(2).mean().backward()
with torch.no_grad():
    for p in model.parameters():
        p.add_(0.1 * p.grad)
        p.grad = None
out.pow(2).mean().backward()
"""
RATIO = f"""{START}
policy = nn.Linear(3, 2)
s, a = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
old = torch.log_softmax(policy(s), 1)[range(4), a]
new = torch.log_softmax(policy(s), 1)[range(4), a]
ratio = (new - old).exp().detach()
(ratio * torch.randn(4)).mean().backward()
"""
TWO_ERRORS = f"""{START}
encoder, head = nn.Linear(3, 3), nn.Linear(3, 1)
features = encoder(torch.ones(2, 3)).tanh()
prompt = features[:1] * 2
prompt.requires_grad_()
opt = torch.optim.SGD([prompt], 0.1)
for step in range(4):
    loss = head(torch.cat([prompt, features[1:]])).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
OWN_BACKWARD = f"""{START}
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            (g,) = torch.autograd.grad(y**3, y, grad.detach())
        return g

x = torch.tensor(2.0, requires_grad=True)
(g,) = torch.autograd.grad(Cube.apply(x), x, create_graph=True)
g.backward()
"""
RUNNING_TOTAL = f"""{START}
net = nn.Linear(3, 1)
total = 0.0
for step in range(100):
    loss = net(torch.randn(2, 3)).pow(2).mean()
    total = total + loss
print(float(total))
"""
UNROLLED_TOTAL = f"""{START}
net = nn.Linear(4, 1)
total = net(torch.randn(2, 4)).pow(2).mean()
total.backward()
total = total + net(torch.randn(2, 4)).pow(2).mean()
total.backward()
"""
SWITCHED_OFF = f"""{START}
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
for parameter in net.parameters():
    parameter.requires_grad = False  # of the last layer, too
opt = torch.optim.SGD(net[2].parameters(), 0.1)
for x in torch.randn(3, 5, 4):
    loss = net(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
ASKED_OF_FROZEN = f"""{START}
net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
net[0].requires_grad_(False)
opt = torch.optim.SGD(net[2].parameters(), 0.1)
for x in torch.randn(3, 5, 4):
    loss = net(x).pow(2).mean()
    sizes = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
HEAD_REPLACED = f"""{START}
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 10))
opt = torch.optim.SGD(net.parameters(), 0.1)
net[2] = nn.Linear(8, 2)
for x in torch.randn(12, 5, 4):
    loss = net(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
PRUNED = f"""{START}
def train(net, opt):
    for x in torch.randn(6, 5, 4):
        opt.zero_grad()
        net(x).pow(2).mean().backward()
        opt.step()

net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
train(net, opt)
net[0], net[2] = nn.Linear(4, 3), nn.Linear(3, 2)
train(net, opt)
"""
CLEARED_BEFORE_STEP = f"""{START}
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for x in torch.randn(4, 5, 4):
    loss = net(x).pow(2).mean()
    scaler.scale(loss).backward()
    opt.zero_grad()
    scaler.step(opt)
    scaler.update()
"""
CLEARED_WITHOUT_SCALER = f"""{START}
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), 0.1)
for step, x in enumerate(torch.randn(12, 5, 4)):
    loss = net(x).pow(2).mean()
    loss.backward()
    if step % 2:
        opt.zero_grad()
        opt.step()
"""
NEVER_CLEARED = CLEARED_WITHOUT_SCALER.replace("opt.zero_grad()", "steps = step")
LEAF_TOO_LATE = f"""{START}
net = nn.Linear(4, 2).requires_grad_(False)
x = torch.randn(5, 4)
for step in range(4):
    y = net(x)
    x = x.detach().requires_grad_()
    (g,) = torch.autograd.grad(y.pow(2).sum().requires_grad_(), x)
    x = (x - 0.1 * g).detach()
"""
GRADIENT_CHANGED = f"""{START}
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        grad.mul_(2).mul_(x)
        return grad

net = nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), 0.1)
for x in torch.randn(3, 5, 4):
    y = net(x)
    loss = (Square.apply(y) + y).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
KEPT_GRADIENT_CHANGED = f"""{START}
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(2 * x)
        return x**2

    @staticmethod
    def backward(ctx, grad):
        (kept,) = ctx.saved_tensors
        kept *= grad
        return kept

first, second = nn.Linear(4, 4), nn.Linear(4, 1)
opts = [torch.optim.SGD(net.parameters(), 0.1) for net in (first, second)]
for x in torch.randn(3, 5, 4):
    loss = Square.apply(second(first(x).tanh())).mean()
    for net, opt in zip((first, second), opts):
        opt.zero_grad()
        loss.backward(retain_graph=True, inputs=list(net.parameters()))
    for opt in opts:
        opt.step()
"""
TERM_BY_ITEM = f"""{START}
mean, spread = nn.Linear(4, 1), nn.Linear(4, 1)
opt = torch.optim.SGD([*mean.parameters(), *spread.parameters()], 0.1)
for x in torch.randn(12, 5, 4):
    term = spread(x).pow(2).mean().item()
    loss = mean(x).pow(2).mean() + term
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
UPDATED_BY_HAND = f"""{START}
w, b = torch.randn(3, requires_grad=True), torch.zeros(1, requires_grad=True)
x = torch.randn(20, 3)
for epoch in range(5):
    loss = (x @ w + b - x.sum(1)).pow(2).mean()
    loss.backward()
    w -= 0.1 * w.grad
    b -= 0.1 * b.grad
    w.grad.zero_()
    b.grad.zero_()
"""
FROM_INFERENCE_MODE = f"""{START}
teacher, net = nn.Linear(4, 3), nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), 0.1)

@torch.inference_mode()
def embed(x):
    return teacher(x)

for x in torch.randn(4, 5, 4):
    loss = net(embed(x)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
TO_NUMPY = f"""{START}
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
history = []
for x in torch.randn(4, 8, 3):
    loss = net(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    history.append(loss.numpy())
"""
WRITTEN_INTO_PARAMETER = f"""{START}
encoder, net = nn.Linear(4, 3), nn.Linear(3, 1)
table = nn.Parameter(torch.randn(5, 3))
opt = torch.optim.SGD([table, *net.parameters(), *encoder.parameters()], 0.1)
for x in torch.randn(4, 6, 4):
    context = encoder(x).mean(0)
    table[0] = context
    loss = net(table[:3]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
PART_OF_INPUT = f"""{START}
net = nn.Linear(2, 4)
opt = torch.optim.SGD(net.parameters(), 0.1)
for x in torch.randn(3, 6, 4):
    first, second = x[:, :2], x[:, 2:]
    scale, shift = net(first.clone()).chunk(2, 1)
    scale.tanh_()
    second *= scale.exp()
    second += shift
    loss = (x.pow(2).sum(1) - scale.sum(1) + 0 * second.sum(1)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
WRITTEN_IN_A_HELPER = f"""{START}
encoder, net = nn.Linear(4, 3), nn.Linear(3, 1)
table = nn.Parameter(torch.randn(5, 3))
opt = torch.optim.SGD([table, *net.parameters(), *encoder.parameters()], 0.1)

def memory_loss(table, x):
    table[0] = encoder(x).mean(0)
    return net(table[:3]).pow(2).mean()

for x in torch.randn(4, 6, 4):
    loss = memory_loss(table, x) + encoder(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
UPDATED_WITH_DECAY = f"""{START}
w, x = torch.randn(3, requires_grad=True), torch.randn(20, 3)
for epoch in range(5):
    loss = (x @ w - x.sum(1)).pow(2).mean()
    loss.backward()
    w -= 0.1 * (w.grad + 0.01 * w)
    w.grad = None
"""
COUPLING = f"""{START}
mix, net = nn.Linear(4, 4), nn.Linear(2, 4)
nn.init.zeros_(net.weight)
nn.init.zeros_(net.bias)
opt = torch.optim.SGD([*mix.parameters(), *net.parameters()], 0.1)
for x in torch.randn(4, 8, 4):
    a, b = mix(x).chunk(2, 1)
    s, t = net(a).chunk(2, 1)
    b.mul_(s.exp())
    loss = (torch.cat([a, b + t], 1).pow(2).sum(1) / 2 - s.sum(1)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
NUMPY_IN_CLOSURE = f"""{START}
w, x, y = nn.Parameter(torch.randn(3)), torch.randn(20, 3), torch.randn(20)
opt = torch.optim.LBFGS([w], lr=0.1, max_iter=4)

def closure():
    opt.zero_grad()
    penalty = float((w.numpy() ** 2).sum())
    loss = (x @ w - y).pow(2).mean() + 0.1 * penalty
    loss.backward()
    return loss

for _ in range(3):
    opt.step(closure)
"""
HOOK_ON_FROZEN = f"""{START}
net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
net[0].weight.requires_grad = False
for p in net.parameters():
    p.register_hook(lambda gradient: gradient / 2)
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    loss = net(torch.randn(4, 2)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
RESULT_TRAINED = f"""{START}
w = torch.randn(3, requires_grad=True) * 0.1
opt = torch.optim.SGD([w], 0.1)
for step in range(3):
    loss = (w * torch.randn(3)).sum().pow(2)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
GRADIENT_OF_RESULT = f"""{START}
net = nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)

def attack(x):
    x = x.clone().requires_grad_()
    net(x).pow(2).mean().backward()
    x = x + 0.1 * x.grad.sign()
    return x

for step in range(3):
    x = attack(torch.randn(4, 2))
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    print(x.grad.norm())
    opt.step()
"""
IN_FORWARD = f"""{START}
class Nearest(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w):
        x = torch.zeros(2, requires_grad=True)
        (gradient,) = torch.autograd.grad((x - w).pow(2).sum(), x)
        return w - gradient

    @staticmethod
    def backward(ctx, gradient):
        return 3 * gradient

w = torch.ones(2, requires_grad=True)
opt = torch.optim.SGD([w], 0.1)
for step in range(3):
    opt.zero_grad()
    Nearest.apply(w).sum().backward()
    opt.step()
"""
LIST_TO_NUMPY = f"""{START}
import numpy as np
net = nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    losses = [net(torch.randn(4, 2)).pow(2).mean() for _ in range(2)]
    print(np.mean(losses))
    opt.zero_grad()
    sum(losses).backward()
    opt.step()
"""
RANDOM = STATE.replace("torch.manual_seed(0)", "torch.seed()")


@pytest.fixture(scope="module")
def launcher():
    """One process that has imported torch, for all programs."""
    with Launcher([]) as launcher:
        yield launcher


@pytest.fixture
def proof(launcher, tmp_path):
    def proof(text: str, **files: str) -> Proof:
        path = tmp_path / "program.py"
        path.write_text(text, encoding="utf-8")
        launcher.program = [str(path)]
        return prove(launcher, RunLimits(seconds=60))

    return proof


def kinds(proof: Proof) -> list[str]:
    return [one.candidate.repair.name for one in proof.accepted]


def reason(proof: Proof, title: str) -> str:
    """Why the first candidate whose title has this in it was rejected."""
    found = next(one for one in proof.judgements if title in one.candidate.title)
    assert found.status in ("rejected", "unproven"), (found.status, found.evidence)
    return found.reasons[0]


@pytest.mark.parametrize(
    ("program", "kind", "line"),
    [
        (STATE, "detach_state", "+    h = h.detach()"),
        (LSTM, "detach_state", "+        state = tuple(tensor.detach() for tensor in state)"),
        (RETAINED, "detach_state", "+    h = h.detach()"),
        (CAUGHT, "compute_again", "+        features = net(x)"),
        (
            COPIED.replace("# there", COPY),
            "detach_state",
            "+    net.weights = net.weights.detach()",
        ),
        (TWO_PASSES, "new_sum", "+    loss = torch.zeros(())"),
        (
            GRADIENT_OF_SLICE,
            "part",
            "+    u_x = torch.autograd.grad(u.sum(), x, create_graph=True)[0][:, :1]",
        ),
        (CACHED, "compute_again", "+        self.scale = self.log_scale.exp()"),
        (TWO_HEADS, "add_losses", "+    (loss_a + loss_b).backward()"),
        (IN_PLACE, "out_of_place", "+    y = y / y.sum(1, keepdim=True)  # to one"),
        (WEIGHTS_MOVED, "forward_again", "+out = model(x)"),
        (RUNNING_TOTAL, "number", "+    total = total + loss.item()"),
        (
            SWITCHED_OFF,
            "switch_on",
            "-    parameter.requires_grad = False  # of the last layer, too",
        ),
        (
            ASKED_OF_FROZEN,
            "ask_less",
            "+    sizes = torch.autograd.grad(loss, list(p for p in net.parameters() if"
            " p.requires_grad), retain_graph=True)",
        ),
        (HEAD_REPLACED, "optimizer_later", "-net[2] = nn.Linear(8, 2)"),
        (
            PRUNED,
            "optimizer_again",
            "+opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)",
        ),
        (CLEARED_BEFORE_STEP, "clear_gradients", "+    opt.zero_grad()"),
        (
            CLEARED_WITHOUT_SCALER,
            "clear_gradients",
            "+        opt.step()",
        ),
        (LEAF_TOO_LATE, "require_gradient", "+    x = x.detach().requires_grad_()"),
        (UPDATED_BY_HAND, "no_grad", "+        b -= 0.1 * b.grad"),
        (FROM_INFERENCE_MODE, "switch", "+@torch.no_grad()"),
        (TO_NUMPY, "number", "+    history.append(loss.detach().numpy())"),
        (UPDATED_WITH_DECAY, "no_grad", "+        w -= 0.1 * (w.grad + 0.01 * w)"),
        (COUPLING, "out_of_place", "+    b = b.mul(s.exp())"),
        (GRADIENT_CHANGED, "out_of_place", "+        grad = grad.mul(2).mul(x)"),
        (KEPT_GRADIENT_CHANGED, "out_of_place", "+        kept = kept * grad"),
        (LIST_TO_NUMPY, "number", "+    print(np.mean([x.detach() for x in losses]))"),
        (HOOK_ON_FROZEN, "ask_less", "+    if p.requires_grad:"),
        (RESULT_TRAINED, "leaf", "+w = w.detach().requires_grad_()"),
        (GRADIENT_OF_RESULT, "retain_gradient", "+    x.retain_grad()"),
        (IN_FORWARD, "narrow_region", "+        with torch.enable_grad():"),
    ],
)
def test_one_repair_is_proven(proof, program, kind, line):
    found = proof(program)
    assert proof_text.outcome(found) == "proven", proof_text.text(found)
    assert kinds(found) == [kind]
    assert line in proof_text.diff(found.accepted[0].candidate).splitlines()


def test_whether_a_statistic_is_a_constant_is_asked(proof):
    """Detached after the call, a buffer trains the loss that updates it; stored so, it does not."""
    found = proof(RUNNING_STATISTIC)
    assert kinds(found) == ["detach_state", "detach"]
    assert found.accepted[1].question == "is the loss to use net.1.mean as a constant?"
    assert "+        self.mean = (0.9 * self.mean + 0.1 * x.mean(0)).detach()" in (
        proof_text.diff(found.accepted[1].candidate).splitlines()
    )


def test_retain_graph_is_rejected_where_the_graph_grows(proof):
    found = reason(proof(STATE), "retain_graph=True")
    assert "grows with each iteration" in found


RUNNING_MEAN = f"""{START}
net = nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
mean = torch.zeros(())
for step in range(3):
    loss = net(torch.randn(4, 2)).pow(2).mean()
    mean = 0.9 * mean + 0.1 * loss
    opt.zero_grad()
    mean.backward()
    opt.step()
"""


def test_whether_a_program_is_to_train_on_a_running_mean_is_a_question(proof):
    """Detached, the mean gives each step a tenth of the loss's gradient, as its first step did."""
    found = proof(RUNNING_MEAN)
    assert proof_text.outcome(found) == "question"
    assert kinds(found) == ["detach_state"]


MAML = f"""{START}
def adapted(x):
    weights = list(net.parameters())
    features = torch.tanh(shared)
    for _ in range(5):
        loss = nn.functional.linear(features * x, *weights).pow(2).mean()
        gradients = torch.autograd.grad(loss, weights, create_graph=True)
        weights = [w - 0.1 * g for w, g in zip(weights, gradients)]
    return nn.functional.linear(features * x, *weights).pow(2).mean()

net = nn.Linear(3, 1)
scale = nn.Parameter(torch.ones(3))
opt = torch.optim.SGD([scale, *net.parameters()], 0.1)
for step in range(2):
    opt.zero_grad()
    shared = scale.exp()
    for task in range(2):
        adapted(torch.randn(4, 3)).backward()
    opt.step()
"""


def test_an_inner_loop_of_gradients_is_no_reason_to_reject_a_repair(proof):
    """Each of its calls has a larger graph than the one before, until the weights are updated."""
    found = proof(MAML)
    assert not any("grows" in reason for j in found.judgements for reason in j.reasons)
    titles = [one.candidate.title for one in (*found.accepted, *found.equivalent)]
    assert any(title.startswith("retain_graph=True") for title in titles), titles


def test_retain_graph_is_rejected_where_the_weights_have_moved(proof):
    found = proof(WEIGHTS_MOVED)
    assert "not that of the present weights" in reason(found, "retain_graph=True at line 9")


PENALTY = f"""{START}
D = nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1))
opt = torch.optim.SGD(D.parameters(), 0.1)
for step in range(3):
    real = torch.randn(6, 4, requires_grad=True)
    out = D(real)
    (g,) = torch.autograd.grad(out.sum(), real)
    loss = 5 * g.pow(2).sum(1).mean() - out.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_retain_graph_is_rejected_where_the_loss_contains_the_gradient(proof):
    found = proof(PENALTY)
    assert kinds(found) == ["create_graph"], proof_text.text(found)
    assert "computed without create_graph=True" in reason(found, "retain_graph=True at line 11")


PART_AND_TOTAL = f"""{START}
net = nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 6))
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    x = torch.randn(8, 6)
    out = net(x)
    fit = (out - x).pow(2).mean()
    total = fit + 0.1 * out.abs().mean()
    opt.zero_grad()
    fit.backward()
    total.backward()
    opt.step()
"""


def test_a_term_of_a_loss_is_not_counted_twice(proof):
    found = proof(PART_AND_TOTAL)
    assert kinds(found) == ["total_alone"], proof_text.text(found)
    assert "total alone" in found.original.diagnosis["fix"]
    for title in ("(fit + total).backward()", "retain_graph=True", "out = net(x)"):
        assert "its gradient counts twice" in reason(found, title)


STEP_BETWEEN = f"""{START}
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    out = net(torch.randn(8, 4))
    high, low = (out - 1).pow(2).mean(), out.abs().mean()
    high.backward(retain_graph=True)
    opt.step()
    low.backward()
    opt.step()
    opt.zero_grad()
"""


def test_a_step_is_not_made_twice_from_the_same_gradients(proof):
    moved = [
        one for one in proof(STEP_BETWEEN).accepted if one.candidate.repair.name == "step_later"
    ]
    diff = proof_text.diff(moved[0].candidate).splitlines()
    assert "-    opt.step()" in diff
    assert "+    opt.step()" not in diff


def test_detach_is_rejected_where_it_ends_training(proof):
    found = proof(CACHED)
    assert reason(found, "store without a graph") == "runs, but net.log_scale is no longer trained"


def test_detach_is_rejected_where_it_cuts_a_part(proof):
    found = reason(proof(TWO_HEADS), "detach z at line")
    assert "enc.weight, enc.bias are no longer trained" in found


def test_gan(proof, launcher):
    """A later step leaks one loss into the other's network; what holds has a twin's gradients."""
    found = proof(GAN)
    leak = reason(found, "opt_d.step() behind g_loss.backward()")
    assert "the gradient of g_loss leaks into opt_d: the gradient of D.0.weight is" in leak
    path, limits = launcher.program[0], RunLimits(found.original.failing_call)
    twins = [launcher.run({path: text}, limits) for text in (GAN_AFTER, GAN_BEFORE)]
    assert [twin.status for twin in twins] == ["ended", "ended"]
    assert found.accepted
    for one in found.accepted:
        assert any(trains_alike(one.run, twin) for twin in twins), one.candidate.title


def test_a_leak_ends_where_gradients_accumulate_over_several_iterations(proof, launcher):
    """Gradients that the next step needs are not cleared; what holds has a twin's gradients."""
    found = proof(ACCUMULATED_GAN)
    assert kinds(found) == ["own_inputs"]
    cleared = reason(found, "opt_d.zero_grad() before line")
    assert cleared == "runs, but the gradient of d_loss is cleared before a step uses it"
    text = ACCUMULATED_GAN.replace("g_loss =", "D.requires_grad_(False); g_loss =")
    text = text.replace("g_loss.backward()", "g_loss.backward(); D.requires_grad_(True)")
    twin = launcher.run({launcher.program[0]: text}, RunLimits(found.original.failing_call))
    assert trains_alike(found.accepted[0].run, twin)


def test_what_vmap_writes_into_differs_between_samples(proof, launcher):
    """An integer argument of each sample gives the tensor its batch, but not its dtype."""
    found = proof(SAMPLES)
    assert kinds(found) == ["batched"]
    assert "k.new_zeros(2, dtype=torch.get_default_dtype())" in found.accepted[0].candidate.title
    assert {"batched"} <= {one.candidate.repair.name for one in found.equivalent}
    text = SAMPLES.replace("out[i] = k * scale[i] * x[i]", "pass")
    text = text.replace("out.pow", "torch.stack([k * scale[i] * x[i] for i in range(2)]).pow")
    twin = launcher.run({launcher.program[0]: text}, RunLimits(found.original.failing_call))
    assert trains_alike(found.accepted[0].run, twin)


def test_what_the_samples_of_vmap_share_is_not_divided_between_them(proof):
    shared = SAMPLES.replace("    out = torch.zeros(2)\n", "").replace(
        "def error", "out = torch.zeros(2)\n\ndef error"
    )
    assert not proof(shared).accepted


def test_a_gradient_inside_a_custom_forward_is_recorded_from_its_input_on(proof, launcher):
    found = proof(INNER_GRADIENT)
    assert found.accepted[0].candidate.title.startswith("x = x.clone().requires_grad_(); torch.en")
    text = INNER_GRADIENT.replace("return slope(x, w, x * w)", "return w * (x * w).cos()")
    twin = launcher.run({launcher.program[0]: text}, RunLimits(found.original.failing_call))
    assert trains_alike(found.accepted[0].run, twin)


def test_recording_does_not_connect_a_detached_input(proof):
    found = proof(INNER_GRADIENT.replace("h = (x * w).sin()", "h = (x.detach() * w).sin()"))
    assert not found.accepted
    assert "not have been used in the graph" in reason(found, "x = x.clone()")


@pytest.mark.parametrize("way", ["if", "continue"])
def test_a_scaler_is_updated_where_its_step_is_skipped(proof, launcher, way):
    """The step stays skipped; both programs have the steps of the twin."""
    skipped = "if step != 1:\n        scaler.step(opt)\n        scaler.update()"
    jump = "if step == 1:\n        continue\n    scaler.step(opt)\n    scaler.update()"
    found = proof(SKIPPED_UPDATE if way == "if" else SKIPPED_UPDATE.replace(skipped, jump))
    assert kinds(found) == ["update_scaler"]
    text = SKIPPED_UPDATE.replace(skipped, "if step != 1: scaler.step(opt)\n    scaler.update()")
    twin = launcher.run({launcher.program[0]: text}, RunLimits(found.original.failing_call))
    assert len(twin.steps) == 3 and trains_alike(found.accepted[0].run, twin)


def test_a_scaler_is_not_updated_between_gradients_that_add_up(proof):
    """Gradients that are still to be added to would be divided by the scale twice."""
    text = SKIPPED_UPDATE.replace("    opt.zero_grad()\n", "")
    assert not proof(text.replace(".update()", ".update()\n        opt.zero_grad()")).accepted


def test_gradients_that_add_up_between_two_steps_are_cleared_after_each(proof):
    found = proof(NEVER_CLEARED)
    assert [one.candidate.title for one in found.accepted] == ["opt.zero_grad() after line 13"]
    cleared = reason(found, "opt.zero_grad() before line")
    assert cleared == "runs, but the gradient of loss is cleared before a step uses it"


def test_losses_of_two_optimizers_are_not_added(proof):
    """What the shared features are to learn from is a question, and it is asked."""
    found = proof(SHARED_FEATURES)
    assert proof_text.outcome(found) == "question"
    assert kinds(found)[0] in ("own_inputs", "detach_shared")
    asked = {one.question for one in found.accepted}
    assert "should dom_loss also train the parameters of opt_clf?" in asked
    assert found.accepted[0].question is None


def test_losses_are_told_apart_by_their_names(proof):
    found = proof(BOTH_CLEARED)
    assert kinds(found) == ["own_inputs"]
    assert "leaks into" in reason(found, "(critic_loss + actor_loss).backward()")
    assert "leaks into" in reason(found, "retain_graph=True")


def test_detach_is_rejected_where_another_path_hides_it(proof):
    """Both tensors still get a gradient; but a part of it is gone."""
    found = proof(TIED)
    assert kinds(found) == ["clone_used"]


def test_a_stored_term_is_not_detached_before_the_loss_uses_it(proof):
    """The copy refuses it there too; but without its graph, it would train nothing."""
    found = proof(COPIED.replace("# here", COPY))
    assert found.accepted == []
    expected = "runs, but changes the gradient of backward call 1"
    assert reason(found, "net.penalty.detach() before the copy") == expected


def test_the_states_of_all_layers_begin_anew_together(proof):
    found = proof(LAYERS)
    assert proof_text.outcome(found) == "question"
    assert kinds(found) == ["detach_state", "reset_state"]
    assert "net[0].clear(); net[1].clear(); net[2].clear()" in found.accepted[1].candidate.title


def test_a_state_goes_on_or_begins_anew(proof):
    found = proof(MODULE_STATE)
    assert proof_text.outcome(found) == "question"
    assert kinds(found) == ["detach_state", "reset_state"]
    text = proof_text.text(found)
    assert "2 repairs hold; which is right depends on the program's intention" in text
    question = "is the loss of backward call 2 to change, because each iteration begins with a new"
    assert f"right if the answer is yes: {question} state?" in text


def test_which_side_is_the_old_one_is_asked(proof):
    found = proof(RATIO)
    assert [one.question for one in found.accepted] == [
        "is old what is not to be trained?",
        "is new what is not to be trained?",
    ]
    assert reason(found, "without .detach()") == "runs, but all gradients are zero"


def test_whether_what_is_off_is_to_be_trained_is_asked(proof):
    """An optimizer that holds all of it does not tell; one that holds a part does."""
    found = proof(SWITCHED_OFF.replace("SGD(net[2].", "SGD(net."))
    assert proof_text.outcome(found) == "question"
    assert found.accepted[0].question == "are net.0.weight, net.0.bias and 2 more to be trained?"


def test_whether_a_cut_is_meant_is_asked(proof):
    found = proof(TERM_BY_ITEM)
    assert kinds(found) == ["keep_gradient"]
    assert found.accepted[0].question == "is spread.weight and spread.bias to be trained?"


def test_the_second_of_two_errors_is_repaired_with_the_first(proof):
    result = proof(TWO_ERRORS)
    assert proof_text.outcome(result) == "proven", proof_text.text(result)
    (repair,) = result.accepted
    assert repair.candidate.title.startswith("prompt = prompt.detach().requires_grad_() after line")
    (text,) = repair.candidate.edits.values()
    assert "prompt.detach()" in text and text.count("features") > TWO_ERRORS.count("features")
    errors = {j.run.error_line for j in result.judgements if not j.candidate.parts}
    assert any("a second time" in line for line in errors)  # of the first edit alone


def test_a_pair_of_edits_holds_only_if_each_of_them_does(proof):
    """A pair needs the answers to the questions of both edits."""
    result = proof(TWO_ERRORS.replace("prompt.requires_grad_()\n", ""))
    assert [repair.question for repair in result.accepted] == [
        "is prompt to be trained, not what it is made from?"
    ]


def test_a_backward_of_the_programs_own_is_not_proven_by_running_it(proof):
    found = proof(OWN_BACKWARD)
    assert proof_text.outcome(found) == "question", proof_text.text(found)
    assert "gradgradcheck" in found.accepted[0].question


def test_a_gradient_is_not_lost_where_the_program_failed_before_backward(proof):
    result = proof(WRITTEN_INTO_PARAMETER)
    assert not result.accepted, proof_text.text(result)
    assert "encoder.weight, encoder.bias" in reason(result, "under torch.no_grad()")
    trained_elsewhere = "net(table[:3]).pow(2).mean() + encoder(x).pow(2).mean()"
    result = proof(
        WRITTEN_INTO_PARAMETER.replace("net(table[:3]).pow(2).mean()", trained_elsewhere)
    )
    question = "is context not to be trained through this change?"
    assert [judgement.question for judgement in result.accepted] == [question]


@pytest.mark.parametrize(
    ("program", "title"),
    [(WRITTEN_IN_A_HELPER, "under torch.no_grad()"), (NUMPY_IN_CLOSURE, "w.detach()")],
)
def test_a_repair_that_drops_an_unknown_gradient_is_unproven(proof, program, title):
    result = proof(program)
    assert proof_text.outcome(result) != "proven", proof_text.text(result)
    assert "the program's own gradient is unknown" in reason(result, title)


@pytest.mark.parametrize(
    ("statements", "loses", "gradient"),
    [
        ("a, b = (w * 1).chunk(2); b.mul_(v); loss = (a + b).sum()", False, 2.0),
        ("a, b = (w * 1).unbind(); b.mul_(v); loss = a + b", False, 2.0),
        ("y = w * 1\nfor row in y: row.mul_(v)\nloss = y.sum()", False, 3.0),
        (
            "with torch.inference_mode(): c = torch.ones(2)\nc.mul_(v); loss = (c * w).sum()",
            False,
            3.0,
        ),
        ("with torch.no_grad(): c = (w * 1)[1:]\nc.mul_(v); loss = c.sum() + w.sum()", False, 2.0),
        ("y = w * 1\nwith torch.no_grad(): c = y[1:]\nc.mul_(v); loss = y.sum()", True, None),
        ("y = w * v; y[:1].detach_(); loss = y.sum()", False, 2.0),
        ("w.mul_(0.5); loss = (w * v).sum()", None, 3.0 / 2),
        ("b = w.view(2, 1); b[0] += 0.5; loss = (w * v).sum()", None, 3.5),
        ("w[0] = v; loss = w.sum()", True, None),
        ("w.grad = w.detach(); w -= 0.5 * w; loss = (w * v).sum()", False, 3.0 / 2),
        ("w.grad = w.detach(); w -= 0.5 * w * v; loss = (w * v).sum()", True, None),
        ("scale = float(w.numpy()[1]); loss = (scale * v) + w.sum()", True, None),
        ("c = torch.zeros(2); torch.mul(w, v, out=c); loss = c.sum() + v", True, None),
        ("print(w.numpy()); loss = (w * v).sum()", False, 3.0),
    ],
)
def test_a_reference_run_knows_whether_it_lost_a_gradient(
    launcher, tmp_path, statements, loses, gradient
):
    """It lost one if the loss is NaN where NaN replaces the values that have no gradient."""
    path = tmp_path / "program.py"
    path.write_text(
        "import torch\nw = torch.tensor([1.0, 2.0], requires_grad=True)\n"
        f"v = torch.ones((), requires_grad=True)\n{statements}\nloss.backward()\n"
    )
    launcher.program = [str(path)]
    (call,) = _reference(launcher, ProgramRun("raised"), RunLimits(1, seconds=60)).calls
    assert call.loses_gradient is loses
    if gradient is not None:
        (of_v,) = [sample for sample in call.gradients.values() if len(sample.values) == 1]
        assert of_v.values == (gradient,)


def test_a_loss_is_compared_where_the_program_failed_before_backward(proof):
    """Out of place, the input keeps its old values, and so the loss is another one."""
    result = proof(PART_OF_INPUT)
    assert reason(result, "all of them") == "runs, but changes the loss of backward call 1"


def test_the_error_that_ends_the_program_comes_before_one_that_it_catches(proof):
    demonstration = """
w = torch.randn(3, requires_grad=True)
loss = (w * w).sum()
loss.backward()
try:
    loss.backward()
except RuntimeError as error:
    print("as expected:", error)
"""
    result = proof(STATE.replace(START, START + demonstration))
    assert kinds(result) == ["detach_state"] and not result.is_caught
    assert "catches this error" in proof_text.text(proof(CAUGHT))


def test_random_programs_are_unproven(proof):
    found = proof(RANDOM)
    assert not found.repeats
    assert proof_text.outcome(found) == "unproven"
    assert "seed its random numbers" in proof_text.text(found)


def test_a_healthy_program(proof):
    found = proof(STATE.replace("loss = h", "h = h.detach(); loss = cell(torch.ones(1, 2), h)"))
    assert proof_text.outcome(found) == "healthy"
    assert found.judgements == []


def test_several_files(proof, tmp_path):
    """The edit lies where the fault does: in a module beside the script."""
    head, tail = CACHED.split("net = Layer()")
    (tmp_path / "layers.py").write_text(head, encoding="utf-8")
    found = proof(f"{START}from layers import Layer\nnet = Layer(){tail}")
    assert kinds(found) == ["compute_again"]
    assert list(found.accepted[0].candidate.edits) == [str(tmp_path / "layers.py")]


def test_a_module_run_with_m(launcher, tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text(STATE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with Launcher(["-m", "package.train"]) as launcher:
        found = prove(launcher, RunLimits(seconds=60))
    assert kinds(found) == ["detach_state"]


class Named(pickle.Unpickler):
    """Reads what was pickled, and notes the packages that it has to import for it."""

    def __init__(self, data: object):
        super().__init__(io.BytesIO(pickle.dumps(data)))
        self.packages: set[str] = set()
        self.load()

    def find_class(self, module: str, name: str) -> object:
        self.packages.add(module.partition(".")[0])
        return super().find_class(module, name)


def test_what_a_run_saw_is_read_without_torch(launcher, tmp_path):
    """The command would import it for nothing else, and the reader would wait for that."""
    path = tmp_path / "program.py"
    path.write_text(STATE, encoding="utf-8")
    launcher.program = [str(path)]
    run = launcher.run({}, RunLimits(seconds=60))
    assert run.diagnosis and run.torch and run.calls
    assert Named(run).packages == {"gradtrace", "collections"}


def test_without_forks(tmp_path, monkeypatch):
    """Where processes cannot be forked, each run is an interpreter of its own."""
    path = tmp_path / "program.py"
    printed = tmp_path / "printed.txt"
    path.write_text("import sys, torch\nopen(sys.argv[1], 'a').write(str(torch.ones(2).sum()))\n")
    monkeypatch.setattr("gradtrace.repair.run.processes._FORKS", False)
    with Launcher([str(path), str(printed)]) as launcher:
        for _ in range(2):
            assert launcher.run({}, RunLimits(seconds=60)).status == "ended"
    assert printed.read_text() == "tensor(2.)" * 2


def test_a_run_keeps_no_optimizer_alive(launcher, tmp_path):
    program = """
import torch, weakref
def train():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], 0.1)
    weight.exp().sum().backward()
    optimizer.step()
    return weakref.ref(optimizer)
references = [train() for _ in range(2)]
alive = [reference() for reference in references]
assert alive == [None, None]
"""
    path = tmp_path / "program.py"
    path.write_text(program, encoding="utf-8")
    launcher.program = [str(path)]
    run = launcher.run({}, RunLimits(seconds=60))
    assert run.status == "ended", run.error
    assert [len(optimizer.keys) for optimizer in run.optimizers] == [1, 1]


def test_a_run_that_hangs_is_ended(launcher, tmp_path, monkeypatch):
    path = tmp_path / "program.py"
    path.write_text("while True: pass\n", encoding="utf-8")
    monkeypatch.setattr("gradtrace.repair.run.processes._GRACE", 0.5)
    launcher.program = [str(path)]
    run = launcher.run({}, RunLimits(seconds=0.5))
    assert run.status == "time"


def test_a_program_that_goes_on_and_on(launcher, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(STATE.replace("range(4):", "iter(int, 1):\n    h = h.detach()"))
    launcher.program = [str(path)]
    found = prove(launcher, RunLimits(seconds=1))
    assert (found.original.status, proof_text.outcome(found)) == ("time", "unproven")
    assert "raise --seconds" in proof_text.text(found)


def test_a_sum_of_losses_that_contain_one_another(proof):
    found = proof(UNROLLED_TOTAL)
    assert "its gradient counts twice" in reason(found, "retain_graph=True")
    assert "add_losses" not in {one.repair.name for one in found.listed}


def test_edits_keep_comments_and_line_ends(tmp_path):
    path = tmp_path / "program.py"
    text = "# -*- coding: latin-1 -*-\r\nx = 1   # \xe4 comment\r\nif x :\r\n\ty=(2 )\r\n"
    path.write_bytes(text.encode("latin-1"))
    source = Source(str(path))
    (first,) = source.statements_at(2)
    edited = source.edited(source.insert(first, after=["z = 3"]))
    assert edited == text.replace("comment\r\n", "comment\r\nz = 3\r\n")


@pytest.mark.parametrize(
    ("text", "number", "inserted", "removed"),
    [
        ("a; b; c\n", 1, "a; y; b; z; c\n", "a; c\n"),
        ("a; b; c\n", 2, "a; b; y; c; z\n", "a; b\n"),
        ("if a: b\n", 0, "if a: y; b; z\n", "if a: pass\n"),
        ("if a:\n    # why\n    b  # c\nd", 0, "if a:\n    # why\n    y\n    b  # c\n    z\nd",
         "if a:\n    # why\n    pass  # c\nd"),
        ("a\nb", 1, "a\ny\nb\nz\n", "a\n"),
    ],
)  # fmt: skip
def test_statements_are_inserted_and_removed(tmp_path, text, number, inserted, removed):
    path = tmp_path / "program.py"
    path.write_text(text, encoding="utf-8")
    source = Source(str(path))
    statement = [*source.statements()][number]
    assert source.edited(source.insert(statement, ["y"], ["z"])) == inserted
    assert source.edited(source.remove(statement)) == removed


# The command.


def command(*words: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gradtrace", "fix", *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


COUNTED = "open('runs.txt', 'a').write('run\\n')\n" + STATE


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(COUNTED, encoding="utf-8")
    return path


def test_nothing_is_written_unless_it_is_asked_for(script, tmp_path):
    done = command("--json", "found.json", "train.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("gradtrace: this runs train.py several times")
    assert "Proven: h = h.detach()" in done.stdout
    assert "Nothing was written" in done.stdout
    assert script.read_text(encoding="utf-8") == COUNTED
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "runs.txt", "found.json"}
    data = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert data["outcome"] == "proven"
    runs = (tmp_path / "runs.txt").read_text(encoding="utf-8").count("run")
    assert runs == 3 + len(data["candidates"])


def test_apply_writes_the_repair(script, tmp_path):
    done = command("--apply", "train.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    added = "    loss.backward()\n    h = h.detach()\n"
    assert script.read_text(encoding="utf-8") == COUNTED.replace("    loss.backward()\n", added)


def test_an_output_that_cannot_be_written_is_refused_before_the_work(script, tmp_path):
    for path, reason in (
        ("nowhere/out.json", "No such file or directory"),
        (".", "Is a directory"),
    ):
        done = command("--json", path, script, folder=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"error: --json {path} cannot be written: {reason}" in done.stderr
        assert "this runs" not in done.stderr


def test_json_on_standard_output_and_the_number_of_candidates(script, tmp_path):
    done = command("--json", "-", script, folder=tmp_path)
    data = json.loads(done.stdout)
    assert data["outcome"] == "proven"
    count = re.search(r"^gradtrace: (\d+) candidates, each in a process", done.stderr, re.M)
    assert int(count[1]) >= len(data["candidates"])
    assert "Proven: " in done.stderr


def test_an_interrupt_ends_it_at_once(tmp_path):
    """Also what it runs: nothing of it is left, though the program would go on for minutes."""
    (tmp_path / "script.py").write_text(
        "import os, pathlib, time, torch\n"
        "pathlib.Path('pid').write_text(str(os.getpid()))\n"
        "time.sleep(300)\n"
    )
    done = subprocess.Popen(
        [sys.executable, "-m", "gradtrace", "fix", "script.py"], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # A shell that runs these tests in the background has its children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    pid = tmp_path / "pid"
    while not (pid.exists() and pid.read_text()):
        assert done.poll() is None
        time.sleep(0.05)
    done.send_signal(signal.SIGINT)
    _, said = done.communicate(timeout=100)
    assert done.returncode == 130
    assert said.splitlines()[-1] == "gradtrace: stopped: nothing was written"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_list_runs_the_program_once(script, tmp_path):
    done = command("--list", "train.py", folder=tmp_path)
    assert done.stderr.startswith("gradtrace: this runs train.py once, for at most 120 seconds.")
    assert done.returncode == 0, done.stderr
    assert "detach_state: h = h.detach()" in done.stdout
    assert "retain_graph" in done.stdout
    assert (tmp_path / "runs.txt").read_text(encoding="utf-8") == "run\n"
    assert script.read_text(encoding="utf-8") == COUNTED


def test_apply_does_not_choose_for_the_reader(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(MODULE_STATE, encoding="utf-8")
    done = command("--apply", "train.py", folder=tmp_path)
    assert done.returncode == 1
    assert "--choose" in done.stderr
    assert path.read_text(encoding="utf-8") == MODULE_STATE


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no program to repair"),
        (("missing.py",), "there is no file missing.py"),
        (("--choose", "1", "train.py"), "give both"),
    ],
)
def test_wrong_commands(words, said, script, tmp_path):
    done = command(*words, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert not (tmp_path / "runs.txt").exists()


def test_torch_that_cannot_be_imported(script, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "torch.py").write_text("raise ImportError('broken')\n")
    done = command("train.py", folder=tmp_path, PYTHONPATH=str(tmp_path / "elsewhere"))
    assert done.returncode == 1
    assert "ImportError: broken" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("gradtrace: the process that starts the runs")


# A notebook's cells.


def notebook(cells: list[str], folder: Path) -> str:
    """Return what IPython prints when these cells run, and then %explain --fix."""
    program = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell()
for cell in {["%load_ext gradtrace", *cells, "%explain --fix"]!r}:
    shell.run_cell(cell, store_history=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_repair_names_the_cells_of_a_notebook(tmp_path):
    """Magics, the shell and cells that failed before do not prevent it."""
    pytest.importorskip("IPython")
    start, _, rest = STATE.partition("for step")
    tmp_path.joinpath("local.py").write_text("WIDTH = 4\n", encoding="utf-8")
    loop = f"for step{rest}"
    cells = [f"%%time\n{start}", "!true", "missing", "import local", loop]
    printed = notebook(cells, tmp_path)
    assert "Proven: h = h.detach()" in printed
    assert "--- In[6]\n+++ In[6]\n@@ -" in printed  # the cell and its own lines, no script's
    hunk = re.search(r"@@ -(\d+),\d+ \+\1,\d+ @@\n(.+)\n", printed)
    assert loop.splitlines()[int(hunk[1]) - 1] == hunk[2].removeprefix(" ")
    proof = printed.partition("Proven:")[2]
    assert re.search(r" line \d+ of In\[6\]", proof)
    assert not re.search(r" line \d+(?! of In\[)\b", proof)
    assert "cells.py" not in proof
    assert [path.name for path in tmp_path.iterdir()] == ["local.py"]


def test_cells_whose_state_cannot_be_rebuilt(tmp_path):
    pytest.importorskip("IPython")
    start, _, rest = STATE.partition("for step")
    cells = ["get_ipython().push({'size': 4})", f"{start}\nsize", f"for step{rest}"]
    printed = notebook(cells, tmp_path)
    reason = "NameError: name 'get_ipython' is not defined"
    assert f"end with {reason}, so their state cannot be rebuilt" in printed
