"""The controls of an exploration, read from arguments as ``ipywidgets.interact`` takes them."""

import functools
import inspect
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ipywidgets
import torch

from gradtrace.questions import place

MAX_SETTINGS = 64


class DeviceDropdown(ipywidgets.Dropdown):
    """A dropdown of this machine's devices; a page without a kernel has ``stored_options`` only.

    With ``GRADTRACE_DEVICE=cuda`` in the environment, the option "cpu" runs on the GPU, so that
    results stored on a CPU can be compared with a run on a GPU.

    >>> DeviceDropdown().value
    'cpu'
    """

    def __init__(self, **kwargs: Any):
        device = os.environ.get("GRADTRACE_DEVICE")
        self.stored_options = (("cpu", device or "cpu"),)
        super().__init__(options=self.stored_options if device else available_devices(), **kwargs)


def available_devices() -> tuple[str, ...]:
    """Return ``"cpu"``, then the type of this machine's accelerator if it has one."""
    if hasattr(torch, "accelerator"):  # torch 2.6 and newer
        available = torch.accelerator.is_available()
        accelerator = torch.accelerator.current_accelerator() if available else None
        return ("cpu",) if accelerator is None else ("cpu", accelerator.type)
    return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


@dataclass(frozen=True)
class Control:
    """One control: its widget, and the finite list of its options as ``(label, value)`` pairs."""

    name: str
    widget: ipywidgets.Widget
    kind: str  # "checkbox", "select" or "edits"
    options: tuple[tuple[str, Any], ...]  # on a page without a kernel

    @property
    def value(self) -> Any:
        return self.widget.value

    @property
    def choices(self) -> tuple[tuple[str, Any], ...]:
        """Return ``options``, then the other options of the widget."""
        live = _options(getattr(self.widget, "options", ()))
        return *self.options, *(option for option in live if self.index(option[1]) is None)

    @property
    def choice(self) -> int | None:
        """Return the index of the widget's value in ``choices``, if it is there."""
        return place(self.value, self.choices)

    def index(self, value: Any) -> int | None:
        """Return the index of ``value`` in ``options``, if it is there; ``1`` is not ``True``."""
        return place(value, self.options)


def function_name(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def controls_of(
    function: Callable[..., Any], abbreviations: dict[str, Any]
) -> tuple[dict[str, Control], dict[str, Any]]:
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        raise TypeError(
            f"the arguments of {function_name(function)} are unknown: put the call into a function "
            "with def"
        ) from None
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in abbreviations:
        if name not in parameters and not open_ended:
            raise TypeError(
                f"{function_name(function)}() has no argument {name!r}; its arguments are "
                f"{', '.join(parameters) or 'none'}"
            )
    for name, parameter in parameters.items():
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if name not in abbreviations and parameter.default is parameter.empty and not variadic:
            raise TypeError(
                f"argument {name!r} of {function_name(function)}() has neither a control nor a "
                "default: give it options, or ipywidgets.fixed(value)"
            )
    by_name, constants = {}, {}
    for name, abbreviation in abbreviations.items():
        _refuse_options_without_equality(name, abbreviation)
        default = parameters[name].default if name in parameters else inspect.Parameter.empty
        widget = ipywidgets.interactive.widget_from_abbrev(abbreviation, default)
        if isinstance(widget, ipywidgets.fixed):
            constants[name] = widget.value
        else:
            by_name[name] = _control(name, widget, abbreviation)
    return by_name, constants


def _refuse_options_without_equality(name: str, abbreviation: Any) -> None:
    """Raise ValueError for options that ``==`` does not compare as a whole, such as arrays."""
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
    """Return the control for a widget; raise ValueError if the widget has no finite options."""
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
        kind, options = "select", _range(name, widget)
    if not options:
        raise ValueError(
            f"control {name!r} has no finite list of values ({abbreviation!r}): give a bool, a "
            "list of options or a (min, max, step) tuple"
        )
    return Control(name, widget, kind, tuple(options))


_MULTIPLE = (ipywidgets.SelectMultiple, ipywidgets.SelectionRangeSlider)


def _options(options: Any) -> list[tuple[str, Any]]:
    """Return ``(label, value)`` pairs from options as ipywidgets reads them."""
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
