"""ARCHITECTURE.md names every package and module, and nothing that does not exist."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
SOURCES = (ROOT / "gradtrace/src/gradtrace", ROOT / "src/backward_twice")


def described() -> dict[str, dict[str, str]]:
    """The sentence of each module, by folder and file name."""
    folders = {}
    for folder, body in re.findall(r"^### `(.+?)/`\n(.*?)(?=^##|\Z)", PAGE, re.S | re.M):
        folders[folder] = dict(re.findall(r"^- `(\S+)`: (.+)$", body, re.M))
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
    for source in (*SOURCES, ROOT / "book/_ext"):
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
    text = re.sub(r"^### .*$|^- `[^`/]+`:", "", PAGE, flags=re.M)
    roots = (ROOT, *SOURCES, SOURCES[0] / "player")
    for path in set(re.findall(r"`([\w./]+/?)`", text)):
        if path.endswith(("/", ".py", ".js", ".css", ".yml")):
            assert any((root / path).exists() for root in roots), path


def parsed_files() -> Iterator[tuple[Path, str, ast.Module]]:
    """Each Python file, the name of its package, and its syntax tree."""
    for source in SOURCES:
        for path in sorted(source.rglob("*.py")):
            package = ".".join(path.parent.relative_to(source.parent).parts)
            yield path, package, ast.parse(path.read_text(encoding="utf-8"))


def test_no_module_has_the_name_of_what_its_package_exports():
    """Otherwise `import package.name as x` gives the function, and a patch of `x` is lost."""
    for path, package, tree in parsed_files():
        if path.name != "__init__.py":
            continue
        exported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module != package
            for alias in node.names
        }
        exported |= {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        siblings = {
            sibling.stem for sibling in path.parent.iterdir() if sibling.suffix in ("", ".py")
        }
        assert not exported & siblings, f"{path}: {sorted(exported & siblings)}"


def test_an_import_inside_a_function_says_why():
    """An import that a function delays may hide a cycle, so each delay has its reason above it."""
    an_import = re.compile(r"\s+(import [\w.]+|from [\w.]+ import .+)( as \w+)?( +#.*)?")
    for path, _, _ in parsed_files():
        lines = filter(str.strip, path.read_text(encoding="utf-8").splitlines())
        for above, line in pairwise(lines):
            if an_import.fullmatch(line) and not an_import.fullmatch(above):
                explained = "# " in above + line or above.startswith("if TYPE_CHECKING:")
                assert explained, f"{path}: {line.strip()}"


def test_private_names_of_pytorch_stand_in_one_place():
    """A new release renames them: then `_torch.py` and `_torch_hooks.py` are all that changes."""
    trees = {path: tree for path, package, tree in parsed_files() if "gradtrace" in path.parts}
    own = {"_replace", "_asdict", "_fields"}  # and those of the standard library
    own |= {"_getframe", "_exit", "_xoptions", "_option_string_actions"}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                own.add(node.name)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                own.add(node.id if isinstance(node, ast.Name) else node.attr)
    for path, tree in trees.items():
        if path.name in ("_torch.py", "_torch_hooks.py"):
            continue
        for node in ast.walk(tree):
            name = node.attr if isinstance(node, ast.Attribute) else ""
            if re.match("_[a-z]", name) and name not in own:
                # A snapshot reads it of each saved tensor: a call would take longer.
                assert (path.name, name) == ("saved.py", "_version"), (path, name)


def test_files_and_the_top_level_stay_small():
    """In longer modules, and in packages with many modules, readers do not find their way."""
    assert len([*SOURCES[0].glob("*.py")]) <= 14
    for source in SOURCES:
        for path in source.rglob("*"):
            if path.suffix in (".py", ".js"):
                lines = path.read_text(encoding="utf-8").count("\n")
                assert lines <= 600, f"{path} has {lines} lines"
