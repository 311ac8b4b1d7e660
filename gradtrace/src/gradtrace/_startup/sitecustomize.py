"""The first module of a watched process: it waits for the program to import torch.

The command puts this folder first in ``PYTHONPATH``, and Python imports ``sitecustomize`` when it
starts. This module first restores the environment, ``sys.path`` and the user's own
``sitecustomize``, so that neither the program nor the processes that it starts see a change. Since
a program may set variables for torch before it imports torch, nothing is imported here: a finder at
the front of ``sys.meta_path`` starts the watch when the import of ``torch`` has ended. An exit
function, registered first and so called last, reports the findings.

It imports only modules that every Python process has loaded, because the program may have its own
``json``. Annotations are quoted where Python would evaluate them: ``typing`` is not loaded.
"""

# Not pathlib and not contextlib.
# ruff: noqa: PTH100, PTH120, SIM105

import atexit
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from gradtrace.session import Session


class _Waiting:
    """A finder that finds no module itself, but starts the session when ``torch`` is imported."""

    def __init__(self, strict: str, trace: str, page: str, report: str) -> None:
        self.options = bool(strict), trace, page, report
        self.wants_files = bool(trace or report)
        self.session: Session | None = None
        self.began = False
        self.process = os.getpid()

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                self.follow(spec.loader)
                return spec
        return None

    def follow(self, loader: "Any") -> None:
        """Begin the session once ``loader``, which stays the same object, has run the module."""
        attributes = getattr(loader, "__dict__", None)
        if not isinstance(attributes, dict) or not hasattr(loader, "exec_module"):
            return
        run, own_method = loader.exec_module, attributes.get("exec_module")

        def exec_module(module: "ModuleType") -> None:
            if own_method is None:
                del loader.exec_module  # the class's own is in sight again
            else:
                loader.exec_module = own_method
            run(module)
            self.begin()

        # Python leaves the frames of its import system out of tracebacks, and counts no warning
        # to them.  This function is a part of it for as long as the import lasts.
        exec_module.__code__ = exec_module.__code__.replace(
            co_filename="<frozen importlib._bootstrap>", co_name="_call_with_frames_removed"
        )
        loader.exec_module = exec_module

    def begin(self) -> None:
        self.began = True
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if os.getpid() == self.process:  # not a fork
            _guarded("cannot watch this program", self.open)

    def open(self) -> None:
        session = self.new()
        session.begin()
        self.session = session

    def end(self) -> None:
        if os.getpid() != self.process:
            return
        if "torch" in sys.modules and not self.began:
            _say("gradtrace: nothing was watched: another import hook loaded torch")
        elif self.session is not None or (self.wants_files and not self.began):
            _guarded("cannot report the findings", self.close)

    def close(self) -> None:
        (self.session or self.new()).end()

    def new(self) -> "Session":
        _import_gradtrace()  # which may lie in a folder that is not on the path
        from gradtrace.session import Session

        return Session(*self.options, _say)


def _guarded(what: str, step: "Callable[[], None]") -> None:
    """Run a step whose failure must not affect the program."""
    try:
        step()
    except Exception as error:
        _say(f"gradtrace: {what}: {type(error).__name__}: {error}")


def _say(text: str) -> None:
    if sys.stderr is not None:
        try:
            print(text, file=sys.stderr)
        except Exception:  # it was closed
            pass


def _import_gradtrace() -> None:
    """Import the gradtrace that the command belongs to, wherever it is installed."""
    if "gradtrace" in sys.modules:
        return
    # Not at the top: most programs that Python starts never import torch.
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    spec = PathFinder.find_spec("gradtrace", [folder])
    assert spec is not None and spec.loader is not None  # this file lies in it
    module = sys.modules["gradtrace"] = module_from_spec(spec)
    spec.loader.exec_module(module)


def _put_back() -> str:
    """Undo the command's changes of the environment and the path; return its options."""
    folder = os.path.dirname(os.path.abspath(__file__))
    session = os.environ.pop("GRADTRACE_SESSION")
    path = os.environ.pop("GRADTRACE_PYTHONPATH", None)
    if path is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = path
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    sys.path_importer_cache.pop(folder, None)
    del sys.modules["sitecustomize"]
    return session


if "GRADTRACE_SESSION" in os.environ:  # else somebody only looks at this file
    _waiting = _Waiting(*_put_back().split("\n"))
    atexit.register(_waiting.end)
    if "torch" in sys.modules:  # a .pth file wanted it
        _waiting.begin()
    else:
        sys.meta_path.insert(0, _waiting)
    # Import the user's own; without one, this raises the error that Python expects and ignores.
    __import__("sitecustomize")
