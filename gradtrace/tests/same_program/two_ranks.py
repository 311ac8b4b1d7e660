"""Two ranks over gloo: this process is the first, and starts the second."""

import datetime
import multiprocessing
import sys

import end_state
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(rank, store):
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=300),
    )
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    parallel = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    generator = torch.Generator().manual_seed(rank)
    for number in range(3):
        x = torch.randn(4, 3, generator=generator)
        with parallel.no_sync() if number == 1 else torch.enable_grad():
            loss = parallel(x).pow(2).mean()
            loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print(loss.item().hex(), total.item().hex())
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()
    return net


if __name__ == "__main__":
    store = end_state.FOLDER / "store"
    other = multiprocessing.get_context("spawn").Process(target=train, args=(1, store))
    other.start()
    net = train(0, store)
    other.join()
    store.unlink(missing_ok=True)
    sys.exit(other.exitcode)
