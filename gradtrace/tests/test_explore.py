"""explore() takes what ipywidgets.interact takes; its widgets and its player move together."""

import enum
import functools
import re
import sys
import types

import ipywidgets
import pytest
import torch

from gradtrace import DeviceDropdown, Exploration, available_devices, explore
from gradtrace.player.page import payload

module = sys.modules[Exploration.__module__]
controls = sys.modules[DeviceDropdown.__module__]


@pytest.fixture(autouse=True)
def displayed(monkeypatch):
    shown = []
    monkeypatch.setattr(module, "display", shown.append)
    return shown


class Reduction(enum.Enum):
    SUM = "sum"
    MEAN = "mean"


def program(value):
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    return y, value


def twice(retain_graph, factor=1):
    loss = factor * torch.ones(3, requires_grad=True).exp().sum()
    loss.backward(retain_graph=retain_graph)
    loss.backward()


WIDGETS = ipywidgets
ABBREVIATIONS = {
    "bool": (True, [False, True], True),
    "list": (["a", "b"], ["a", "b"], "a"),
    "list of pairs": ([("one", 1), ("two", 2)], [1, 2], 1),
    "dict": ({"one": 1, "two": 2}, [1, 2], 1),
    "range": (range(3), [0, 1, 2], 0),
    "mixed": ([None, True, 1, "1", 1.0], [None, True, 1, "1", 1.0], None),
    "enum": (Reduction, list(Reduction), Reduction.SUM),
    "functions": ([torch.exp, torch.sin], [torch.exp, torch.sin], torch.exp),
    "int range": ((0, 4), [0, 1, 2, 3, 4], 2),
    "int range with step": ((0, 5, 2), [0, 2, 4], 2),
    "float range": ((0.0, 0.3, 0.1), [0.0, 0.1, 0.2, 0.3], 0.1),
    "number": (1, [-1, 0, 1, 2, 3], 1),
    "Checkbox": (WIDGETS.Checkbox(value=False), [False, True], False),
    "ToggleButton": (WIDGETS.ToggleButton(value=True), [False, True], True),
    "Dropdown": (WIDGETS.Dropdown(options=["a", "b"], value="b"), ["a", "b"], "b"),
    "RadioButtons": (WIDGETS.RadioButtons(options={"A": 1, "B": 2}), [1, 2], 1),
    "ToggleButtons": (WIDGETS.ToggleButtons(options=["a"]), ["a"], "a"),
    "SelectionSlider": (WIDGETS.SelectionSlider(options=[1, 10]), [1, 10], 1),
    "IntSlider": (WIDGETS.IntSlider(min=1, max=3), [1, 2, 3], 1),
    "BoundedIntText": (WIDGETS.BoundedIntText(min=1, max=3), [1, 2, 3], 1),
    "FloatSlider": (WIDGETS.FloatSlider(min=0, max=1, step=0.5), [0.0, 0.5, 1.0], 0.0),
    "FloatLogSlider": (
        WIDGETS.FloatLogSlider(value=1, min=-1, max=1, step=1),
        [0.1, 1.0, 10.0],
        1.0,
    ),
}


@pytest.mark.parametrize(("abbreviation", "values", "first"), ABBREVIATIONS.values(),
                         ids=ABBREVIATIONS)  # fmt: skip
def test_takes_what_interact_takes(abbreviation, values, first):
    received = []

    def note(value):
        received.append(value)
        return value

    explored = explore(note, value=abbreviation)
    assert list(map(repr, received)) == list(map(repr, values))
    assert repr(explored.setting["value"]) == repr(first)
    assert len({id(explored.trace(value=value)) for value in values}) == len(values)
    assert len(received) == len(values)  # each ran once


def test_every_combination_the_last_control_fastest():
    seen = []
    explore(lambda a, b: seen.append((a, b)), a=[1, 2], b=[False, True])
    assert seen == [(1, False), (1, True), (2, False), (2, True)]


def test_fixed_and_defaults():
    seen = []

    def note(a, b, c=3, *rest, d=4, **more):
        seen.append((a, b, c, d, more))

    explore(note, a=[1], b=ipywidgets.fixed("kept"), extra=[9])
    assert seen == [(1, "kept", 3, 4, {"extra": 9})]


def test_an_argument_called_like_one_of_trace():
    seen = []

    def note(max_steps, fn):
        seen.append((max_steps, fn))

    explore(note, max_steps=[1, 2], fn=[0])
    assert seen == [(1, 0), (2, 0)]


REFUSED = {
    "no control": (program, {}, TypeError, r"program\) has no control.*trace\(f\)"),
    "unknown": (program, {"valeu": True}, TypeError, "no argument 'valeu'.*arguments are value"),
    "left out": (twice, {"factor": [1]}, TypeError, "'retain_graph'.*neither.*fixed"),
    "text": (program, {"value": "free text"}, ValueError, "'value' has no finite list.*free text"),
    "tuple of strings": (program, {"value": ("a", "b")}, ValueError, "no finite list"),
    "empty": (program, {"value": []}, ValueError, "'value' has no finite list"),
    "object": (program, {"value": object()}, ValueError, "'value' has no finite list"),
    "IntText": (program, {"value": ipywidgets.IntText()}, ValueError, "no finite list"),
    "SelectMultiple": (
        program,
        {"value": ipywidgets.SelectMultiple(options=[1, 2])},
        ValueError,
        "no finite list",
    ),
    "IntRangeSlider": (program, {"value": ipywidgets.IntRangeSlider()}, ValueError, "no finite"),
    "tensors": (
        program,
        {"value": [("small", torch.ones(2)), ("large", torch.ones(3))]},
        ValueError,
        "option 'small' of control 'value' is a Tensor.*names as options",
    ),
    "tensors in a dict": (
        program,
        {"value": {"small": torch.ones(2)}},
        ValueError,
        "option 'small'.*Tensor",
    ),
    "10000 combinations": (
        twice,
        {"retain_graph": range(100), "factor": range(100)},
        ValueError,
        r"10000 settings \(retain_graph: 100 × factor: 100\), and 64 is the limit",
    ),
    "a long range": (
        program,
        {"value": (0, 10**9)},
        ValueError,
        "'value' has 1000000001 values, and 64",
    ),
}


@pytest.mark.parametrize(("function", "controls", "error", "message"), REFUSED.values(),
                         ids=REFUSED)  # fmt: skip
def test_bad_input_is_named(function, controls, error, message, displayed):
    with pytest.raises(error, match=message):
        explore(function, **controls)
    assert displayed == []


def test_errors_of_trace_come_through():
    with pytest.raises(TypeError, match="no Python lines"):
        explore(len, obj=[[1]])
    with pytest.raises(TypeError, match="arguments of relu_ are unknown"):
        explore(torch.relu_, input=[1])


def test_asking_for_an_unknown_control():
    explored = explore(program, value=[1, 2])
    with pytest.raises(TypeError, match=r"program has no control 'vlaue'.*value"):
        explored.trace(vlaue=1)


def test_flipping_a_control_moves_the_player():
    explored = explore(twice, retain_graph=True)
    widget = explored.controls["retain_graph"].widget
    seen = []
    explored.player.observe(lambda change: seen.append(change["new"]["error"]), names="trace")
    assert explored.player.trace["error"] is None
    explored.player.step = 2
    widget.value = False
    assert "second time" in explored.player.trace["error"]["message"]
    assert explored.player.step == 2
    widget.value = True
    assert [error and error["type"] for error in seen] == ["RuntimeError", None]
    assert explored.setting == {"retain_graph": True}
    assert explored.trace().error is None
    assert explored.trace(retain_graph=False).error is not None


def test_a_player_can_be_linked():
    explored = explore(twice, retain_graph=True)
    slider = ipywidgets.IntSlider(max=10)
    ipywidgets.link((explored.player, "step"), (slider, "value"))
    slider.value = 1
    assert explored.player.step == 1


def test_a_value_between_the_listed_ones_is_traced_when_it_is_chosen():
    calls = []

    def note(value):
        calls.append(value)

    explored = explore(note, value=(0.0, 1.0, 0.5))
    assert calls == [0.0, 0.5, 1.0]
    explored.controls["value"].widget.value = 0.7
    explored.controls["value"].widget.value = 0.7
    assert calls == [0.0, 0.5, 1.0, 0.7]


def test_devices_are_stored_for_the_cpu_and_run_when_chosen(monkeypatch):
    monkeypatch.setattr(controls, "available_devices", lambda: ("cpu", "meta"))
    calls = []

    def note(device):
        calls.append(device)
        x = torch.ones(2, requires_grad=True, device=device)
        return x.exp()

    explored = explore(note, device=DeviceDropdown())
    assert calls == ["cpu"]
    explored.controls["device"].widget.value = "meta"
    assert calls == ["cpu", "meta"]
    assert explored.player.trace["error"] is None
    assert '"meta"' not in explored._repr_mimebundle_()["text/html"].split("<script")[1]
    assert repr(explored).splitlines()[0] == "note: 1 setting(s)"


def test_devices_of_this_machine():
    assert available_devices()[0] == "cpu"


def test_it_stands_in_for_the_function_and_is_displayed_once(displayed):
    @explore(value=[1, 2])
    def documented(value):
        """What it is."""
        return value + 1

    assert isinstance(documented, Exploration)
    assert documented(41) == 42
    assert (documented.__name__, documented.__doc__) == ("documented", "What it is.")
    assert displayed == [documented]


def make():
    return explore(twice, retain_graph=[False, True], factor=ipywidgets.fixed(2))


def test_repr_tells_each_setting_and_its_outcome():
    lines = repr(make()).splitlines()
    assert lines[0] == "twice: 2 setting(s)"
    assert re.fullmatch(
        r"  retain_graph=False: Line \d+ raises RuntimeError: Trying to backward .*\.\.\.", lines[1]
    )
    assert lines[2] == "  retain_graph=True: Ends without an error."


@pytest.mark.parametrize("function", [program, functools.partial(program), torch.nn.Identity()])
def test_what_is_stored_is_the_same_each_time(function):
    name = "input" if isinstance(function, torch.nn.Module) else "value"
    one, other = explore(function, **{name: [1, 2]}), explore(function, **{name: [1, 2]})
    bundle = one._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}  # a view would be dead without its kernel
    assert bundle == one._repr_mimebundle_()
    for kind in ("text/plain", "text/html"):
        assert bundle[kind] == other._repr_mimebundle_()[kind]
        assert not re.search(r"0x[0-9a-f]{6,}", bundle[kind])


def test_where_only_a_view_brings_a_widget_to_life_there_is_one(monkeypatch):
    explored = make()
    view = {"application/vnd.jupyter.widget-view+json"}
    shell = types.SimpleNamespace(user_ns={})
    monkeypatch.setattr(module, "get_ipython", lambda: shell)
    assert not view & explored._repr_mimebundle_().keys()
    shell.user_ns["__vsc_ipynb_file__"] = "notebook.ipynb"
    assert view < explored._repr_mimebundle_().keys()
    monkeypatch.setattr(module, "get_ipython", lambda: None)
    assert not view & explored._repr_mimebundle_().keys()
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    assert view < explored._repr_mimebundle_().keys()


def test_a_setting_chosen_on_the_page_is_that_of_controls_and_player(monkeypatch):
    monkeypatch.setattr(controls, "available_devices", lambda: ("cpu", "meta"))
    ran = []

    def note(device, number):
        ran.append((device, number))
        return torch.ones(number, requires_grad=True, device=device).exp()

    explored = explore(note, device=DeviceDropdown(), number=[1, 2])
    stored = [("cpu", 1), ("cpu", 2)]
    assert [control["options"] for control in explored.player.controls] == [
        ["cpu", "meta"],
        ["1", "2"],
    ]
    explored.player.setting = [0, 1]
    assert (explored.setting, ran) == ({"device": "cpu", "number": 2}, stored)
    explored.player.setting = [1, 0]
    assert explored.setting == {"device": "meta", "number": 1}
    assert ran == [*stored, ("meta", 1)]  # not what lies between
    assert explored.player.trace == payload(explored.trace())
    explored.controls["device"].widget.value = "cpu"
    assert explored.player.setting == [0, 0]


def test_a_page_joins_the_player_of_its_own_program():
    def key(explored):
        (found,) = re.findall(r'data-key="(\w+)"', explored._repr_mimebundle_()["text/html"])
        assert found == explored.player.key
        return found

    one, same = make(), make()
    assert key(one) == key(same)
    assert one.player.born < same.player.born
    assert key(one) not in {key(explore(program, value=[1])), key(explore(program, value=[2]))}
    assert key(explore(program, value=[1])) != key(explore(program, value=[2]))


def test_the_page_begins_at_the_setting_that_is_live():
    explored = make()
    explored.controls["retain_graph"].widget.value = True
    page = explored._repr_mimebundle_()["text/html"]
    assert '"initial":[1]' in page
