"""Run a function for every setting of its controls, and play the traces."""

import functools
import hashlib
import itertools
import json
import math
import os
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ipywidgets
from IPython import get_ipython
from IPython.display import display

from gradtrace.notebook.controls import MAX_SETTINGS, Control, controls_of, function_name
from gradtrace.notebook.reader_edits import Edits, compiled, definitions, expression
from gradtrace.notebook.widget import Player
from gradtrace.player.outcome import describe_outcome
from gradtrace.player.page import framed, standalone, static_html, write
from gradtrace.player.playback import Trace, trace
from gradtrace.questions import Asked, Program

_EDITS = "edits"  # the name of their control
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


class Exploration:
    """The result of :func:`explore`: call it, ask it for traces, display it, or link its player.

    ``controls`` maps each name to its :class:`Control`; ``player`` is the live
    :class:`~gradtrace.Player`; ``widget`` shows both as ipywidgets. ``question`` is the
    :class:`~gradtrace.questions.Question` asked, or None; ``player.answer`` is the answer.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        controls: dict[str, Control],
        constants: dict[str, Any],
        ask: Asked | None = None,
        edits: Edits | None = None,
    ):
        functools.update_wrapper(self, function)
        self.__name__ = function_name(function)
        self._function = function
        self._edits = edits
        self._own_source = ""  # of a program that the reader wrote
        self.controls = controls
        self._constants = constants
        self._choosing = False
        self._traces: dict[tuple[int | str, ...], Trace] = {}
        values = [[value for _, value in control.options] for control in controls.values()]
        self._stored = [
            self.trace(**dict(zip(controls, setting, strict=True)))
            for setting in itertools.product(*values)
        ]
        options = {name: control.options for name, control in controls.items()}
        program = Program(self.__name__, self.trace, options, self.setting)
        self.question = None if ask is None else ask.put_to(program)
        self.player = Player(
            self.trace(),
            question=asdict(self.question) if self.question else None,
            setting=self._indices(),
            controls=self._controls(live=True),
            key=self._key,
        )
        self.player.observe(self._chosen, "setting")
        self.player.run_source = self._run_source
        for control in controls.values():
            control.widget.observe(self._changed, "value")

    @functools.cached_property
    def widget(self) -> ipywidgets.VBox:
        widgets = [control.widget for control in self.controls.values()]
        return ipywidgets.VBox([ipywidgets.HBox(widgets), self.player])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function itself, untraced and unedited."""
        return self._function(*args, **kwargs)

    def edited(self, edits: str) -> Callable[..., Any]:
        """Return the function with the edits that a text names, in the order of ``edits``: "a + b".

        Raises:
            ValueError: there are no such edits.
        """
        if self._edits is None:
            raise ValueError(f"{self.__name__} has no edits: list them as explore(edits=...)")
        return self._edits.function(edits)

    @property
    def setting(self) -> dict[str, Any]:
        """Return the current value of each control."""
        return {name: control.value for name, control in self.controls.items()}

    def trace(self, **setting: Any) -> Trace:
        """Return the trace for this setting; a control that is not named keeps its current value.

        Raises:
            TypeError: a name is not one of the controls.
            ValueError: ``edits`` names edits that do not exist.
        """
        for name in setting:
            if name not in self.controls:
                raise TypeError(
                    f"{self.__name__} has no control {name!r}; its controls are "
                    f"{', '.join(self.controls)}"
                )
        values = {name: setting.get(name, c.value) for name, c in self.controls.items()}
        key = tuple(
            repr(values[name]) if (index := control.index(values[name])) is None else index
            for name, control in self.controls.items()
        )
        if _EDITS in self.controls and values[_EDITS] is None:
            key = (*key, self._own_source)
        if key not in self._traces:
            call = functools.partial(self._program(values), **values, **self._constants)
            self._traces[key] = trace(call, peaks=True)
        return self._traces[key]

    def _program(self, values: dict[str, Any]) -> Callable[..., Any]:
        """Remove the edits from ``values``; return the function with them, or the reader's own."""
        if self._edits is None:
            return self._function
        edits = values.pop(_EDITS)
        if edits is None:
            return compiled(self._edits.original, self._own_source)
        return self._edits.function(edits)

    def _run_source(self, source: str) -> None:
        """Replace the program by one that the reader wrote, and play it."""
        assert self._edits is not None
        compiled(self._edits.original, source)  # raises before anything has changed
        self._own_source = source
        self._choosing = True
        try:
            self.controls[_EDITS].widget.value = None
        finally:
            self._choosing = False
        self.player.show(self.trace(), self._indices())

    def __repr__(self) -> str:
        lines = [f"{self.__name__}: {len(self._stored)} setting(s)"]
        named = [[f"{c.name}={label}" for label, _ in c.options] for c in self.controls.values()]
        for setting, stored in zip(itertools.product(*named), self._stored, strict=True):
            end = textwrap.shorten(describe_outcome(stored)[0], 90, placeholder=" ...")
            lines.append(f"  {', '.join(setting)}: {end}")
        return "\n".join(lines)

    def _indices(self) -> list[int | None]:
        """Return the index of each control's value in its choices; None if it is not among them."""
        return [control.choice for control in self.controls.values()]

    def _changed(self, _: Any) -> None:
        """Play the current setting, unless other controls are still to be set."""
        if not self._choosing:
            self.player.show(self.trace(), self._indices())

    def _chosen(self, change: dict[str, Any]) -> None:
        """Set the controls as the reader chose on the page, and play that setting."""
        if change["new"] == self._indices():
            return
        self._choosing = True
        try:
            for control, index in zip(self.controls.values(), change["new"], strict=True):
                if index is not None and index != control.choice:
                    control.widget.value = control.choices[index][1]
        finally:
            self._choosing = False
        self._changed(change)

    @property
    def _key(self) -> str:
        """Return a key that is equal for the same program and controls, whatever the traces are."""
        source = self._stored[0].source
        program = json.dumps([self.__name__, source, self._controls()])
        return hashlib.sha256(program.encode("utf-8", "backslashreplace")).hexdigest()[:16]

    def _controls(self, live: bool = False) -> list[dict[str, Any]]:
        """Return the controls as the front end draws them."""
        return [
            {
                "name": control.name,
                "kind": control.kind,
                "options": [label for label, _ in (control.choices if live else control.options)],
                **(self._edits_data(live) if self._edits and control.name == _EDITS else {}),
            }
            for control in self.controls.values()
        ]

    def _edits_data(self, live: bool) -> dict[str, Any]:
        assert self._edits is not None
        options = {
            name: control.choices if live else control.options
            for name, control in self.controls.items()
            if name != _EDITS
        } | {name: ((name, value),) for name, value in self._constants.items()}
        arguments = {
            name: [expression(value, label) for label, value in pairs]
            for name, pairs in options.items()
        }
        cell = {"definitions": definitions(self._edits.original), "arguments": arguments}
        return self._edits.data() | {"cell": cell}

    def to_html(self, path: str | Path) -> None:
        """Write a page that plays every setting, the current one first, in one file."""
        write(self._page(), path)

    def _page(self) -> str:
        return standalone(
            self._stored, f"{self.__name__}, line by line", self._controls(), self._initial(),
            question=self.question,
        )  # fmt: skip

    def _mime_(self) -> tuple[str, str]:
        """Return the player of every setting in a frame, for marimo."""
        return "text/html", framed(self._page())

    def _initial(self) -> list[int]:
        """Return the index of each control's option with which a page without a kernel begins."""
        return [control.index(control.value) or 0 for control in self.controls.values()]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Return a page that needs no kernel, and that joins a live player.

        Jupyter prefers a widget's view to any page, and shows an error once the widget is gone, so
        it gets no view. VS Code and Colab create the models of views only, and show the page in
        place of a view that is gone, so they get both.
        """
        carrier = _front_end_carrier(self.__name__)
        bundle: dict[str, Any] = {
            "text/plain": repr(self),
            "text/html": static_html(
                self._stored,
                self._controls(),
                self._initial(),
                question=self.question,
                key=self._key,
                carrier="" if carrier == self.__name__ else carrier,
            ),
        }
        if _needs_a_view():
            view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
            bundle[_WIDGET_VIEW] = view
        return bundle


_FIRST_DISPLAYED: dict[int, str] = {}  # by process: kernels may be forks of one


def _front_end_carrier(name: str) -> str:
    """Return the name of the player with which the notebook stores the front end.

    This is the one displayed first, even if it is displayed again, so that the front end is stored
    once. In Colab it is ``name``, as each output is a frame with its own copy.
    """
    if _in_colab():
        return name
    return _FIRST_DISPLAYED.setdefault(os.getpid(), name)


def _in_colab() -> bool:
    return "google.colab" in sys.modules


def _needs_a_view() -> bool:
    """Whether this kernel's front end is VS Code or Colab, as far as a kernel can tell."""
    shell = get_ipython()
    in_vs_code = shell is not None and "__vsc_ipynb_file__" in shell.user_ns
    return in_vs_code or _in_colab()


def explore(
    function: Callable[..., Any] | None = None,
    /,
    *,
    ask: Asked | None = None,
    edits: Mapping[str, Mapping[int | str, str]] | None = None,
    **controls: Any,
) -> Any:
    """Trace a function for every setting of its controls and display the player.

    Use it as ``ipywidgets.interact``: as a decorator, ``@explore(retain_graph=[False, True])``, or
    as a call, ``explore(function, retain_graph=[False, True])``.

    Args:
        controls: for each argument of the function that the reader may change, a value that
            ``interact`` takes: a bool, a list or dict of options, a ``(min, max[, step])`` tuple, a
            number, an ipywidget with finitely many values, or ``ipywidgets.fixed(value)``.
            :class:`DeviceDropdown` is the control for choosing a device.
        edits: the changes that the reader may make: for each edit its name, and for each line of
            the function (by its text or number) the text that replaces it.  An empty text removes
            the line; a line ``...`` stands for the line as it is, so that ``{"a.backward()":
            "...\\nh = w.exp()"}`` adds a line below it.  All combinations are run beforehand,
            except of edits that replace the same line.
        ask: a question that the player asks before it shows how the program ends, such as
            :class:`~gradtrace.questions.WhichLineRaises`.

    Returns:
        An :class:`Exploration`, which stands in for the function.

    Raises:
        TypeError: there is no control and no edit, the function has no such argument, an argument
            is left without a value, or one is called ``ask`` or ``edits``, like explore's own
            arguments; edits of something that is not defined with ``def``.
        ValueError: a control has no finite list of values, its options cannot be compared (tensors,
            arrays), or there are more than ``MAX_SETTINGS`` (64) settings; an edit names no line
            or gives no valid program; a question cannot be answered from the traces.

    >>> import torch
    >>> @explore(edits={"retain": {"y.backward()  # first": "y.backward(retain_graph=True)"}})
    ... def twice():
    ...     y = torch.ones(3, requires_grad=True).exp().sum()
    ...     y.backward()  # first
    ...     y.backward()
    twice: 2 setting(s)
      edits=as written: Line 5 raises RuntimeError: Trying to backward ...
      edits=retain: Ends without an error.
    >>> twice.trace(edits="retain").error is None
    True
    """
    if function is None:
        return functools.partial(explore, ask=ask, edits=edits, **controls)
    if ask is not None and not isinstance(ask, Asked):
        raise TypeError(
            f"ask={ask!r} is not a question: give one of gradtrace.questions, as "
            "ask=WhichLineRaises(); an argument of the function cannot be called ask"
        )
    if not controls and not edits:
        raise TypeError(
            f"explore({function_name(function)}) has no control: name at least one argument and "
            "its options, as in explore(f, retain_graph=[False, True]), or list edits=; without "
            "any, use trace(f)"
        )
    by_name, constants = controls_of(function, controls)
    variants = Edits(function, edits) if edits else None
    if variants is not None:
        dropdown = ipywidgets.Dropdown(options=variants.labels, description=_EDITS)
        options = tuple((label, label) for label in variants.labels)
        by_name = {_EDITS: Control(_EDITS, dropdown, _EDITS, options)} | by_name
    settings = math.prod(len(control.options) for control in by_name.values())
    if settings > MAX_SETTINGS:
        sizes = " × ".join(f"{name}: {len(c.options)}" for name, c in by_name.items())
        raise ValueError(
            f"explore({function_name(function)}) would run {settings} settings ({sizes}), and "
            f"{MAX_SETTINGS} is the limit: give fewer options"
        )
    exploration = Exploration(function, by_name, constants, ask, variants)
    display(exploration)
    return exploration
