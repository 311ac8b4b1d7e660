"""``%load_ext gradtrace``: a plain watch over the notebook, and the magic ``%explain``.

The watch adds its explanation to an error as a note, which IPython prints under the traceback. An
error that ``backward()`` does not raise is explained when its cell has ended. ``%explain`` prints
the explanation again, also of an error from before the extension was loaded.
"""

import sys
from typing import Any

from IPython.core.magic import Magics, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from gradtrace.explaining.postmortem import explain
from gradtrace.explaining.watcher import explanation_of, notes_are_shown, watch
from gradtrace.repair.notebook_cells import fix_cells


@magics_class
class _Extension(Magics):
    """The state of the extension in one IPython shell."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.ipython = shell
        self.watch = watch()
        self.failed_cells: list[int] = []
        shell.events.register("post_run_cell", self.explain_cell)

    def explain_cell(self, result: Any) -> None:
        """Print the explanation of a cell's error, unless the traceback has shown it."""
        error = result.error_in_exec
        if not result.success and result.execution_count:
            self.failed_cells.append(result.execution_count)
        if isinstance(error, Exception) and explanation_of(error) is None:
            diagnosis = self.watch.explain(error)
            if diagnosis is not None and notes_are_shown():  # else the watch has printed it
                print(diagnosis.text(), file=sys.stderr)

    @magic_arguments()  # type: ignore[untyped-decorator]
    @argument("--fix", action="store_true", help="run the cells again to prove a repair")  # type: ignore[untyped-decorator]
    @argument("--help", action="store_true", help="show this help")  # type: ignore[untyped-decorator]
    @line_magic
    def explain(self, line: str) -> None:
        """Explain the last error of PyTorch's autograd."""
        options = parse_argstring(self.explain, line)
        if options.help:
            print(self.explain.parser.format_help().removeprefix("::\n\n"))
        elif options.fix:
            self.fix()
        else:
            try:
                diagnosis = explain()
            except ValueError as error:
                print(error)
                return
            none = "this is not an error of autograd"
            print(none if diagnosis is None else diagnosis.text())

    def fix(self) -> None:
        """Print a fix for the last error, or the reason why there is none."""
        error = getattr(sys, "last_value", None)
        if error is None:
            print("There is no error to repair. Run %explain --fix after an error was raised.")
            return
        cells = dict(enumerate(self.ipython.history_manager.input_hist_raw))
        last = self.failed_cells[-1] if self.failed_cells else self.ipython.execution_count - 1
        passed = {number: cell for number, cell in cells.items() if 0 < number < last}
        for number in self.failed_cells[:-1]:  # a later cell did what these tried
            passed.pop(number, None)
        print("The cells are run again as one script, several times. Each run really writes their")
        print("files and sends their requests.", flush=True)
        print(fix_cells({**passed, last: cells[last]}, error))


_EXTENSIONS: dict[Any, _Extension] = {}


def load_ipython_extension(ipython: Any) -> None:
    """Watch the notebook from now on (``%load_ext gradtrace``), and add ``%explain``."""
    if ipython not in _EXTENSIONS:
        _EXTENSIONS[ipython] = _Extension(ipython)
        ipython.register_magics(_EXTENSIONS[ipython])


def unload_ipython_extension(ipython: Any) -> None:
    """Stop watching the notebook, and remove ``%explain`` (``%unload_ext gradtrace``)."""
    extension = _EXTENSIONS.pop(ipython, None)
    if extension is not None:
        extension.watch.stop()
        ipython.events.unregister("post_run_cell", extension.explain_cell)
        del ipython.magics_manager.magics["line"]["explain"]
