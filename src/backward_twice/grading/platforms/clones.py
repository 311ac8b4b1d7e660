"""Students' clones of a repository: when their notebooks were committed.

A clone has the student's own configuration.  So git runs only a command that reads, and may neither
fetch anything nor verify signatures, for which the configuration names a program.  It does not look
for a repository in the folders above, which might be the teacher's.
"""

import os
import subprocess
from pathlib import Path

_SECONDS = 10
_ENVIRONMENT = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}
_OPTIONS = ("-c", "core.fsmonitor=false", "-c", "log.showSignature=false")


def commit_time(clone: Path) -> str:
    """Return when a notebook was last committed, in ISO 8601 with an offset; "" if unknown.

    The committer's machine sets this time, so a student can forge it.
    """
    repository = clone / ".git"
    if repository.is_symlink():
        return ""
    folders = (f"--git-dir={repository}", f"--work-tree={clone}")
    command = ["git", *_OPTIONS, *folders, "log", "-1", "--format=%cI", "--", ":(top)*.ipynb"]
    try:
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
            cwd=clone,
            env={"PATH": os.environ.get("PATH", ""), "HOME": "/", **_ENVIRONMENT},
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return run.stdout.strip()
