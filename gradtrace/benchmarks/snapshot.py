"""What a snapshot costs, against its peers: ratios of medians from one run, one thread.

The graph is a GRUCell(64) unrolled 1 000 times.  Peers: ``torchviz.make_dot(show_saved=True,
show_attrs=True)``, run with a raised recursion limit since it dies at some 325 steps, and a bare
breadth-first walk of ``next_functions`` that keeps nothing but the visited nodes.
"""

import statistics
import sys
import threading
import time
from collections import deque

import torch
from torchviz import make_dot

from gradtrace import snapshot, trace

STEPS = 1_000
RUNS = 15


def unrolled(steps: int) -> torch.Tensor:
    """The loss of a GRUCell(64) unrolled over ``steps`` inputs of shape (8, 64)."""
    torch.manual_seed(0)
    cell, x, h = torch.nn.GRUCell(64, 64), torch.randn(8, 64), torch.zeros(8, 64)
    for _ in range(steps):
        h = cell(x, h)
    return h.sum()


def bare_walk(root) -> int:
    seen, queue = {root}, deque([root])
    while queue:
        for successor, _ in queue.popleft().next_functions:
            if successor is not None and successor not in seen:
                seen.add(successor)
                queue.append(successor)
    return len(seen)


def bare_walk_with_edges(root) -> int:
    seen, queue, edges = {root}, deque([root]), []
    while queue:
        node = queue.popleft()
        for successor, _ in node.next_functions:
            if successor is not None:
                edges.append((node, successor))
                if successor not in seen:
                    seen.add(successor)
                    queue.append(successor)
    return len(edges)


def median_ms(function, runs: int = RUNS) -> float:
    """Median wall time of ``function()`` in milliseconds, after one warm-up."""
    function()
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def program(retain_graph: bool) -> None:
    torch.manual_seed(0)
    encoder = torch.nn.Linear(4, 3)
    head1 = torch.nn.Linear(3, 1)
    head2 = torch.nn.Linear(3, 1)
    parameters = [*encoder.parameters(), *head1.parameters(), *head2.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    x = torch.ones(2, 4)
    hidden = encoder(x)
    features = torch.tanh(hidden)
    loss1 = head1(features).mean()
    loss2 = head2(features).pow(2).sum()
    optimizer.zero_grad()
    loss1.backward(retain_graph=retain_graph)
    loss2.backward()
    optimizer.step()


def main() -> None:
    torch.set_num_threads(1)
    loss = unrolled(STEPS)
    nodes = bare_walk(loss.grad_fn)
    mine = median_ms(lambda: snapshot(loss))
    added = median_ms(lambda: snapshot(loss).held)
    bare = median_ms(lambda: bare_walk(loss.grad_fn))
    edges = median_ms(lambda: bare_walk_with_edges(loss.grad_fn))
    viz = median_ms(lambda: make_dot(loss, show_saved=True, show_attrs=True), runs=3)
    print(f"torch {torch.__version__}, {nodes:,} nodes (GRUCell(64), {STEPS:,} steps), medians")
    print(f"snapshot                     {mine:8.1f} ms")
    print(f"  and its bytes added up     {added:8.1f} ms")
    print(f"torchviz, saved and attrs    {viz:8.1f} ms = {viz / mine:.1f} × snapshot")
    print(f"bare walk                    {bare:8.1f} ms; snapshot takes {mine / bare:.1f} ×")
    print(f"bare walk that keeps edges   {edges:8.1f} ms; snapshot takes {mine / edges:.1f} ×")

    for steps in (1_000, 10_000, 100_000):
        loss = unrolled(steps)
        cost = median_ms(lambda loss=loss: snapshot(loss), runs=3)
        count = len(snapshot(loss).nodes)
        print(f"{steps:>7,} steps {cost:9.1f} ms = {cost / count * 1e3:.2f} µs for each node")

    for retain_graph in (False, True):
        cost = median_ms(lambda retain_graph=retain_graph: trace(program, retain_graph))
        print(f"trace of 15 lines, retain_graph={retain_graph}: {cost:.1f} ms")


if __name__ == "__main__":
    # torchviz recurses: give it the depth and the stack that it needs.
    sys.setrecursionlimit(10**6)
    threading.stack_size(512 * 1024 * 1024)
    worker = threading.Thread(target=main)
    worker.start()
    worker.join()
