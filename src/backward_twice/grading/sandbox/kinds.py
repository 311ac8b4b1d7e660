"""The kinds of sandbox: make one, share one for as long as a process lives, find one that works."""

from __future__ import annotations

import atexit
import functools
import os
import threading
from collections.abc import Iterable
from pathlib import Path

from backward_twice.grading.sandbox.account import Account
from backward_twice.grading.sandbox.bubblewrap import Bubblewrap
from backward_twice.grading.sandbox.container import Container
from backward_twice.grading.sandbox.interface import Kind, Limits, Sandbox, SandboxError
from backward_twice.grading.sandbox.steps import run_steps
from backward_twice.grading.sandbox.unprotected import Unprotected


def sandbox(
    kind: Kind, *, image: str | None = None, hide: Iterable[str | os.PathLike[str]] = ()
) -> Sandbox:
    """A sandbox of this kind; a context manager, that ends the process kept warm.

    Args:
        kind: ``bubblewrap``; ``container``, docker or podman, with the package in its image;
            ``account``, for root in a container that somebody else locked down: another user, but
            the same files, and only the filter against the network; ``none``, for work that is
            trusted, which is run with little protection.
        image: for ``container``, an image with this package and what it needs.
        hide: folders that a submission must not see; ``account`` refuses those that all can read.

    Raises:
        SandboxError: this machine has not what it takes.
    """
    folders = tuple(Path(path) for path in hide)
    if kind == "bubblewrap":
        return Bubblewrap(folders)
    if kind == "container":
        return Container(image)
    if kind == "account":
        return Account(folders)
    if kind == "none":
        return Unprotected()
    raise ValueError(f"no kind of sandbox: {kind!r}")


_sharing = threading.Lock()  # a cache alone lets two threads at once each make one


@functools.cache
def _shared(process: int, kind: Kind, image: str | None, hide: tuple[str, ...]) -> Sandbox:
    found = sandbox(kind, image=image, hide=hide)
    atexit.register(found.close)
    return found


def shared(kind: Kind, image: str | None = None, hide: Iterable[str] = ()) -> Sandbox:
    """This process's one sandbox of this kind, kept warm until the process ends."""
    with _sharing:
        return _shared(os.getpid(), kind, image, tuple(hide))


def available(image: str | None = None) -> Kind:
    """The kind of sandbox that works on this machine, tried out.

    Args:
        image: a container's image, to fall back on.

    Raises:
        SandboxError: none does; the message says why, and the ways out.
    """
    step = {"kind": "cell", "id": "try", "source": "print(1)"}
    refused = []
    for kind in ("bubblewrap", "container"):
        try:
            with sandbox(kind, image=image) as found:
                [result] = run_steps([step], Limits(), found)
            if result["output"] == "1\n":
                return kind
            refused.append(f"{kind}: {result['error']}")
        except (SandboxError, OSError) as error:
            refused.append(f"{kind}: {error}")
    raise SandboxError(
        "there is no sandbox to run students' work in.\n  "
        + "\n  ".join(refused)
        + "\nOn Linux install bubblewrap and libseccomp (apt install bubblewrap libseccomp2, "
        "dnf install bubblewrap libseccomp); "
        "elsewhere install docker or podman and name an image that has this package.  "
        "If you trust every submission as you trust your own code, say so, and it runs without."
    )
