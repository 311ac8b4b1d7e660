"""A container of docker's or podman's for each submission, where bubblewrap is not."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Sequence

from backward_twice.grading.sandbox.interface import Limits, Run, Sandbox, SandboxError
from backward_twice.grading.sandbox.process import RUNNER, OwnProcess


class Container(Sandbox):
    kind = "container"

    def __init__(self, image: str | None) -> None:
        self._program = shutil.which("docker") or shutil.which("podman")
        if self._program is None:
            raise SandboxError("neither docker nor podman is installed")
        if not image:
            raise SandboxError("name a container image that has this package installed")
        self._image = image

    def start(self, limits: Limits, exercises: Sequence[str] = ()) -> Run:
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
            *(self._image, *RUNNER, *exercises),
        ]
        # docker's own command, unlike the submission, needs the environment: where its daemon is
        return OwnProcess(command, dict(os.environ), [self._program, "kill", name])
