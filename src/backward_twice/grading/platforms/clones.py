"""Students' clones of a repository: when their notebooks were committed.

A clone is the student's, with its configuration.  So git is asked by a command that only reads, and
may neither fetch anything nor verify signatures by a program of the configuration's choice.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_SECONDS = 10
_ENVIRONMENT = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}
_OPTIONS = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "log.showSignature=false")


def commit_time(clone: Path) -> str:
    """Return when a notebook was last committed, in ISO 8601 with an offset; "" if unknown.

    It is the time that the committer's machine had, so a student can set it.
    """
    command = ["git", *_OPTIONS, "-C", str(clone), "log", "-1", "--format=%cI", "--", "*.ipynb"]
    try:
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
            env={"PATH": os.environ.get("PATH", ""), "HOME": "/", **_ENVIRONMENT},
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return run.stdout.strip()
