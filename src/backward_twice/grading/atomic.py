"""Write a file completely or not at all, so that no reader sees a part of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write to; afterwards the written file replaces ``path``."""
    half = path.with_name(f".{path.name}.new")
    try:
        yield half
        half.replace(path)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


def write(path: Path, content: bytes) -> None:
    """Write a file, and the folders above it, unless the file already has this content."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as half:
        half.write_bytes(content)
