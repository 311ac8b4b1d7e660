"""Threads, coroutines and generators that train at the same time, signals in the middle."""

import asyncio
import concurrent.futures
import contextvars
import os
import signal
import sys
import threading

import end_state
import torch
from torch import nn

nets = [nn.Linear(3, 1) for _ in range(6)]
x = torch.randn(5, 3)
context = contextvars.ContextVar("context", default=0)


def train(net, rounds=5):
    optimizer = torch.optim.Adam(net.parameters(), 0.1)
    for _ in range(rounds):
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        yield loss.item().hex()


async def coroutine(net):
    context.set(context.get() + 1)
    found = []
    for loss in train(net):
        found.append(loss)
        await asyncio.sleep(0)
    return found, context.get()


async def stream(net):
    for loss in train(net):
        await asyncio.sleep(0)
        yield loss


async def main():
    async def consume():
        return [loss async for loss in stream(nets[2])]

    return await asyncio.gather(coroutine(nets[0]), coroutine(nets[1]), consume())


for found in asyncio.run(main()):
    print(found)
generators = [train(nets[3]), train(nets[4])]
print(list(zip(*generators, strict=False)), context.get())
barrier = threading.Barrier(3)
local = threading.local()


def together(seed):
    generator = torch.Generator().manual_seed(seed)
    local.w = torch.randn(4, generator=generator).requires_grad_()
    barrier.wait()
    for _ in range(20):
        with torch.no_grad():
            assert not (local.w * 2).requires_grad
        (local.w.exp() * local.w).sum().backward()
    return local.w.grad.sum().item().hex(), torch.is_grad_enabled()


with concurrent.futures.ThreadPoolExecutor(3) as pool:
    print(list(pool.map(together, range(3))))


def fails(seed):
    loss = torch.ones(2, requires_grad=True).exp().sum()
    loss.backward()
    loss.backward()


with concurrent.futures.ThreadPoolExecutor(2) as pool:
    print([type(pool.submit(fails, i).exception()).__name__ for i in range(3)])


def suspended():
    with torch.no_grad():
        yield (nets[0].weight * 2).requires_grad
        yield torch.is_grad_enabled()


waiting = suspended()
print(next(waiting), torch.is_grad_enabled(), next(waiting))
waiting.close()
print(torch.is_grad_enabled())


class Stop(Exception):
    pass


def interrupt(number, frame):
    raise Stop(f"in {frame.f_code.co_name}")


signal.signal(signal.SIGALRM, interrupt)
w = torch.ones(3, requires_grad=True)
w.register_hook(lambda gradient: os.kill(os.getpid(), signal.SIGALRM))
try:
    w.exp().sum().backward()
except Stop as stop:
    print(type(stop).__name__)
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    os.kill(os.getpid(), signal.SIGINT)
    w.sum()
except KeyboardInterrupt:
    print("interrupted")


class Parallel(nn.Module):
    """Forward in threads, one backward through all of them."""

    def forward(self, x):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return sum(future.result() for future in [pool.submit(net, x) for net in nets[:2]])


Parallel()(x).sum().backward()
future = torch.futures.Future()
future.set_result(1)
print(torch.jit.fork(nets[5], x).wait().sum().item().hex(), future.value())
end_state.write()
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGTERM)
