"""Sandboxes where bubblewrap is not: an account of its own, a container, or none at all.

The account is for root inside a container that a platform locked down, such as Gradescope's: a
user that is nobody else's, under which a fork of the warm process runs, and all of whose processes
are killed at its end.  The container is docker's or podman's, one for each submission.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from backward_twice.grading.forks import (
    COLD,
    START,
    Fork,
    WarmProcess,
    cold_end,
    environment,
    memory_of,
)
from backward_twice.grading.place import Limits, Run, Sandbox, SandboxError


class _AccountRun(Fork):
    def __init__(self, warm: WarmProcess, job: bytes, limits: Limits) -> None:
        self._warm = warm
        self._folder = tempfile.mkdtemp(prefix="submission-")
        Path(self._folder).chmod(0o1777)
        try:
            terms = {"limits": limits.of_kernel(), "folder": self._folder}
            super().__init__(warm, job, terms, None)
        except BaseException:
            shutil.rmtree(self._folder)
            raise

    def memory(self) -> int:
        found = []
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if path.name.isdigit() and f"\nUid:\t{self._warm.uid}\t" in (
                    path / "status"
                ).read_text(errors="replace"):
                    found.append(path)
        return memory_of(found)

    def close(self) -> None:
        try:
            self.end_fork()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


class Account(Sandbox):
    kind = "account"

    def __init__(self, hide: tuple[Path, ...]) -> None:
        if os.geteuid() != 0:
            raise SandboxError("a submission gets an account of its own only from root")
        for path in hide:
            if _open_to_others(path):
                raise SandboxError(f"every user can read {path}; give it mode 700")
        for path in map(Path, {sys.prefix, sys.base_prefix}):
            if not _open_to_others(path):
                raise SandboxError(f"another user cannot read Python's own folder, {path}")
        self._warm = WarmProcess()

    def start(self, job: bytes, limits: Limits) -> Run:
        return _AccountRun(self._warm, job, limits)

    def close(self) -> None:
        self._warm.close()


def _open_to_others(path: Path) -> bool:
    """Whether a user who is nobody can enter the folder ``path`` or read it."""
    path = path.resolve()
    return (
        path.exists()
        and bool(path.stat().st_mode & 0o5)
        and all(folder.stat().st_mode & 0o1 for folder in path.parents)
    )


class _ColdRun(Run):
    status = None
    patience = START

    def __init__(self, command: list[str], job: bytes, env: dict[str, str], end: list[str]) -> None:
        self._end = end
        self._folder = tempfile.TemporaryDirectory(prefix="submission-")
        with tempfile.TemporaryFile() as given:
            given.write(job)
            given.seek(0)
            self._process = subprocess.Popen(
                command,
                stdin=given,
                stdout=subprocess.PIPE,
                env=env,
                cwd=self._folder.name,
                start_new_session=True,
            )
        self.events = self._process.stdout.fileno()
        os.set_blocking(self.events, False)

    def how_ended(self) -> str:
        return cold_end(self._process)

    def memory(self) -> int:
        return 0

    def close(self) -> None:
        if self._end:
            subprocess.run(self._end, capture_output=True, check=False)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()


class Container(Sandbox):
    kind = "container"

    def __init__(self, image: str | None) -> None:
        self._program = shutil.which("docker") or shutil.which("podman")
        if self._program is None:
            raise SandboxError("neither docker nor podman is installed")
        if not image:
            raise SandboxError("name a container image that has this package installed")
        self._image = image

    def start(self, job: bytes, limits: Limits) -> Run:
        name = f"submission-{secrets.token_hex(8)}"
        inside = json.dumps(limits.of_kernel(processes=False))
        memory = str(limits.memory + (1 << 30))
        command = [
            *(self._program, "run", "--rm", "--interactive", "--name", name),
            *("--network", "none", "--read-only", "--cap-drop", "ALL"),
            *("--security-opt", "no-new-privileges", "--user", "65534:65534"),
            *("--pids-limit", str(limits.processes + 1)),
            *("--memory", memory, "--memory-swap", memory),
            *("--tmpfs", f"/tmp:rw,nosuid,nodev,size={limits.files},mode=1777"),
            *("--workdir", "/tmp", "--env", "HOME=/tmp", "--env", "OMP_NUM_THREADS=1"),
            *("--env", f"BACKWARD_TWICE_LIMITS={inside}", "--entrypoint", "python"),
            *(self._image, *COLD),
        ]
        # docker's own command, unlike the submission, needs the environment: where its daemon is
        return _ColdRun(command, job, dict(os.environ), [self._program, "kill", name])


class Unprotected(Sandbox):
    kind = "none"

    def start(self, job: bytes, limits: Limits) -> Run:
        inside = json.dumps(limits.of_kernel(processes=False))
        command = [sys.executable, *COLD]
        return _ColdRun(command, job, {**environment(), "BACKWARD_TWICE_LIMITS": inside}, [])
