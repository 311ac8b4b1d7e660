"""Distribute jobs over worker processes, two to each at a time, and yield results as they arrive.

Jobs are created only as workers need them, so a class of ten thousand takes as much memory as one
of ten.  If a worker dies, such as when the machine is out of memory, only its job is affected, and
another worker takes its place.  The job is tried again at the end, alone, because another job may
have been the cause.  A job that exceeded its wall-clock time is also tried again.  The second
result is final, and a job that still kills its worker has failed.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain, islice
from typing import Any

from backward_twice.grading import GradingError
from backward_twice.grading.judging.grader import Json, failed, grade
from backward_twice.grading.limited import Limited

_JOBS_EACH = 2
"""Jobs for each worker: one that runs and one that waits, so that no worker waits for a job."""

RETRY_SECONDS = 600.0
"""Wall-clock time after the first retry of a slow job, after which no further retry begins."""

SAVED = "the results so far are saved: start again to continue"

Tagged = tuple[Any, Json]
"""The caller's tag of a job, and the job or its result."""


class Workers(AbstractContextManager):
    """Worker processes, each with a thread of this process; leaving the context ends them."""

    def __init__(self, number: int) -> None:
        """Set the number of workers; each starts at its first job, and again after it died."""
        self.number = number
        # No limits: what costs time and memory runs in sandboxes, which have their own.
        self._processes = [Limited(seconds=None) for _ in range(number)]
        self._idle = self._processes.copy()
        self._threads = ThreadPoolExecutor(number)

    def submit(self, task: Callable[[Json], Json], job: Json) -> Future[Json]:
        """Submit a job to a worker; the returned future raises errors as :meth:`.Limited.call`."""
        return self._threads.submit(self._call, partial(task, job))

    def _call(self, function: Callable[[], Json]) -> Json:
        process = self._idle.pop()  # there are as many as threads
        try:
            return process.call(function)
        finally:
            self._idle.append(process)

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.kill()
        self._threads.shutdown()
        for process in self._processes:
            process.close()


def run(
    workers: Workers, jobs: Iterable[Tagged], task: Callable[[Json], Json] = grade
) -> Iterator[Tagged]:
    """Run the jobs, yield their tags and results; raise GradingError if a worker cannot grade."""
    slow: list[tuple[Any, Json, Json]] = []
    failures: list[Tagged] = []
    for tag, job, result in _results(workers, iter(jobs), task, _JOBS_EACH * workers.number):
        if isinstance(result, Exception):
            failures.append((tag, job))
        elif result.get("slow"):
            slow.append((tag, job, result))
        else:
            yield tag, result
    # Nothing waits any more: a worker each, and no two jobs on one.
    retries = _results(workers, _in_time(slow), task, workers.number)
    for tag, job, result in chain(retries, slow):
        if isinstance(result, Exception):
            failures.append((tag, job))
        else:
            yield tag, _final(result)
    for tag, job, result in _results(workers, iter(failures), task, 1):
        if isinstance(result, Exception):  # a fault of the grader's own must not stop the others
            result = failed(job, f"the grader failed: {result}"[:500])
        yield tag, _final(result)


def _final(result: Json) -> Json:
    return {name: value for name, value in result.items() if name != "slow"}


def _in_time(slow: list[tuple[Any, Json, Json]]) -> Iterator[Tagged]:
    """Remove and yield the slow jobs one by one, until :data:`RETRY_SECONDS` have passed."""
    end = time.monotonic() + RETRY_SECONDS
    while slow and time.monotonic() < end:
        tag, job, _ = slow.pop(0)
        yield tag, job


def _results(
    workers: Workers, jobs: Iterator[Tagged], task: Callable[[Json], Json], at_once: int
) -> Iterator[tuple[Any, Json, Json | Exception]]:
    """Yield each job's tag, the job, and its result or error; at most ``at_once`` are under way."""
    pending: dict[Future[Json], Tagged] = {}
    while True:
        for tag, job in islice(jobs, at_once - len(pending)):
            pending[workers.submit(task, job)] = tag, job
        if not pending:
            return
        for future in wait(pending, return_when=FIRST_COMPLETED).done:
            error = future.exception()
            if isinstance(error, GradingError):
                raise GradingError(f"{error}; {SAVED}") from error
            yield *pending.pop(future), error or future.result()
