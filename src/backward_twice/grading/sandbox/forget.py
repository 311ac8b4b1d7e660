"""Load a submission's questions into its interpreter, without the right answers.

A process that asks a question need not know the answer.  So only the parts of an exercise's module
that the questions' ``run`` refers to are kept.  No other exercise's module is loaded, because it
may belong to an exam, and their folder is not listed, because a list would contain the exam's name.
"""

import sys
from collections.abc import Iterable
from dataclasses import replace
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from backward_twice import checks
from backward_twice.checks import Task

_FOLDER = Path(checks.__file__).parent


class _Unlisted:
    """Finds a module that exercises share without listing the folder, as Python would."""

    @staticmethod
    def find_spec(name: str, _: Any = None) -> ModuleSpec | None:
        file = _FOLDER / f"{name.rpartition('.')[2]}.py"
        return spec_from_file_location(name, file) if file.is_file() else None


def load_questions(exercises: Iterable[str]) -> None:
    """Load the modules of these exercises, and keep only the part of each question that asks it."""
    sys.path_importer_cache[checks.__path__[0]] = _Unlisted
    files = (_FOLDER / f"{exercise}.py" for exercise in exercises)
    modules = [_loaded(file) for file in files if file.is_file()]
    forget_folder()
    _forget_the_truth(modules)


def _loaded(file: Path) -> ModuleType:
    """Load an exercise's module without docstrings, which may contain the right answers."""
    spec = spec_from_file_location(f"{checks.__name__}.{file.stem}", file)
    module = sys.modules[spec.name] = module_from_spec(spec)
    code = compile(file.read_bytes(), file, "exec", dont_inherit=True, optimize=2)
    exec(code, vars(module))
    return module


def forget_folder() -> None:
    """Drop Python's cached list of the modules in this package's folder."""
    for path in [path for path in sys.path_importer_cache if Path(path) == _FOLDER]:
        del sys.path_importer_cache[path]


def _forget_the_truth(modules: list[ModuleType]) -> None:
    needed: set[int] = set()
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, Task):
                asking = replace(value, draw=_absent, expect=_absent, program=None)
                setattr(module, name, asking)
                needed.add(id(asking))
                _add_referred_to(value.run, needed)
    for module in modules:
        for name, value in list(vars(module).items()):
            if not (name.startswith("__") or isinstance(value, ModuleType) or id(value) in needed):
                delattr(module, name)


def _absent(*_: Any, **__: Any) -> Any:
    raise LookupError("this is known only where the answers are judged")


def _add_referred_to(value: Any, needed: set[int]) -> None:
    """Add to ``needed`` the ids of ``value`` and of all that its functions refer to by name."""
    if id(value) in needed:
        return
    needed.add(id(value))
    if isinstance(value, FunctionType):
        for name in _names_in(value.__code__):
            if name in value.__globals__:
                _add_referred_to(value.__globals__[name], needed)
        for cell in value.__closure__ or ():
            _add_referred_to(cell.cell_contents, needed)
    elif isinstance(value, type) and value.__module__.startswith(checks.__name__):
        for member in vars(value).values():
            _add_referred_to(getattr(member, "__func__", member), needed)
    elif isinstance(value, (dict, list, tuple)):  # a table of functions, say
        for member in value.values() if isinstance(value, dict) else value:
            _add_referred_to(member, needed)
    elif isinstance(function := getattr(value, "func", None), FunctionType):  # functools.partial
        _add_referred_to(function, needed)


def _names_in(code: CodeType) -> set[str]:
    inner = (_names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)
