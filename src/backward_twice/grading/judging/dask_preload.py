"""The first module that a Dask worker of ours loads: it silences Dask.

A worker configures its loggers itself and inherits nothing from the process that starts it, so this
is one of its preloads.  It imports nothing large, so that a worker starts quickly.
"""

from __future__ import annotations

import logging
import warnings

from distributed import Worker

_SPEAKERS = ("distributed", "tornado", "asyncio")


def be_quiet() -> None:
    """Silence the logs and warnings of Dask and the libraries under it, in this process."""
    for name in [*_SPEAKERS, *logging.root.manager.loggerDict]:
        if name.partition(".")[0] in _SPEAKERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module=r"distributed\b")


def dask_setup(worker: Worker) -> None:
    """Set a worker up; Dask calls this in every worker that has this module as a preload."""
    be_quiet()
