"""The magics of a notebook: ``%explain``, and ``%explain --fix``."""

from __future__ import annotations

from typing import Any

from gradtrace.explaining.postmortem import explain
from gradtrace.repair.cells import fix


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext gradtrace``: the magic ``%explain`` explains the last error."""

    def magic(line: str) -> None:
        if line.split() == ["--fix"]:
            print(fix(ipython))
            return
        try:
            found = explain()
        except ValueError as error:
            print(error)
            return
        print("this is not an error of autograd" if found is None else found.text())

    ipython.register_magic_function(magic, magic_kind="line", magic_name="explain")
