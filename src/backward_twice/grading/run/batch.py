"""Hand jobs to Dask workers, a few for each worker at a time, and take the results as they come.

What Dask does for a task, it does in the one process that all workers wait for.  So a task is
several jobs: one at first, and more when so many were done that a worker which ends with less of
them than another has not waited for long.  A worker that has been at a task for some time gives
back the jobs of it that it has not begun.

No more jobs are drawn than the workers have in hand, so a class of ten thousand takes no more
memory than one of ten.  Where a worker dies (its machine is lost, or short of memory), Dask starts
the tasks it held again elsewhere.  A job of a task that lost several workers may only have been in
bad company: it is tried once more at the end, alone.  One that ran out of time by the clock is
tried once more when no other waits, with a worker to itself.  What comes of it then is final, and
what still kills its workers is given up.
"""

from __future__ import annotations

import gc
import json
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, takewhile
from multiprocessing import active_children
from typing import Any

import dask
from distributed import Client, Future, LocalCluster, as_completed
from distributed.scheduler import KilledWorker

from backward_twice.grading import GradingError
from backward_twice.grading.run import worker
from backward_twice.grading.run.judge import Json, failed, grade

_IN_HAND = 2
"""Tasks for each thread: one that runs and one that waits, so that no worker waits for a task."""

_TOGETHER = 16
"""The most jobs in one task."""

_TASK_SECONDS = 0.5
"""By the clock, after which a worker begins no further job of a task: that much of what it did is
lost with it, or when the grading is interrupted, beside the job that it was at."""

_CONNECT_SECONDS = 5
_CLOSE_SECONDS = 10
_LOOK_SECONDS = 2
_MISSED_LOOKS = 45  # a worker takes its time to start, on a slow machine
_PAUSE = 0.01  # s
_RESULT_SECONDS = 10.0  # for one to come over


@contextmanager
def workers(address: str | None, number: int) -> Iterator[Client]:
    """A client of the Dask scheduler at ``address``, or of ``number`` processes started here.

    Raises:
        GradingError: there is no scheduler at this address.
    """
    worker.be_quiet()
    with ExitStack() as stack:
        if address is None:
            client = stack.enter_context(_local(number))
        else:
            try:
                client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
            except (OSError, ValueError) as error:
                client, why = None, str(error)
            if client is None:
                # The half-made client closes itself when it is collected; were that to happen
                # while another one starts, both would wait for ever (seen: distributed 2026.8.0).
                gc.collect()
                raise GradingError(f"no Dask scheduler at {address}: {why}")
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
        # What Dask measures of itself, for a dashboard, takes as much time as what is asked of it,
        # and what it logs grows with each job.
        "distributed.worker.profile.enabled": False,
        "distributed.admin.system-monitor.interval": "10s",
        "distributed.admin.tick.interval": "1s",
        "distributed.admin.log-length": 100,
        **worker.settings(number),
    }
    with dask.config.set(settings):
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
    """End the workers, and wait no longer for one that was just being started again."""
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
    """Do each job; give its tag and its result, in the order in which they end.

    Args:
        jobs: a tag and a job each; the next is only taken when there is room for it.

    Raises:
        GradingError: the scheduler went away, or a worker cannot grade.
    """
    slow: list[Tagged] = []
    failures: list[Tagged] = []
    for tag, job, result in _results(client, iter(jobs), task):
        if isinstance(result, Exception):
            failures.append((tag, job))
        elif result.get("slow"):
            slow.append((tag, job))
        else:
            yield tag, result
    # Nothing waits any more: a worker each, and no two tasks on one.
    threads = max(1, sum(client.nthreads().values())) if slow else 1
    again = _results(client, iter(slow), task, at_once=threads)
    alone = _results(client, iter(failures), task, at_once=1)
    for tag, job, result in chain(again, alone):
        if isinstance(result, KilledWorker):
            result = failed(job, "the worker that graded it died, each time")
        elif isinstance(result, Exception):  # a fault of the grader's own must not stop the others
            result = failed(job, f"the grader failed: {type(result).__name__}: {result}"[:500])
        result.pop("slow", None)
        yield tag, result


class _Workers:
    """How many tasks the workers may have in hand together; workers may come and go."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._looked = float("-inf")
        self._threads = 0
        self._missed = 0

    def room(self) -> int:
        """The most tasks that may be handed out."""
        self.look()
        return max(1, self._threads) * _IN_HAND

    def share(self, done: int) -> int:
        """Jobs for one task, when so many are done: not long to do, beside what was done."""
        return 1 + done // (2 * self.room())

    def look(self) -> None:
        """Count them, now and then.

        Raises:
            GradingError: those that were started here are all gone, and none comes back.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        self._threads = sum(self._client.nthreads().values())
        self._missed = 0 if self._threads else self._missed + 1
        # Looks are counted, not time: a laptop that slept has missed nothing.
        if self._client.cluster is not None and self._missed > _MISSED_LOOKS:
            raise GradingError(f"all workers died; {_KEPT}")


def _results(
    client: Client,
    jobs: Iterator[Tagged],
    task: Callable[[Json], Json],
    at_once: int | None = None,
) -> Iterator[tuple[Any, Json, Json | Exception]]:
    """Each job's tag, the job and its result, or what was raised for its task.

    Args:
        at_once: the most jobs at one time, each a task of its own; as many as there is room for.
    """
    in_hand: dict[Future, list[Tagged]] = {}
    given_back: deque[Tagged] = deque()
    ended = as_completed(loop=client.loop)
    there = _Workers(client)
    done = 0  # jobs
    most = 1  # in one task, by what the last one had the time for

    def waiting() -> Tagged | None:
        return given_back.popleft() if given_back else next(jobs, None)

    def fill() -> None:
        while len(in_hand) < (at_once or there.room()):
            number = 1 if at_once else min(most, there.share(done))
            some = [*takewhile(bool, (waiting() for _ in range(number)))]
            if not some:
                return
            # One text: of lists and dicts Dask looks at every part.
            text = json.dumps([job for _, job in some])
            future = client.submit(_done, task, text, pure=False)
            in_hand[future] = some
            ended.add(future)

    with _scheduler_there(client):
        fill()
        while in_hand:
            if not ended.has_ready():
                there.look()
                time.sleep(_PAUSE)
                continue
            future = next(ended)
            some = in_hand.pop(future)
            results = _came(future, there)
            future.release()
            if isinstance(results, Exception):
                results = [results] * len(some)
            for (tag, job), result in zip(some, results, strict=False):
                yield tag, job, result
            given_back += some[len(results) :]
            done += len(results)
            most = min(_TOGETHER, len(results) + 1)
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


_KEPT = "what was graded is kept, start again to go on"
_GONE = f"the Dask scheduler went away; {_KEPT}"


def _came(future: Future, there: _Workers) -> list[Json] | Exception:
    """The results of a task's first jobs, or what was raised for it."""
    if future.status == "cancelled":
        raise GradingError(_GONE)
    try:
        done = _fetched(future, there)
    except GradingError:
        raise
    except CancelledError as error:
        raise GradingError(_GONE) from error
    except Exception as error:
        return error
    if isinstance(done, str):
        raise GradingError(done)
    return done


def _fetched(future: Future, there: _Workers) -> Any:
    """What came of a task that has ended.

    Even that may fail, or have to be waited for: a result is lost with the worker that still holds
    it, and Dask then starts the task again, on whatever workers there are.
    """
    while True:
        try:
            return future.result(_RESULT_SECONDS)
        except TimeoutError:
            if future.status == "error":  # the task's own
                raise
            there.look()


def _done(task: Callable[[Json], Json], jobs: str) -> list[Json] | str:
    """What a worker does: results of the first jobs, or in words why it can do none of them.

    Args:
        jobs: a list of them, as JSON text.
    """
    give_back = time.monotonic() + _TASK_SECONDS
    results: list[Json] = []
    try:
        for job in json.loads(jobs):
            if results and time.monotonic() > give_back:
                break
            results.append(task(job))
    except GradingError as error:
        return str(error)
    return results
