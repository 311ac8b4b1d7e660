"""Objects that take part in PyTorch's dispatch, and regions that change what an operation does."""

import collections
import inspect

import end_state  # noqa: F401
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

calls = {"function": collections.Counter(), "dispatch": collections.Counter()}


class Counting(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        calls["function"][getattr(func, "__qualname__", str(func))] += 1
        return super().__torch_function__(func, types, args, kwargs or {})


counting = torch.linspace(0, 1, 4).as_subclass(Counting).requires_grad_()
for _ in range(2):
    total = (counting.exp() * 2 + counting[1:].sum()).sum()
    total.backward()
    counting.data.mul_(0.5)
    counting.grad.zero_()
print(sorted(calls["function"].items()))

ALLOWED = {torch.Tensor.add, torch.Tensor.sum, torch.sum, torch.add, torch.Tensor.backward}


class Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in ALLOWED:
            raise NotImplementedError(f"{func} is not for this tensor")
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


with torch._C.DisableTorchFunctionSubclass():
    refusing = torch.ones(3).as_subclass(Refusing)
    source = torch.ones(3, requires_grad=True)
torch.sum(torch.add(refusing, source)).backward()
print(source.grad.tolist())
try:
    refusing.exp()
except NotImplementedError as error:
    print(error)


class Like:
    """No tensor, and yet an argument of operations."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return f"{func.__name__} of {[kind.__name__ for kind in types]}"


print(torch.add(Like(), 1), torch.cat([Like(), torch.ones(1)]))


class Wrapped(torch.Tensor):
    """Dispatches below autograd."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        calls["dispatch"][str(func)] += 1
        bare = [a.inner if isinstance(a, Wrapped) else a for a in args]
        result = func(*bare, **(kwargs or {}))
        return Wrapped(result) if isinstance(result, torch.Tensor) else result


inner = torch.ones(3)
wrapped = Wrapped(inner)
wrapped.requires_grad_()
(wrapped * 2).sin().sum().backward()
print(sorted(calls["dispatch"].items()), type(wrapped.grad).__name__)


class Seeing(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Below(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


w = torch.linspace(0, 1, 3, requires_grad=True)
with Seeing() as seeing, Below() as below:
    (w.exp() * w).sum().backward()
    w.data.add_(1)
    torch.optim.SGD([w], 0.1).step()
print(seeing.seen, below.seen)

# Devices.
context = torch.device("meta")
context.__enter__()
skeleton = nn.Linear(2, 3)
print(skeleton.weight.device, skeleton(torch.ones(1, 2)).shape)
skeleton(torch.ones(1, 2)).sum().backward()
context.__exit__(None, None, None)
print(torch.ones(1).device, torch.get_default_device())
torch.set_default_device("meta")
print(torch.zeros(2).device)
torch.set_default_device(None)
with torch.device("cpu"):
    print(torch.zeros(1, device="meta").exp().device, torch.zeros(1).device)
real = skeleton.to_empty(device="cpu")
real.zero_grad()
with torch.no_grad():
    for parameter in real.parameters():
        parameter.fill_(0.5)

# Regions.
with torch.inference_mode():
    inferred = w * 2
    inferred.add_(1)
print(inferred.is_inference(), (w * inferred.clone()).sum())
try:
    (w * inferred).sum().backward()
except RuntimeError as error:
    print(str(error).splitlines()[0])
with torch.autocast("cpu", torch.bfloat16):
    mixed = real(torch.ones(2, 2))
    print(mixed.dtype, (mixed @ torch.ones(3, 2)).dtype, torch.is_autocast_enabled("cpu"))
mixed.float().sum().backward()
torch.use_deterministic_algorithms(True)
try:
    torch.ones(4).put_(torch.tensor([0, 0]), torch.ones(2), accumulate=False)
    print(torch.empty(3))
except RuntimeError as error:
    print(str(error).splitlines()[0])
torch.use_deterministic_algorithms(False)
with torch.no_grad():
    print((w * 2).requires_grad, torch.is_grad_enabled())
    with torch.enable_grad():
        print((w * 2).requires_grad)


@torch.no_grad()
def without(t):
    return t * 2


print(without(w).requires_grad)
with torch.set_grad_enabled(False):
    torch.set_grad_enabled(True)
    print((w * 2).requires_grad)
with torch.autograd.detect_anomaly(check_nan=False):
    (w * 3).sum().backward()
with torch.autograd.graph.saved_tensors_hooks(lambda t: t.tolist(), torch.tensor):
    w.exp().sum().backward()
with torch.autograd.graph.save_on_cpu():
    w.exp().sum().backward()

# Modules and functions that act when they are first used, or in the middle of a backward.
lazy = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyBatchNorm1d(), nn.LazyLinear(1))
print(lazy[0].weight)
lazy(torch.randn(4, 5)).sum().backward()
print(lazy)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        print("forward", len(inspect.stack()))
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        print("backward", len(inspect.stack()), ctx.saved_tensors[0].shape, ctx.needs_input_grad)
        return gradient * 2


def deep(title):
    def hook(*arguments):
        print(title, len(inspect.stack()), [f.function for f in inspect.stack()][1:])

    return hook


layer = nn.Linear(3, 3)
layer.register_forward_pre_hook(deep("before forward"))
layer.register_forward_hook(deep("forward"))
layer.register_full_backward_hook(deep("module"))
layer.weight.register_hook(deep("tensor"))
layer.weight.register_post_accumulate_grad_hook(deep("accumulated"))
output = layer(Doubled.apply(w[None]))
output.grad_fn.register_hook(deep("node"))
output.sum().backward()
layer(w).sum().backward(inputs=[w])
optimizer = torch.optim.SGD([w], 0.1)
optimizer.register_step_pre_hook(deep("before step"))
optimizer.register_step_post_hook(deep("step"))
optimizer.step()
sparse = nn.Embedding(5, 2, sparse=True)
sparse(torch.tensor([1, 1, 3])).sum().backward()
torch.optim.SparseAdam(sparse.parameters()).step()
print(sparse.weight.grad, sparse.weight)
print(w.grad.numpy(), w.detach().numpy().base is None, memoryview(w.detach().numpy()).nbytes)
