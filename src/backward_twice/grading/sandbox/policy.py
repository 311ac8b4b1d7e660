"""The arguments of bubblewrap, which alone decide what a submission may see."""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from backward_twice.grading.sandbox.process import OURS, folder_of


def bubblewrap_arguments(hide: Iterable[Path] = ()) -> list[str]:
    """Return the arguments with which bubblewrap creates a submission's namespaces.

    A submission sees ``/usr``, the Python installation and its packages, all read-only, and one
    writable folder, ``/tmp``, but not the grader's environment, processes or network.  The folders
    ``hide`` stay out of sight even within a visible folder.  The checkout of this package is hidden
    anyway, and so is the package with the right answers, which the warm process has in memory.
    """
    root = os.geteuid() == 0
    namespaces = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    links = []
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            links += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            links += ["--ro-bind", str(path), str(path)]
    devices = [f"/dev/{name}" for name in ("null", "full", "random", "urandom")]
    return [
        *namespaces,
        # Root becomes a user of its own later; a user namespace would make it root again.
        *([] if root else ["--unshare-user"]),
        *("--hostname", "sandbox", "--die-with-parent", "--new-session", "--clearenv"),
        *("--cap-drop", "ALL", "--ro-bind", "/usr", "/usr", *links),
        *("--dir", "/dev", "--dir", "/etc"),
        *("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"),
        *("--ro-bind-try", "/etc/alternatives", "/etc/alternatives"),
        *("--perms", "1777", "--tmpfs", "/tmp"),
        *_folders(hide),
        *("--proc", "/proc"),
        # Not --dev: its devpts needs a second user namespace, and setns enters but one.  No zero:
        # a shared mapping of it is memory that no process is charged for.
        *(argument for device in devices for argument in ("--dev-bind", device, device)),
        *("--symlink", "/tmp", "/dev/shm"),
        *("--remount-ro", "/", "--remount-ro", "/proc", "--chdir", "/tmp"),
    ]


def _folders(hide: Iterable[Path]) -> Iterator[str]:
    """Yield the arguments that show folders and hide others within them, outer ones first."""
    visible = {Path(sys.prefix), Path(sys.base_prefix)}
    for name in ("torch", "IPython", "gradtrace", "backward_twice"):
        folder = folder_of(name)
        visible.add(folder.parent if folder.parent.name.endswith("-packages") else folder)
    remounts = []
    hidden = {Path(path).resolve() for path in hide}
    if (checkout := OURS.parent.parent / "pyproject.toml").exists():
        hidden.add(checkout.parent)
    hidden.add(OURS)
    visible.discard(OURS)
    visible = {path.resolve() for path in visible} | visible
    for path in sorted(visible | hidden, key=lambda path: len(path.parts)):
        containers = [folder for folder in (*visible, Path("/usr")) if folder in path.parents]
        if path in hidden:
            if containers:
                yield from ("--perms", "0755", "--tmpfs", str(path))
                remounts += ["--remount-ro", str(path)]
        elif not containers or any(folder in path.parents for folder in hidden):
            # bubblewrap itself creates the folders above, but so that only root may enter them.
            for parent in reversed(path.parents[:-1]):
                hidden_within = [folder for folder in hidden if folder in parent.parents]
                if hidden_within or not any(
                    folder in (parent, *parent.parents) for folder in (*visible, Path("/usr"))
                ):
                    yield from ("--dir", str(parent))
            yield from ("--ro-bind", str(path), str(path))
    yield from remounts
