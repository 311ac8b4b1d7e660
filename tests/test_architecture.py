"""ARCHITECTURE.md names every package and module, and nothing that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
SOURCES = (ROOT / "gradtrace/src/gradtrace", ROOT / "src/backward_twice")


def described() -> dict[str, dict[str, str]]:
    """The sentence of each module, by folder and file name."""
    folders = {}
    for folder, body in re.findall(r"^### `(.+?)/`\n(.*?)(?=^##|\Z)", PAGE, re.S | re.M):
        folders[folder] = dict(re.findall(r"^\| `(\S+)` \| (.+) \|$", body, re.M))
    return folders


def modules(source: Path) -> dict[str, set[str]]:
    """The files of each folder that a contributor may have to change."""
    exercises = {path.name for path in (ROOT / "solutions").iterdir()}
    folders: dict[str, set[str]] = {}
    for path in sorted(source.rglob("*")):
        relative = path.parent.relative_to(ROOT).as_posix()
        if path.suffix not in (".py", ".js", ".css"):
            continue
        names = folders.setdefault(relative, set())
        if path.name != "__init__.py" and not (
            path.parent.name == "checks" and path.stem in exercises
        ):
            names.add(path.name)
    return folders


def test_every_package_and_module_is_described():
    found = described()
    for source in SOURCES:
        for folder, names in modules(source).items():
            assert folder in found, f"{folder}/ has no section"
            undescribed = names - found[folder].keys()
            assert not undescribed, f"{folder}/: no sentence about {sorted(undescribed)}"


def test_nothing_is_described_that_does_not_exist():
    for folder, names in described().items():
        assert (ROOT / folder).is_dir(), folder
        missing = [name for name in names if not (ROOT / folder / name).exists()]
        assert not missing, f"{folder}/ has no {missing}"


def test_each_description_is_one_sentence():
    for folder, names in described().items():
        for name, sentence in names.items():
            assert re.fullmatch(r"[^a-z ].*[^.]\.", sentence), f"{folder}/{name}: {sentence}"
            assert ". " not in sentence, f"{folder}/{name}: {sentence}"


def test_paths_in_the_text_exist():
    text = re.sub(r"^### .*$|^\| `[^`/]+` \|", "", PAGE, flags=re.M)
    roots = (ROOT, *SOURCES, SOURCES[0] / "player")
    for path in set(re.findall(r"`([\w./]+/?)`", text)):
        if path.endswith(("/", ".py", ".js", ".css", ".yml")):
            assert any((root / path).exists() for root in roots), path
