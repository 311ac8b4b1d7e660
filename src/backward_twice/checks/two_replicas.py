"""Exercise ``two_replicas``: two losses under DistributedDataParallel, of which one is not reduced.

The sandbox has no network, without which two processes cannot exchange gradients.  So the two
replicas are threads of one process, and a communication hook averages their buckets.  The module,
its reducer and the times at which it reduces are PyTorch's own.
"""

import threading

import torch
import torch.distributed as dist
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore  # nothing public without sockets

from backward_twice.checks.networks import two_layers
from backward_twice.checks.task import Task

_REPLICAS = (0, 1)
_PATIENCE = 60  # seconds that a replica waits for the other


def _draw(draws):
    rows, steps = draws.integers(2, 2, 4)
    return {
        "weights": draws.layers(3, 4, 2),
        "batches": [
            [
                [draws.normal(*shape) for shape in ((rows, 3), (rows,), (rows,))]
                for _ in range(steps)
            ]
            for _ in _REPLICAS
        ],
        "rate": draws.uniform(0.1, 0.2),
    }


class _Average:
    """Averages the buckets of two replicas, and counts the reductions of each replica."""

    def __init__(self):
        self.barrier = threading.Barrier(len(_REPLICAS))
        self.buffers = [None] * len(_REPLICAS)
        self.counts = [0] * len(_REPLICAS)
        self.ended = []  # replicas; the other one continues alone, as in a repeated call

    def reduce(self, replica, bucket):
        """Return a future: the mean of both buckets, or this bucket once a replica has ended."""
        self.buffers[replica] = mean = bucket.buffer()
        self.counts[replica] += bucket.is_last()
        if not self.ended:
            self.barrier.wait(_PATIENCE)
            mean = sum(self.buffers) / len(_REPLICAS)
            self.barrier.wait(_PATIENCE)  # until no replica reads the buffers any more
        future = Future()
        future.set_result(mean)
        return future


def _run(answer, weights, batches, rate):
    average, errors = _Average(), []
    networks = [two_layers(weights, leftover=True) for _ in _REPLICAS]

    def train(replica):
        net = networks[replica]
        try:
            parallel = DistributedDataParallel(net)
            parallel.register_comm_hook(replica, average.reduce)
            optimizer = torch.optim.SGD(net.parameters(), lr=rate)
            answer(parallel, optimizer, [tuple(batch) for batch in batches[replica]])
        except BaseException as error:
            errors.append(error)
            average.barrier.abort()
        finally:
            average.ended.append(replica)

    threads = [threading.Thread(target=train, args=(replica,)) for replica in _REPLICAS]
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=len(_REPLICAS))
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        dist.destroy_process_group()
    if errors:
        raise errors[0]  # the other replica's error is that it waited in vain
    trained = {
        f"replica {replica}: {name}": parameter
        for replica in _REPLICAS
        for name, parameter in networks[replica].named_parameters()
    }
    return {"how often the gradients were averaged": average.counts, **trained}


train = Task("train", _draw, run=_run)
