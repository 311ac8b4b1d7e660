"""Distribute jobs over Dask workers, two to each at a time, and yield results as they arrive.

Jobs are created only as workers need them, so a class of ten thousand takes as much memory as one
of ten.  If a worker dies (its machine is lost, or out of memory), Dask runs its tasks again
elsewhere.  A task with which several workers died is tried again at the end, alone, because another
task may have been the reason.  So is a task that exceeded the time by the clock, unless such
retries have already taken :data:`RETRY_SECONDS`. The second result is final, and a task that still
kills its worker has failed.
"""

from __future__ import annotations

import gc
import json
import logging
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, islice
from multiprocessing import active_children
from typing import Any

import dask
from distributed import Client, Future, LocalCluster, Worker, as_completed
from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError
from distributed.utils import get_mp_context

from backward_twice.grading import GradingError
from backward_twice.grading.judging.grader import Json, failed, grade

_TASKS_PER_THREAD = 2
"""One that runs and one that waits, so that no worker waits for a task."""

RETRY_SECONDS = 600.0
"""By the clock: no retry of what ran out of time begins later after the first."""

_CONNECT_SECONDS = 5
_CLOSE_SECONDS = 10
_NO_WORKERS_SECONDS = 90  # a worker takes its time to start, on a slow machine


_SPEAKERS = ("distributed", "tornado", "asyncio")


def be_quiet() -> None:
    """Silence the logs and warnings of Dask and the libraries under it, in this process."""
    for name in [*_SPEAKERS, *logging.root.manager.loggerDict]:
        if name.partition(".")[0] in _SPEAKERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module=r"distributed\b")


def dask_setup(worker: Worker) -> None:
    """Silence a worker: Dask calls this in each that has this module as a preload."""
    be_quiet()  # it inherits nothing of the kind from the process that starts it


@contextmanager
def workers(address: str | None, number: int) -> Iterator[Client]:
    """Yield a client of the Dask scheduler at ``address``, or of ``number`` new processes here."""
    be_quiet()
    with ExitStack() as stack:
        if address is None:
            client = stack.enter_context(_local(number))
        else:
            try:
                client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
            except (OSError, ValueError) as error:
                client, reason = None, str(error)
            if client is None:
                # The half-made client closes itself when it is collected; were that to happen
                # while another one starts, both would wait for ever (seen: distributed 2026.8.0).
                gc.collect()
                raise GradingError(f"no Dask scheduler at {address}: {reason}")
        yield stack.enter_context(client)


@contextmanager
def _local(number: int) -> Iterator[Client]:
    # One thread each: what costs time and memory runs in sandboxes, whose limits are their own.
    # Ctrl-C reaches every process of the terminal; only this one is to answer it.
    settings = {
        "distributed.scheduler.allowed-failures": 2,
        # A worker that died is started again; by default it is given up if that takes 15 s, which
        # on a busy machine it does.
        "distributed.deploy.lost-worker-timeout": "1h",
        "distributed.scheduler.no-workers-timeout": f"{_NO_WORKERS_SECONDS} s",
        # What Dask measures of itself, for a dashboard, takes as much time as what is asked of it,
        # and what it logs grows with each job.
        "distributed.worker.profile.enabled": False,
        "distributed.admin.system-monitor.interval": "10s",
        "distributed.admin.tick.interval": "1s",
        "distributed.admin.log-length": 100,
        "distributed.worker.preload": [__name__],
        "distributed.worker.multiprocessing-method": "forkserver",
    }
    with dask.config.set(settings):
        # PyTorch is imported once, by the process of which all workers are forks.
        get_mp_context().set_forkserver_preload([grade.__module__])
        answer = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            cluster = LocalCluster(
                n_workers=number,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,
                dashboard_address="127.0.0.1:0",  # None would take port 8787 for the world
            )
        finally:
            signal.signal(signal.SIGINT, answer)
        try:
            yield Client(cluster, set_as_default=False)
        finally:
            _close(cluster)


def _close(cluster: LocalCluster) -> None:
    """End the workers, without waiting for one that is being restarted."""
    with suppress(TimeoutError):
        cluster.close(timeout=_CLOSE_SECONDS)
        return
    for process in active_children():
        if process.name.startswith("Dask Worker"):
            process.kill()
    with suppress(TimeoutError):
        cluster.close(timeout=_CLOSE_SECONDS)


Tagged = tuple[Any, Json]
"""What the caller knows a job by, and the job."""


def run(
    client: Client, jobs: Iterable[Tagged], task: Callable[[Json], Json] = grade
) -> Iterator[Tagged]:
    """Run the jobs, and yield the tag and the result of each when it ends.

    Args:
        jobs: pairs of a tag and a job; the next is requested only when a worker needs it.

    Raises:
        GradingError: the scheduler went away, or a worker cannot grade.
    """
    slow: list[tuple[Any, Json, Json]] = []
    failures: list[Tagged] = []
    for tag, job, result in _results(client, iter(jobs), task):
        if isinstance(result, Exception):
            failures.append((tag, job))
        elif result.get("slow"):
            slow.append((tag, job, result))
        else:
            yield tag, result
    # Nothing waits any more: a worker each, and no two tasks on one.
    threads = max(1, sum(client.nthreads().values())) if slow else 1
    retries = _results(client, _in_time(slow), task, at_once=threads)
    alone = _results(client, iter(failures), task, at_once=1)
    for tag, job, result in chain(retries, slow, alone):
        if isinstance(result, KilledWorker):
            result = failed(job, "the worker that graded it died each time")
        elif isinstance(result, Exception):  # a fault of the grader's own must not stop the others
            result = failed(job, f"the grader failed: {type(result).__name__}: {result}"[:500])
        result.pop("slow", None)
        yield tag, result


def _in_time(slow: list[tuple[Any, Json, Json]]) -> Iterator[Tagged]:
    """Yield the jobs to repeat, as long as there is time for it."""
    end = time.monotonic() + RETRY_SECONDS
    while slow and time.monotonic() < end:
        tag, job, _ = slow.pop(0)
        yield tag, job


def _results(
    client: Client,
    jobs: Iterator[Tagged],
    task: Callable[[Json], Json],
    at_once: int | None = None,
) -> Iterator[tuple[Any, Json, Json | Exception]]:
    """Yield each job's tag, the job, and its result or the exception that ended it.

    Args:
        at_once: the most jobs at one time; as many as there is room for.
    """
    pending: dict[Future, Tagged] = {}
    finished = as_completed(loop=client.loop)

    def fill() -> None:
        most = at_once or _TASKS_PER_THREAD * max(1, sum(client.nthreads().values()))
        for tag, job in islice(jobs, max(0, most - len(pending))):  # below 0 where a worker died
            # One text: of lists and dicts Dask looks at every part.
            future = client.submit(_perform, task, json.dumps(job), pure=False)
            pending[future] = tag, job
            finished.add(future)

    with _scheduler_there(client):
        fill()
        for future in finished:
            tag, job = pending.pop(future)
            result = _outcome(future)
            future.release()
            yield tag, job, result
            fill()


@contextmanager
def _scheduler_there(client: Client) -> Iterator[None]:
    try:
        yield
    except GradingError:
        raise
    except (OSError, TimeoutError, RuntimeError) as error:
        if client.status == "running":
            raise
        raise GradingError(_GONE) from error


SAVED = "the results so far are saved: start again to continue"
_GONE = f"the Dask scheduler went away; {SAVED}"


def _outcome(future: Future) -> Json | Exception:
    """Return a task's result, or the exception that ended it.

    Raises:
        GradingError: the scheduler or all workers went away, or the worker cannot grade.
    """
    try:
        result = future.result()
    except CancelledError:
        raise GradingError(_GONE) from None
    except (NoWorkerError, NoValidWorkerError):
        raise GradingError(f"all workers died; {SAVED}") from None
    except Exception as error:
        return error
    if isinstance(result, str):
        raise GradingError(result)
    return result


def _perform(task: Callable[[Json], Json], job: str) -> Json | str:
    """Do a job, as JSON text, in a worker; return its result, or why this worker cannot."""
    try:
        return task(json.loads(job))
    except GradingError as error:
        return str(error)
