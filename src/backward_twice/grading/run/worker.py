"""What a Dask worker of ours does as it starts: it keeps quiet, and to a processor of its own.

A worker sets its loggers up anew and takes no word of the process that starts it, so this is one of
its preloads.  It imports nothing large: a worker has to be there in a moment.

A submission's processes wait for one another: worker, warm process, keeper, submission.  The kernel
wakes each wherever it likes, behind another worker's too, and so leaves a seventh of two processors
idle.  Where there is a worker for each processor, a worker and all that it starts keep to one.
"""

from __future__ import annotations

import logging
import os
import warnings

import dask
from distributed import Worker

_SPEAKERS = ("distributed", "tornado", "asyncio")
PROCESSORS = "backward_twice.processors"
"""The setting that has the processors, in the order of the workers; empty if none keeps to one."""


def settings(number: int) -> dict[str, object]:
    """What Dask has to be set to, so that ``number`` workers that it starts here do all this."""
    here = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return {
        "distributed.worker.preload": [__name__],
        PROCESSORS: here if len(here) == number else [],
    }


def be_quiet() -> None:
    """Silence what Dask and the libraries under it log and warn of, in this process."""
    for name in [*_SPEAKERS, *logging.root.manager.loggerDict]:
        if name.partition(".")[0] in _SPEAKERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module=r"distributed\b")


def dask_setup(worker: Worker) -> None:
    """What Dask calls in a worker that has this module as a preload."""
    be_quiet()
    if processors := dask.config.get(PROCESSORS, []):
        # Its name is its number.  What starts threads and processes here is this thread.
        os.sched_setaffinity(0, {processors[int(worker.name)]})
