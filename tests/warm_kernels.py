"""Kernels that need not import PyTorch: ``pytest -p warm_kernels --nbval …``.

One process for each of pytest's imports PyTorch and the kernel, computes nothing, and each
notebook's kernel is a fork of it: two seconds of the processor saved for each.  It has its own
folder, environment, session of processes and ``__main__``, as one that is started, and no package
of ours is imported before the fork.  What a notebook forgot to import of PyTorch may be there all
the same: ``make notebooks`` starts each kernel as a reader does.  Where processes cannot be forked
safely (all but Linux), and without this plugin, each is started; so it is where a GPU is used,
which a fork may not find as it was.
"""

import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

NAME = "warm"


class Forked:
    """A fork, with what a kernel's provisioner asks of a :class:`subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._ended: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._ended = None

    def poll(self) -> int | None:
        """0 when it has ended, whatever its status; else None."""
        if self._ended is not None:
            if not select.select([self._ended], [], [], 0)[0]:
                return None
            os.close(self._ended)
            self._ended = None
        return 0

    def wait(self) -> int:
        if self._ended is not None:
            select.select([self._ended], [], [])
        return self.poll() or 0

    def send_signal(self, number: int) -> None:
        if self._ended is not None:
            signal.pidfd_send_signal(self._ended, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Server:
    """The process that forks; it ends when this one does, or lets go of it."""

    _process: subprocess.Popen[str] | None = None
    _folder: tempfile.TemporaryDirectory[str]

    @classmethod
    def fork(cls, command: list[str], folder: str, environment: dict[str, str]) -> Forked:
        if cls._process is None:
            # Frames of ours are below a notebook's: in this folder they count as a library's.
            cls._folder = tempfile.TemporaryDirectory()
            here = Path(cls._folder.name, "site-packages")
            here.symlink_to(Path(__file__).parent)
            cls._process = subprocess.Popen(
                [sys.executable, "-P", here / Path(__file__).name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        job = {"command": command, "folder": folder, "environment": environment}
        print(json.dumps(job), file=cls._process.stdin, flush=True)
        return Forked(int(cls._process.stdout.readline()))

    @classmethod
    def end(cls) -> None:
        if cls._process is not None:
            cls._process.communicate()
            cls._process = None
            cls._folder.cleanup()


def pytest_configure() -> None:
    provision()


def provision() -> None:
    """Have every kernel that this process starts forked by a :class:`Server`."""
    if sys.platform != "linux":
        return
    from jupyter_client.provisioning import KernelProvisionerFactory

    factory = KernelProvisionerFactory.instance()
    factory.provisioners[NAME] = EntryPoint(
        NAME, f"{__name__}:provisioner", KernelProvisionerFactory.GROUP_NAME
    )
    factory.default_provisioner_name = NAME


def pytest_unconfigure() -> None:
    Server.end()


def provisioner(**given: Any) -> Any:
    from jupyter_client.provisioning import LocalProvisioner

    class WarmProvisioner(LocalProvisioner):
        async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
            self.cwd = kwargs.get("cwd") or Path.cwd()
            self.process = Server.fork(cmd, str(self.cwd), kwargs["env"])
            self.pid = self.pgid = self.process.pid  # it leads a session of its own
            return self.connection_info

    return WarmProvisioner(**given)


def serve() -> None:
    """Fork for each line that comes; one of them is a kernel's command, folder and environment."""
    import ipykernel.kernelapp  # noqa: F401
    import torch

    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # imports the compiler
    while line := sys.stdin.readline():
        reap()
        process = os.fork()
        if not process:
            become(**json.loads(line))
        print(process, flush=True)
    reap()


def reap() -> None:
    """Take leave of the kernels that have ended; nobody asks how."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def become(command: list[str], folder: str, environment: dict[str, str]) -> None:
    """Be the kernel that ``python … -m module arguments`` would be; it does not return."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    module = command.index("-m") + 1
    sys.argv = command[module:]
    status = 1
    with suppress(SystemExit):
        runpy.run_module(command[module], run_name="__main__", alter_sys=True)
        status = 0
    os._exit(status)


if __name__ == "__main__":
    serve()
