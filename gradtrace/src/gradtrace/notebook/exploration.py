"""Run a function for every setting of its controls, and play the traces.

:func:`explore` reads its arguments as ``ipywidgets.interact`` does, with ipywidgets' own code, so
there is nothing new to learn.  Every setting is traced beforehand, with the bytes that are alive
inside of each line.  What is displayed and stored is a page that plays all of them without a kernel
(:func:`gradtrace.player.page.static_html`); while a kernel lives, page, :class:`~gradtrace.Player`
and the controls' ipywidgets move together.  With ``ask=`` the player asks before it shows
(:mod:`gradtrace.questions`).
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import json
import math
import os
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, overload

import ipywidgets
import torch
from IPython import get_ipython
from IPython.display import display

from gradtrace.notebook.widget import Player
from gradtrace.player.outcome import outcome
from gradtrace.player.page import framed, payload, standalone, static_html, write
from gradtrace.player.playback import Trace, trace
from gradtrace.questions import Asked, Program, line_of, place

MAX_SETTINGS = 64

_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


class DeviceDropdown(ipywidgets.Dropdown):
    """The devices of this machine.  A page without a kernel offers ``stored_options`` only.

    With ``GRADTRACE_DEVICE=cuda`` in the environment, what is called "cpu" runs there: what was
    stored on a CPU can then be compared with a run on a GPU.

    >>> DeviceDropdown().value
    'cpu'
    """

    def __init__(self, **kwargs: Any):
        device = os.environ.get("GRADTRACE_DEVICE")
        self.stored_options = (("cpu", device or "cpu"),)
        super().__init__(options=self.stored_options if device else available_devices(), **kwargs)


def available_devices() -> tuple[str, ...]:
    """``"cpu"``, then the type of this machine's accelerator if it has one.

    >>> available_devices()[0]
    'cpu'
    """
    if hasattr(torch, "accelerator"):  # torch 2.6 and newer
        available = torch.accelerator.is_available()
        accelerator = torch.accelerator.current_accelerator() if available else None
        return ("cpu",) if accelerator is None else ("cpu", accelerator.type)
    return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


@dataclass(frozen=True)
class Control:
    """One control: its widget, and the finite list of its options as ``(label, value)`` pairs.

    ``kind`` is ``"checkbox"``, ``"select"`` or ``"range"``.  ``options`` are those that a page
    without a kernel offers; ``choices`` are the live ones: a widget may have more.
    """

    name: str
    widget: ipywidgets.Widget
    kind: str
    options: tuple[tuple[str, Any], ...]

    @property
    def value(self) -> Any:
        return self.widget.value

    @property
    def choices(self) -> tuple[tuple[str, Any], ...]:
        """``options``, then what else the widget offers now."""
        live = _options(self.widget.options) if self.kind == "select" else []
        return *self.options, *(option for option in live if self.index(option[1]) is None)

    @property
    def choice(self) -> int | None:
        """The place of the widget's value among ``choices``, if it is there."""
        return place(self.value, self.choices)

    def index(self, value: Any) -> int | None:
        """The place of ``value`` among ``options``, if it is there; ``1`` is not ``True``."""
        return place(value, self.options)


class Exploration:
    """What :func:`explore` returns: call it, ask it for traces, display it, link its player.

    ``controls`` maps each name to its :class:`Control`; ``player`` is the live
    :class:`~gradtrace.Player`; ``widget`` shows both as ipywidgets, which end with the kernel.
    ``question`` is the :class:`~gradtrace.questions.Question` that the player asks, None where it
    asks nothing; what the reader answered is ``player.answer``.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        controls: dict[str, Control],
        constants: dict[str, Any],
        ask: Asked | None = None,
        step: int | Mapping[str, int | str] | None = None,
    ):
        functools.update_wrapper(self, function)
        self.__name__ = _name(function)
        self._function = function
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
        first = self.trace()
        self._step = _opening(step, first)
        self.player = Player(
            first,
            step=_index(self._step, first),
            question=asdict(self.question) if self.question else None,
            setting=self._indices(),
            settings=self._settings_data if len(self._stored) > 1 else None,
            controls=self._controls(live=True),
            key=self._key,
        )
        self.player.observe(self._chosen, "setting")
        for control in controls.values():
            control.widget.observe(self._changed, "value")

    @functools.cached_property
    def widget(self) -> ipywidgets.VBox:
        widgets = [control.widget for control in self.controls.values()]
        return ipywidgets.VBox([ipywidgets.HBox(widgets), self.player])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function itself, untraced."""
        return self._function(*args, **kwargs)

    @property
    def setting(self) -> dict[str, Any]:
        """The current value of each control."""
        return {name: control.value for name, control in self.controls.items()}

    def trace(self, **setting: Any) -> Trace:
        """The trace for this setting; controls that are not named are taken as they stand.

        Raises:
            TypeError: a name is not one of the controls.
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
        if key not in self._traces:
            call = functools.partial(self._function, **values, **self._constants)
            self._traces[key] = trace(call, peaks=True)
        return self._traces[key]

    def __repr__(self) -> str:
        lines = [f"{self.__name__}: {len(self._stored)} setting(s)"]
        for setting, seen in zip(self._settings(), self._stored, strict=True):
            end = textwrap.shorten(outcome(seen)[0], 90, placeholder=" ...")
            lines.append(f"  {setting}: {end}")
        return "\n".join(lines)

    def _indices(self) -> list[int | None]:
        """For each control the index of its choice; None for a value that is not among them."""
        return [control.choice for control in self.controls.values()]

    def _changed(self, _: Any) -> None:
        """A control has another value: the player follows, when all of them have."""
        if not self._choosing:
            self.player.show(self.trace(), self._indices())

    def _chosen(self, change: dict[str, Any]) -> None:
        """The reader chose a setting on the page: the controls follow."""
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
        """The same for the same program and controls, whatever they gave on this machine."""
        source = self._stored[0].source
        program = json.dumps([self.__name__, source, self._controls()])
        return hashlib.sha256(program.encode("utf-8", "backslashreplace")).hexdigest()[:16]

    def _controls(self, live: bool = False) -> list[dict[str, Any]]:
        """The controls as the front end draws them."""
        return [
            {
                "name": control.name,
                "kind": control.kind,
                "options": [label for label, _ in (control.choices if live else control.options)],
            }
            for control in self.controls.values()
        ]

    def _settings_data(self) -> dict[str, Any]:
        """What the live player compares with."""
        return {"controls": self._controls(), "traces": [payload(seen) for seen in self._stored]}

    def _settings(self) -> list[str]:
        named = [
            [f"{control.name}={label}" for label, _ in control.options]
            for control in self.controls.values()
        ]
        return [", ".join(setting) for setting in itertools.product(*named)]

    def to_html(self, path: str | Path) -> None:
        """Write a page that plays every setting: one file, to be opened and sent without a server.

        It begins with the setting that is shown now.
        """
        write(self._page(), path)

    def _page(self) -> str:
        return standalone(
            self._stored, f"{self.__name__}, line by line", self._controls(), self._initial(),
            step=self._step, question=self.question,
        )  # fmt: skip

    def _mime_(self) -> tuple[str, str]:
        """What marimo shows: the player of every setting, in a frame."""
        return "text/html", framed(self._page())

    def _initial(self) -> list[int]:
        """The setting that a page without a kernel begins with."""
        return [control.index(control.value) or 0 for control in self.controls.values()]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """A page that needs no kernel, and joins the player of one that lives.

        Jupyter prefers a widget's view to any page, and where the widget is gone it shows an error:
        no view goes there.  VS Code and Colab make the models of views only, and know what to show
        in place of one that is gone: they have both.
        """
        carrier = _front_end_carrier(self.__name__)
        bundle: dict[str, Any] = {
            "text/plain": repr(self),
            "text/html": static_html(
                self._stored,
                self._controls(),
                self._initial(),
                step=self._step,
                question=self.question,
                key=self._key,
                carrier="" if carrier == self.__name__ else carrier,
            ),
        }
        if _needs_a_view():
            view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
            bundle[_WIDGET_VIEW] = view
        return bundle


@functools.cache
def _first_displayed(kernel: int) -> list[str]:
    """The name of the player that this kernel displayed first, once there is one."""
    return []


def _front_end_carrier(name: str) -> str:
    """The player with which the notebook stores the front end.

    It is the one that was displayed first, also when it is displayed again, so that a notebook
    stores the front end once.  In Colab each output is a frame of its own and needs its own.
    """
    if _in_colab():
        return name
    first = _first_displayed(os.getpid())  # kernels may be forks of one process
    if not first:
        first.append(name)
    return first[0]


def _in_colab() -> bool:
    return "google.colab" in sys.modules


def _needs_a_view() -> bool:
    """Whether this kernel's front end is VS Code or Colab, as far as a kernel can tell.

    VS Code's Jupyter extension puts a name into the notebook's namespace, Colab a module into
    ``sys.modules``.
    """
    shell = get_ipython()
    in_vs_code = shell is not None and "__vsc_ipynb_file__" in shell.user_ns
    return in_vs_code or _in_colab()


@overload
def explore(
    function: None = None,
    /,
    *,
    ask: Asked | None = None,
    step: int | Mapping[str, int | str] | None = None,
    **controls: Any,
) -> Callable[[Callable[..., Any]], Exploration]: ...
@overload
def explore(
    function: Callable[..., Any],
    /,
    *,
    ask: Asked | None = None,
    step: int | Mapping[str, int | str] | None = None,
    **controls: Any,
) -> Exploration: ...
def explore(
    function: Callable[..., Any] | None = None,
    /,
    *,
    ask: Asked | None = None,
    step: int | Mapping[str, int | str] | None = None,
    **controls: Any,
) -> Any:
    """Trace a function for every setting of its controls and display the player.

    Use it as ``ipywidgets.interact``: as a decorator, ``@explore(retain_graph=[False, True])``, or
    as a call, ``explore(function, retain_graph=[False, True])``.

    Args:
        controls: for each argument of the function that the reader may change, what ``interact``
            takes: a bool, a list or dict of options, a ``(min, max[, step])`` tuple, a number, an
            ipywidget with finitely many values, or ``ipywidgets.fixed(value)``.
            :class:`DeviceDropdown` is the control to choose a device with.
        ask: a question that the player asks before it shows how the program ends, such as
            :class:`~gradtrace.questions.WhichLineRaises`.
        step: where the player opens: the index of a step, or ``{"line": where}`` for the first step
            at which this line is next, ``{"after": where}`` for the first after it ran; a line is
            given by its number or its text.  By default, and with a question, the first step.

    Returns:
        An :class:`Exploration`, which stands in for the function.

    Raises:
        TypeError: there is no control, the function has no such argument, an argument is left
            without a value, or one is called ``ask`` or ``step``, as explore's own.
        ValueError: a control has no finite list of values, its options cannot be compared (tensors,
            arrays), or there are more than ``MAX_SETTINGS`` (64) settings; a question cannot be
            answered from the traces (:meth:`gradtrace.questions.Asked.put_to`), or ``step`` names
            no line that runs.

    >>> import torch
    >>> @explore(retain_graph=[False, True])
    ... def twice(retain_graph):
    ...     y = torch.ones(3, requires_grad=True).exp().sum()
    ...     y.backward(retain_graph=retain_graph)
    ...     y.backward()
    twice: 2 setting(s)
      retain_graph=False: Line 5 raises RuntimeError: Trying to backward ...
      retain_graph=True: Ends without an error.
    >>> twice.trace(retain_graph=True).error is None
    True
    """
    if function is None:
        return functools.partial(explore, ask=ask, step=step, **controls)
    if ask is not None and not isinstance(ask, Asked):
        raise TypeError(
            f"ask={ask!r} is no question: give one of gradtrace.questions, as "
            "ask=WhichLineRaises(); an argument of the function cannot be called ask"
        )
    if not controls:
        raise TypeError(
            f"explore({_name(function)}) has no control: name at least one argument and its "
            "options, as in explore(f, retain_graph=[False, True]); without any, use trace(f)"
        )
    made, constants = _controls(function, controls)
    settings = math.prod(len(control.options) for control in made.values())
    if settings > MAX_SETTINGS:
        sizes = " × ".join(f"{name}: {len(c.options)}" for name, c in made.items())
        raise ValueError(
            f"explore({_name(function)}) would run {settings} settings ({sizes}), and "
            f"{MAX_SETTINGS} is the limit: give fewer options"
        )
    exploration = Exploration(function, made, constants, ask, step)
    display(exploration)
    return exploration


def _opening(
    step: int | Mapping[str, int | str] | None, seen: Trace
) -> int | dict[str, int] | None:
    """``step`` with its line as a number."""
    if step is None or (isinstance(step, int) and not isinstance(step, bool)):
        return step
    if not isinstance(step, Mapping) or set(step) not in ({"line"}, {"after"}):
        raise ValueError(
            f"step={step!r} is no step: give its index, {{'line': where}} or {{'after': where}}; "
            "an argument of the function cannot be called step"
        )
    return {way: line_of(where, seen.source) for way, where in step.items()}


def _index(step: int | dict[str, int] | None, seen: Trace) -> int:
    """The index of the step at which a player of this trace opens."""
    if not isinstance(step, dict):
        return step or 0
    ((way, line),) = step.items()
    for index, state in enumerate(seen.steps):
        if line == (state.line if way == "line" else state.ran):
            return index
    raise ValueError(f"step={step}: line {line} does not run in the setting that is shown first")


def _name(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def _controls(
    function: Callable[..., Any], abbreviations: dict[str, Any]
) -> tuple[dict[str, Control], dict[str, Any]]:
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        raise TypeError(
            f"the arguments of {_name(function)} are unknown: put the call into a function with def"
        ) from None
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in abbreviations:
        if name not in parameters and not open_ended:
            raise TypeError(
                f"{_name(function)}() has no argument {name!r}; its arguments are "
                f"{', '.join(parameters) or 'none'}"
            )
    for name, parameter in parameters.items():
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if name not in abbreviations and parameter.default is parameter.empty and not variadic:
            raise TypeError(
                f"argument {name!r} of {_name(function)}() has neither a control nor a default: "
                f"give it options, or ipywidgets.fixed(value)"
            )
    made, constants = {}, {}
    for name, abbreviation in abbreviations.items():
        _refuse_options_without_equality(name, abbreviation)
        default = parameters[name].default if name in parameters else inspect.Parameter.empty
        widget = ipywidgets.interactive.widget_from_abbrev(abbreviation, default)
        if isinstance(widget, ipywidgets.fixed):
            constants[name] = widget.value
        else:
            made[name] = _control(name, widget, abbreviation)
    return made, constants


def _refuse_options_without_equality(name: str, abbreviation: Any) -> None:
    """A widget finds its value among its options by ``==``; tensors and arrays do not say."""
    options = _options(abbreviation) if isinstance(abbreviation, (Mapping, list)) else ()
    for label, option in options:
        try:
            bool(option == option)
        except Exception as error:
            raise ValueError(
                f"option {label!r} of control {name!r} is a {type(option).__name__}, which == does "
                "not compare as a whole: give names as options, and make the values in the function"
            ) from error


def _control(name: str, widget: ipywidgets.Widget | None, abbreviation: Any) -> Control:
    """List the values that a widget can take."""
    if isinstance(widget, ipywidgets.Widget) and not widget.description:
        widget.description = name
        if getattr(widget.style, "description_width", None) == "":
            widget.style.description_width = "initial"  # ipywidgets would cut a long name
    if isinstance(widget, DeviceDropdown):
        return Control(name, widget, "select", widget.stored_options)
    value = getattr(widget, "value", None)
    kind, options = "", []
    if widget is not None and hasattr(widget, "options") and not isinstance(widget, _MULTIPLE):
        kind, options = "select", _options(widget.options)
    elif isinstance(value, bool):
        kind, options = "checkbox", [("False", False), ("True", True)]
    elif isinstance(value, (int, float)) and all(hasattr(widget, n) for n in ("min", "step")):
        kind, options = "range", _range(name, widget)
    if not options:
        raise ValueError(
            f"control {name!r} has no finite list of values ({abbreviation!r}): give a bool, a "
            "list of options or a (min, max, step) tuple"
        )
    return Control(name, widget, kind, tuple(options))


_MULTIPLE = (ipywidgets.SelectMultiple, ipywidgets.SelectionRangeSlider)


def _options(options: Any) -> list[tuple[str, Any]]:
    """``(label, value)`` pairs, as ipywidgets reads them."""
    if isinstance(options, Mapping):
        return [(str(label), value) for label, value in options.items()]
    if all(isinstance(option, (tuple, list)) and len(option) == 2 for option in options):
        return [(str(label), value) for label, value in options]
    return [(str(option), option) for option in options]


def _range(name: str, widget: ipywidgets.Widget) -> list[tuple[str, Any]]:
    count = math.floor((widget.max - widget.min) / widget.step + 1e-9) + 1
    if count > MAX_SETTINGS:
        raise ValueError(
            f"control {name!r} has {count} values, and {MAX_SETTINGS} is the limit: give a larger "
            "step or fewer options"
        )
    values = [widget.min + i * widget.step for i in range(count)]
    if isinstance(widget, ipywidgets.FloatLogSlider):
        values = [widget.base**value for value in values]
    if isinstance(widget.value, float):
        values = [float(f"{value:.10g}") for value in values]
    return [(str(value), value) for value in values]
