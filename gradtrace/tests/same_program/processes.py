"""Processes that the program starts in every way, and classes of ``__main__`` that go there."""

import concurrent.futures
import multiprocessing
import os
import pickle
import subprocess
import sys

import end_state  # noqa: F401
import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset


class Model(torch.nn.Linear):
    pass


class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        info = torch.utils.data.get_worker_info()
        watched = "gradtrace" in sys.modules and info is None
        return torch.full((2,), float(index)), torch.rand(1), watched


def square(x):
    w = torch.tensor(float(x), requires_grad=True)
    (w * w).backward()
    return (
        w.grad.item(),
        __name__,
        sorted(name for name in os.environ if name.startswith(("GRAD", "PYTHON"))),
    )


def work(rank, queue):
    model = Model(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    queue.put((rank, model.weight.grad.tolist(), square(3), type(model).__module__))


if __name__ == "__main__":
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(work, args=(queue,), nprocs=1)
    print(queue.get())
    server = multiprocessing.get_context("forkserver")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=server) as pool:
        print(list(pool.map(square, [1, 2])))
    for context, workers in ((None, 0), ("fork", 2), ("spawn", 1)):
        for batch in DataLoader(Numbers(), 2, num_workers=workers, multiprocessing_context=context):
            print(batch[:2])
    model = Model(2, 1)
    torch.save(model, "model.pt")
    print(type(torch.load("model.pt", weights_only=False)), type(pickle.loads(pickle.dumps(model))))
    child = "import os, sys; print(sys.flags, sys.path[1:], dict(os.environ))"
    print(subprocess.run([sys.executable, "-c", child], capture_output=True, check=True).stdout)
    sys.stdout.flush()
    for worker in multiprocessing.active_children():  # a forked child could not join them
        worker.join()
    child_pid = os.fork()
    if child_pid == 0:
        model(torch.ones(1, 2)).sum().backward()
        print("forked", model.weight.grad, flush=True)
        sys.exit(3)
    print(os.waitpid(child_pid, 0)[1])
