"""Keep Dask's own warnings from the teacher: what there is to say is said in the grader's words.

A worker sets its loggers up anew and takes no word of the process that starts it, so this is one of
its preloads.  It imports nothing large: a worker has to be there in a moment.
"""

from __future__ import annotations

import logging
import warnings

_SPEAKERS = ("distributed", "tornado", "asyncio")


def be_quiet() -> None:
    """Silence what Dask and the libraries under it log and warn of, in this process."""
    for name in [*_SPEAKERS, *logging.root.manager.loggerDict]:
        if name.partition(".")[0] in _SPEAKERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module=r"distributed\b")


def dask_setup(worker: object) -> None:
    """What Dask calls in a worker that has this module as a preload."""
    be_quiet()
