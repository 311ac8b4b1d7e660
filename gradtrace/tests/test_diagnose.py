"""The tool on small programs, each broken in one known way, and on their repaired twins.

``programs/*.txt`` holds them.  ``=== name causes by=variables`` begins one; of causes and variables
any of those between bars will do, and a star stands for anything.  What follows ``#@`` on a line
says what happens there: ``raised``, ``began``; and ``bad`` lines are left out of the repaired twin,
which has the ``#fix`` lines instead.
"""

import contextlib
import fnmatch
import gc
import io
import linecache
import re
import sys
import textwrap
import traceback
import types
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch.utils.checkpoint import CheckpointError

from gradtrace.autograd.frames import Location
from gradtrace.explaining.causes import CAUSES
from gradtrace.explaining.causes.table import OBSERVED, Criterion, Fix
from gradtrace.explaining.diagnose import build_diagnosis, decide, failure
from gradtrace.explaining.diagnosis import Diagnosis
from gradtrace.explaining.evidence.base import Evidence
from gradtrace.explaining.postmortem import explain
from gradtrace.explaining.watcher import watch
from gradtrace.watching.record import BackwardCall, Record

_HEAD = "import torch, torch.nn as nn, torch.nn.functional as F; torch.manual_seed(0)\n"


class Program(NamedTuple):
    name: str
    kind: str
    causes: list[str]
    carriers: list[str]
    text: str

    def source(self, fixed: bool) -> str:
        lines = []
        for line in self.text.splitlines():
            code, _, tags = line.partition("  #@ ")
            fix = re.match(r"(\s*)#fix (.*)", code)
            if fix:
                code = fix[1] + fix[2] if fixed else ""
            lines.append("" if fixed and "bad" in tags.split() else code)
        return "\n".join(lines) + "\n"

    def line(self, tag: str) -> int | None:
        for number, line in enumerate(self.text.splitlines(), 1):
            if tag in line.partition("  #@ ")[2].split():
                return number
        return None


def _programs() -> list[Program]:
    found = []
    for path in sorted((Path(__file__).parent / "programs").glob("*.txt")):
        for part in re.split(r"^=== ", path.read_text(encoding="utf-8"), flags=re.M)[1:]:
            head, _, body = part.partition("\n")
            name, causes, *by = head.split()
            carriers = by[0].removeprefix("by=").split("|") if by else ["*"]
            found.append(Program(name, path.stem, causes.split("|"), carriers, _HEAD + body))
    return found


PROGRAMS = _programs()
BROKEN = [pytest.param(one, id=one.name) for one in PROGRAMS if one.kind != "healthy"]
RAISING = [
    pytest.param(one, id=one.name) for one in PROGRAMS if one.kind not in ("healthy", "silent")
]
REARRANGED = [pytest.param(one, id=one.name) for one in PROGRAMS if one.kind == "rearranged"]
SILENT = [pytest.param(one, id=one.name) for one in PROGRAMS if one.kind == "silent"]
HEALTHY = [pytest.param(one, id=one.name) for one in PROGRAMS if one.kind == "healthy"]


class Outcome(NamedTuple):
    error: Exception | None
    found: Diagnosis | None
    findings: list[Diagnosis]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a program as the command line does."""

    def run(source: str, strict: bool = True) -> Outcome:
        path = tmp_path / "program.py"
        path.write_text(source, encoding="utf-8")
        linecache.checkcache(str(path))
        module = types.ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", module)
        error = None
        one = watch(strict=strict)
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                try:
                    exec(compile(source, str(path), "exec"), module.__dict__)
                except Exception as raised:
                    error = raised
                if strict:
                    one.look_back(module.__dict__)
                found = None if error is None else one.explain(error)
            assert one.broken is None
            return Outcome(error, found, one.findings)
        finally:
            one.stop()
            torch.set_grad_enabled(True)

    return run


def _line(place) -> int | None:
    return None if place is None else place.line


def _matches(name: str | None, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(str(name), p.replace("[", "[[]")) for p in patterns)


@pytest.mark.parametrize("program", RAISING)
def test_error_is_explained(program, run):
    error, found, findings = run(program.source(fixed=False))
    assert error is not None
    assert found.cause in program.causes, found
    for tag, place in (("raised", found.raised_at), ("began", found.began_at)):
        if (line := program.line(tag)) is not None:
            assert _line(place) == line, (tag, found)
    assert _matches(found.carried_by, program.carriers), found.carried_by
    assert found.text() in error.__notes__
    # A program may have a silent failure beside the one that stops it.
    assert {one.cause for one in findings} <= {"graph_grows", "create_graph_missing"}


@pytest.mark.parametrize("program", RAISING)
def test_error_is_explained_without_a_strict_watch_or_called_unknown(program, run):
    error, found, findings = run(program.source(fixed=False), strict=False)
    assert error is not None and not findings
    assert found.cause in [*program.causes, "unknown"], found
    assert _line(found.raised_at) == program.line("raised") or program.line("raised") is None
    if found.began_at is not None and program.line("began"):
        assert found.began_at.line == program.line("began"), found


@pytest.mark.parametrize("program", REARRANGED)
def test_a_plain_watch_explains_a_program_however_it_is_laid_out(program, run):
    found = run(program.source(fixed=False), strict=False).found
    assert found.cause in program.causes, found
    for tag, place in (("began", found.began_at), ("stored", found.stored_at)):
        assert _line(place) == (program.line(tag) or _line(place)), (tag, found)
    assert _matches(found.carried_by, program.carriers), found.carried_by


def test_the_line_may_be_in_another_file(run, tmp_path, monkeypatch):
    helper = "import torch\ndef guess(net, x):\n    with torch.inference_mode():\n"
    (tmp_path / "guesses.py").write_text(helper + "        return net(x)\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = run(
        _HEAD + "from guesses import guess\nnet = nn.Linear(3, 3)\n"
        "net(guess(net, torch.ones(2, 3)))"
    ).found
    assert found.began_at.text == "with torch.inference_mode():"


@pytest.mark.parametrize(
    "name",
    [
        "center_read_between_its_updates",
        "function_that_normalizes_its_argument",
        "weight_divided_in_the_forward_pass",
        "weights_clipped_in_a_loop_over_parameters",
        "parameters_in_a_list_updated_in_a_loop",
        "function_with_inplace",
        "residual_changed_twice_after_its_use",
        "exponential_scaled_by_a_helper",
        "layer_in_place_called_on_a_gate",
        "weights_of_attention_masked_after_their_use",
        "quotient_masked_after_a_division_by_zero",
    ],
)
def test_a_plain_watch_finds_the_line(run, name):
    program = next(program for program in PROGRAMS if program.name == name)
    found = run(program.source(fixed=False), strict=False).found
    assert _line(found.began_at) == program.line("began")


@pytest.mark.parametrize("program", [p for p in RAISING if p.values[0].kind == "no_graph"])
def test_a_strict_watch_names_each_line_that_a_plain_one_found_in_the_source(program, run):
    plain, strict = (run(program.source(fixed=False), mode).found for mode in (False, True))
    assert plain.made_at in (None, strict.made_at, strict.began_at)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("keys_in_an_attribute_scaled_after_their_use", "do not write into net.memory after a use"),
        ("retained_adjacency_filled_on_demand", "recompute graph.adjacency with the new weights"),
        ("retained_state_stored_after_its_step", "self.hidden = self.hidden.detach()"),
    ],
)
def test_the_line_that_stored_a_changed_tensor_is_named(run, name, fix, strict):
    program = next(program for program in PROGRAMS if program.name == name)
    found = run(program.source(fixed=False), strict).found
    assert program.line("stored") in map(_line, (found.stored_at, found.made_at))
    assert fix in found.fix


def test_no_layer_is_named_where_the_call_of_another_is_not_known(run):
    name = "layer_in_place_in_a_sequential_beside_one_that_is_called"
    program = next(program for program in PROGRAMS if program.name == name)
    assert run(program.source(fixed=False), strict=False).found.began_at is None


def test_a_checkpoint_is_left_out_inside_a_transform(run):
    program = next(p for p in PROGRAMS if p.name == "checkpoint_inside_jvp")
    found = run(program.source(fixed=False)).found
    assert "calls_a_transform" in found.facts and "torch.func" in found.fix


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("multistep_scheduler_that_keeps_predictions", "detach every tensor in predictions at"),
        ("episodes_sampled_again", "recompute episode['log_probs'] in each iteration"),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_advice_on_a_stored_tensor_follows_from_its_container(run, name, words, strict):
    program = next(program for program in PROGRAMS if program.name == name)
    assert words in run(program.source(fixed=False), strict=strict).found.fix


@pytest.mark.parametrize("strict", [False, True])
def test_the_line_of_a_reentrant_checkpoint_is_named(run, strict):
    name = "critic_in_a_reentrant_checkpoint"
    program = next(program for program in PROGRAMS if program.name == name)
    assert _line(run(program.source(fixed=False), strict=strict).found.made_at) == program.line(
        "made"
    )


def test_one_finding_says_that_all_trained_parameters_were_replaced(run):
    program = next(p for p in PROGRAMS if p.name == "layers_replaced_between_two_trainings")
    (finding,) = run(program.source(fixed=False)).findings
    assert finding.cause == "optimizer_holds_replaced"


def test_no_line_is_named_where_each_of_two_may_have_divided_by_zero(run):
    program = next(p for p in PROGRAMS if p.name == "two_lines_that_may_divide_zero_by_zero")
    assert run(program.source(fixed=False)).found.began_at is None


@pytest.mark.parametrize(
    ("source", "cause", "text"),
    [
        pytest.param(
            """
            class Agent:
                def __init__(self):
                    self.net = nn.Linear(4, 3)
                def evaluate(self, x):
                    return self.net(x).log_softmax(1)[:, 0]
                def update(self, x):
                    self.old = self.evaluate(x)
                    for _ in range(3):
                        (self.evaluate(x) - self.old).exp().mean().backward()
            Agent().update(torch.randn(6, 4))
            """,
            "computed_once_outside_loop",
            "self.old = self.evaluate(x)",
            id="computed by the line that computes the new value",
        ),
        pytest.param(
            """
            net, target = nn.Linear(4, 3), nn.Linear(4, 3)
            values = [net(state).max().item() * 0.5 for state in torch.randn(5, 4)]
            with torch.no_grad():
                aim = target(torch.randn(5, 4)).max(1).values
            F.mse_loss(torch.as_tensor(values), aim).backward()
            """,
            "detach_wrong_place",
            "values = [net(state).max().item() * 0.5 for state in torch.randn(5, 4)]",
            id="numbers that were changed beside a target",
        ),
    ],
)
def test_only_a_strict_watch_knows_the_cause(run, source, cause, text):
    header = "import torch, torch.nn as nn, torch.nn.functional as F; torch.manual_seed(0)"
    found = run(header + textwrap.dedent(source)).found
    place = found.made_through[0] if cause == "computed_once_outside_loop" else found.began_at
    assert (found.cause, place.text) == (cause, text)


def test_an_error_that_was_raised_from_autograds_is_explained():
    loss = torch.ones(2, requires_grad=True).exp().sum()
    loss.backward()
    with pytest.raises(ValueError) as raised:
        try:
            loss.backward()
        except RuntimeError as error:
            raise ValueError("the step failed") from error
    assert explain(raised.value).family == "freed"


def test_an_entry_of_a_dict_is_not_where_a_tensor_changed(run):
    """Without a strict watch only the source shows where a tensor may have changed."""
    program = next(program for program in PROGRAMS if program.name == "preallocated_sequence")
    settings = 'settings = {}; settings["name"] = str(0); '
    _, found, _ = run(settings + program.source(fixed=False), strict=False)
    assert found.carried_by == "hs" and "hs[" in found.began_at.text


@pytest.mark.parametrize("program", SILENT)
def test_silent_failure_is_found(program, run):
    error, _, findings = run(program.source(fixed=False))
    assert error is None
    assert findings and {one.cause for one in findings} <= set(program.causes)
    if (line := program.line("began")) is not None:
        assert _line(findings[0].began_at) == line, findings


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("computed_data_replaces_a_parameter", "compute the loss from the new tensors"),
        ("nodes_chosen_by_index", "multiply what these indices or this mask select"),
        ("entries_above_a_threshold", "multiply what these indices or this mask select"),
        ("both_losses_before_the_steps", "backward(inputs=list(actor.parameters()))"),
        ("adapter_in_a_reentrant_checkpoint", "call checkpoint(..., use_reentrant=False)"),
        ("heads_in_a_list_with_few_steps", "make net.heads an nn.ModuleList, because"),
        ("cells_appended_to_a_list", "make net.cells an nn.ModuleList, because"),
        ("inner_steps_of_a_copy", "compute the loss from net.weight, net.bias, because deepcopy()"),
        ("retained_recurrence", "detach h at the end of each iteration"),
        ("losses_of_examples_added_up", "detach total at the end of each iteration"),
        ("epochs_means_in_a_list_of_dicts", "before it is stored in self.history"),
        ("terms_copied_into_one_tensor", "combined by torch.stack or torch.cat, because"),
    ],
)
def test_advice_on_a_silent_failure_follows_from_its_facts(name, words, run):
    program = next(program for program in PROGRAMS if program.name == name)
    _, _, findings = run(program.source(fixed=False))
    assert words in findings[0].fix, findings[0].fix


def test_parameters_of_one_list_are_one_finding(run):
    program = next(program for program in PROGRAMS if program.name == "cells_appended_to_a_list")
    (finding,) = run(program.source(fixed=False)).findings
    assert "and 4 more" in finding.carried_by


@pytest.mark.parametrize(
    ("name", "is_slice"), [("window_at_a_batched_start", True), ("branch_on_a_sample", False)]
)
def test_a_slice_at_a_tensor_differs_from_other_reads_of_a_number(name, is_slice, run):
    program = next(program for program in PROGRAMS if program.name == name)
    found = run(program.source(fixed=False), strict=False).found
    assert ("sliced_at_a_tensor" in found.facts) == is_slice
    words = "torch.index_select(series, 1, start + torch.arange(length))"
    assert (words in found.fix) == is_slice, found.fix


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gradient_at_the_original_of_a_copy", "gradients of unrolled.alphas, unrolled.betas ins"),
        ("gradient_at_the_original_of_a_changed_copy", "from fast.0.weight, fast.0.bias. Make"),
        ("predictions_given_to_a_function_of_the_closure", "recompute u, f inside the closure"),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_advice_on_an_error_follows_from_its_facts(name, words, strict, run):
    program = next(program for program in PROGRAMS if program.name == name)
    found = run(program.source(fixed=False), strict).found
    assert words in found.fix, found.fix


@pytest.mark.parametrize("program", BROKEN)
def test_nothing_is_said_of_the_repaired_twin(program, run):
    assert run(program.source(fixed=True)) == (None, None, [])


@pytest.mark.parametrize("program", HEALTHY)
def test_nothing_is_said_of_a_healthy_program(program, run):
    assert run(program.source(fixed=False)) == (None, None, [])


@pytest.fixture
def two_processes(monkeypatch):
    """A group of this process, which takes itself for one of two."""
    distributed = torch.distributed
    if not distributed.is_available():
        pytest.skip("this PyTorch has no torch.distributed")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    monkeypatch.setattr(distributed, "get_world_size", lambda *_: 2)
    yield
    gc.collect()
    distributed.barrier()  # the group's end holds the GIL, which what is under way may need
    distributed.destroy_process_group()


HEADS_THAT_END_IN_TWO_LOSSES = """
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.a, self.b = nn.Linear(2, 3), nn.Linear(3, 1), nn.Linear(3, 1)

    def forward(self, x):
        features = self.trunk(x).tanh()
        return self.a(features).sum(), self.b(features).sum()

model = DistributedDataParallel(Heads())
a, b = model(torch.ones(4, 2))
a.backward(retain_graph=True)
b.backward()
"""


def test_a_second_backward_that_ddp_refuses(run, two_processes):
    """The first loss does not reach the second head, so the averaging is not complete yet."""
    error, found, _ = run(HEADS_THAT_END_IN_TWO_LOSSES)
    assert "mark a variable ready only once" in str(error)
    assert (found.cause, _line(found.raised_at)) == ("ddp_ready_twice", 18)
    added = HEADS_THAT_END_IN_TWO_LOSSES.replace("a.backward(retain_graph=True)\n", "")
    assert run(added.replace("b.backward()", "(a + b).backward()")) == (None, None, [])


class _Holding(Evidence):
    """Evidence of which only these names hold."""

    def __init__(self, *names):
        super().__init__(Record().timeline, (), (), None, None, None, RuntimeError())
        self._holding = names

    def holds(self, fact):
        name = fact.removeprefix("not ")
        return (name in self._holding) == (name == fact)


@pytest.mark.parametrize(
    "holding, confidence", [((), "likely"), (("every_entry_is_named",), "certain")]
)
def test_it_is_certain_only_where_the_advice_is_proven(holding, confidence):
    criterion = Criterion("hidden_state_carried", (), "certain")
    diagnosis = build_diagnosis("freed", criterion, _Holding(*holding))
    assert diagnosis.confidence == confidence
    assert diagnosis.proven is (confidence == "certain")


@pytest.mark.parametrize(
    "observed, holding, confidence",
    [
        (True, ("every_entry_is_named",), "certain"),
        (True, (), "likely"),
        (False, ("every_entry_is_named",), "likely"),
        (False, (), "likely"),
    ],
)
def test_an_observation_is_certain_only_where_operations_were_observed(
    monkeypatch, observed, holding, confidence
):
    monkeypatch.setattr(_Holding, "observed", observed)
    criterion = Criterion("hidden_state_carried", ("passed_on",), OBSERVED)
    diagnosis = build_diagnosis("freed", criterion, _Holding("passed_on", *holding))
    assert diagnosis.confidence == confidence


@pytest.mark.parametrize("holding, place", [((), -1), (("trained_only_there",), 0)])
def test_the_advice_is_the_first_fix_whose_facts_hold(holding, place):
    criterion = Criterion("hidden_state_carried", ("passed_on",), "likely")
    diagnosis = build_diagnosis("freed", criterion, _Holding(*holding))
    assert diagnosis.advice is CAUSES["hidden_state_carried"].fixes[place]
    assert diagnosis.facts == tuple(diagnosis.to_dict()["facts"]) == ("passed_on", *holding)


def test_the_cause_is_that_of_the_first_criterion_whose_facts_hold():
    holding = _Holding("cut_by_detach", "cut_by_first_order")
    assert decide("no_graph", holding).cause == "create_graph_missing"
    assert decide("no_graph", _Holding()).cause == "unknown"


@pytest.mark.parametrize("confidence", ["certain", "likely"])
@pytest.mark.parametrize("strict", [False, True])
def test_a_strict_watch_is_recommended_if_it_would_find_more(strict, confidence):
    diagnosis = build_diagnosis("freed", Criterion("unknown", (), "unknown"), _Holding())
    text = replace(diagnosis, strict=strict, confidence=confidence).text()
    assert ("  more:" in text) is (not strict and confidence != "certain")


@pytest.mark.parametrize(
    ("cause", "confidence", "hedge"),
    [("hidden_state_carried", "likely", " (likely)"), ("unknown", "unknown", "")],
)
def test_the_text_says_how_sure_a_known_cause_is_and_what_else_is_known(cause, confidence, hedge):
    diagnosis = build_diagnosis("freed", Criterion(cause, (), confidence), _Holding())
    assert diagnosis.text().splitlines()[0] == f"gradtrace: {diagnosis.explanation}.{hedge}"
    detailed = replace(diagnosis, detail="freed in this graph: h")
    assert detailed.explanation == f"{diagnosis.explanation}; freed in this graph: h"


def test_the_text_has_three_of_the_calls_that_led_to_the_line_that_made_the_tensor():
    calls = tuple(Location("train.py", line) for line in range(1, 6))
    diagnosis = build_diagnosis("freed", Criterion("unknown", (), "unknown"), _Holding())
    diagnosis = replace(diagnosis, made_through=calls)
    assert "called from" not in diagnosis.text()  # it is not known where the tensor was made
    text = replace(diagnosis, made_at=Location("train.py", 9)).text()
    assert re.findall(r"called from train\.py:(\d)", text) == ["1", "2", "3"]


def test_each_reason_is_given_once_and_an_alternative_only_to_an_unproven_fix():
    criterion = Criterion("hidden_state_carried", ("passed_on",), "likely")
    diagnosis = build_diagnosis("freed", criterion, _Holding("passed_on"))
    assert len(replace(diagnosis, facts=("passed_on", "passed_on")).reasons) == 1
    advice = Fix("detach it", otherwise="recompute it")
    for proven, alternative in ((True, None), (False, "recompute it")):
        assert replace(diagnosis, advice=advice, proven=proven).otherwise == alternative


def test_an_unknown_cause_has_no_reasons():
    criterion = Criterion("unknown", ("passed_on",), "unknown")
    assert build_diagnosis("freed", criterion, _Holding("passed_on")).reasons == ()


def test_a_diagnosis_has_the_lines_and_names_of_its_evidence(monkeypatch):
    monkeypatch.setattr(_Holding, "names", {"it": "hidden", "loss": None})
    raised, began, made, caller, stored = (Location("train.py", line) for line in range(1, 6))
    evidence = _Holding()
    evidence.raised_at, evidence.began_at, evidence.made_at = raised, began, made
    evidence.made_through, evidence.stored_at = (caller,), stored
    evidence.exception = RuntimeError("no")
    criterion = Criterion("hidden_state_carried", (), "likely")
    for observed in (False, True):
        evidence.timeline.observed = observed
        found = build_diagnosis("freed", criterion, evidence)
        assert (found.raised_at, found.began_at, found.made_at) == (raised, began, made)
        assert (found.made_through, found.stored_at) == ((caller,), stored)
        assert (found.error, found.names) == ("RuntimeError: no", {"it": "hidden", "loss": None})
        assert found.strict is observed


@pytest.mark.parametrize("strict", [True, False])
def test_two_calls_on_one_line_are_two_calls(run, strict):
    source = """
z, heads = nn.Linear(3, 4)(torch.randn(5, 3)).tanh(), [nn.Linear(4, 1), nn.Linear(4, 1)]
def step(head):
    loss = head(z).pow(2).mean()
    loss.backward()
step(heads[0]); step(heads[1])
"""
    found = run(_HEAD + source, strict=strict).found
    assert (found.cause, "add them" in found.fix) == ("shared_subgraph", True)
    assert [place.text for place in found.began_through] == ["step(heads[0]); step(heads[1])"]


def test_a_cause_of_several_families_has_that_of_the_error():
    assert CAUSES["function_computes_in_forward"].family is None
    assert decide("no_graph", _Holding("computed_in_forward")).family == "no_graph"


def test_errors_of_python_and_of_torch_are_explained_but_not_those_of_a_program():
    class Quoting(RuntimeError):
        pass

    text = "A tensor has different metadata than during the forward pass."
    causes = {
        kind: failure(Record(), kind(text), None, (), None)
        for kind in (RuntimeError, CheckpointError, Quoting, ArithmeticError)
    }
    assert causes[Quoting] is causes[ArithmeticError] is None
    assert causes[RuntimeError].cause == causes[CheckpointError].cause == "checkpoint_differs"


OWN_BACKWARD = """
import torch

class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = ctx.x.exp()
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, gradient):
        return torch.autograd.grad(ctx.y, ctx.x, gradient)[0]

loss = Own.apply(torch.ones(2, requires_grad=True)).sum()
loss.backward(retain_graph=True)
loss.backward()
"""


@pytest.mark.parametrize(
    ("body", "family", "cause"),
    [
        (None, "freed", "shared_subgraph"),  # the inner call raises an error of autograd
        ('raise ValueError("no")', "unsupported", "function_backward_failed"),
    ],
)
def test_an_error_inside_a_functions_backward(run, body, family, cause):
    program = OWN_BACKWARD
    if body is not None:
        program = re.sub(r"return torch\.autograd\.grad.*", body, program)
    error, found, _ = run(program)
    assert isinstance(error, RuntimeError if body is None else ValueError)
    assert (found.family, found.cause) == (family, cause)
    assert "Own" in found.carried_by
    # The line that began the outermost backward pass, not the one inside of the function.
    assert _line(found.raised_at) == (18 if body is None else 17)


def test_the_programs_own_error_in_a_functions_backward_is_explained_only_by_a_watch(tmp_path):
    program = re.sub(r"return torch\.autograd\.grad.*", 'raise ValueError("no")', OWN_BACKWARD)
    with pytest.raises(ValueError) as caught:
        exec(compile(program, tmp_path / "train.py", "exec"), {})
    assert explain(caught.value) is None


def test_an_error_of_autograd_inside_a_functions_backward_is_diagnosed_as_such(run):
    body = "with torch.enable_grad(): ctx.x.mul_(2)"
    error, found, _ = run(re.sub(r"return torch\.autograd\.grad.*", body, OWN_BACKWARD))
    assert "leaf Variable" in str(error)
    assert (found.cause, _line(found.raised_at)) == ("leaf_inplace", 17)


def test_memory_that_runs_out_in_a_second_run_is_not_a_changed_state(run):
    program = """
from torch.utils.checkpoint import checkpoint
runs = []
def block(x):
    runs.append(1)
    if len(runs) > 1:
        raise RuntimeError(MESSAGE)
    return x.exp()
checkpoint(block, torch.ones(3, requires_grad=True), use_reentrant=False).sum().backward()
"""
    assert run(_HEAD + program.replace("MESSAGE", "'not enough memory'"))[1] is None
    assert run(_HEAD + program.replace("MESSAGE", "'no'"))[1].cause == "checkpoint_raises"


FILLED_WITHOUT_A_GRAPH = """
x = nn.Parameter(torch.zeros(3))
with torch.no_grad():
    x.copy_(torch.arange(3.0))
    assert x.requires_grad
    torch.arange(3.0, out=x)
assert not x.requires_grad
torch.arange(3.0, out=x.requires_grad_())
"""


def test_a_leaf_is_filled_by_copy_because_out_switches_its_requires_grad_off(run):
    error, found, _ = run(_HEAD + FILLED_WITHOUT_A_GRAPH)
    assert "out=" in str(error) and "x.copy_(values) under torch.no_grad()" in found.otherwise


BY_HAND = """
net = nn.Linear(4, 1)
log_sigma = torch.zeros(1, requires_grad=True)
opt = torch.optim.SGD(net.parameters(), 0.1)
sigma = log_sigma.exp()
for step in range(2):
    loss = (net(torch.randn(8, 4)) / sigma).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        log_sigma -= 0.1 * log_sigma.grad
    log_sigma.grad = None
"""
TRAINED_VALUE = """
table, enc = nn.Parameter(torch.randn(5, 3)), nn.Linear(3, 3)
table[0] = enc(torch.randn(3))
"""
INNER_STEP = """
net = nn.Linear(3, 1)
slope, = torch.autograd.grad(net(torch.randn(4, 3)).pow(2).mean(), net.weight, create_graph=True)
net.weight -= 0.1 * slope
"""
STATE_BESIDE_THE_LOSS = """
net, head = nn.LSTM(3, 4), nn.Linear(4, 1)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], 0.1)
h, c = torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)
for step in range(2):
    out, (h, c) = net(torch.randn(5, 2, 3), (h, c))
    head(out).mean().backward(retain_graph=True)
    opt.step()
"""
EACH_ENTRY_USED_BEFORE = """
value, policy = nn.Linear(3, 1), nn.Linear(3, 1)
value_opt = torch.optim.SGD(value.parameters(), 0.1)
policy_opt = torch.optim.SGD(policy.parameters(), 0.1)
terms = []
for step in range(3):
    state = torch.randn(3)
    v = value(state)
    terms.append(policy(state) * v)
    value_opt.zero_grad()
    v.pow(2).mean().backward()
    value_opt.step()
torch.stack(terms).mean().backward()
"""
TWO_NETWORKS = """
actor, critic = nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
opt_a, opt_c = (torch.optim.SGD(net.parameters(), 0.1) for net in (actor, critic))
x = torch.randn(5, 3)
"""
ADVANTAGE_OF_A_CRITIC = (
    TWO_NETWORKS
    + """
advantage = critic(x) - 1
actor_loss, critic_loss = (actor(x) * advantage).mean(), advantage.pow(2).mean()
actor_loss.backward()
critic_loss.backward()
"""
)
TUPLE_FOR_SEVERAL_EPOCHS = (
    TWO_NETWORKS
    + """
from collections import namedtuple
batch = namedtuple("Batch", "x advantage")(x, critic(x) - 1)
for epoch in range(3):
    critic_loss = (critic(batch.x) - 1).pow(2).mean()
    actor_loss = (actor(batch.x) * batch.advantage).mean()
    for opt in (opt_a, opt_c):
        opt.zero_grad()
    critic_loss.backward(); actor_loss.backward()
    for opt in (opt_a, opt_c):
        opt.step()
"""
)
DICT_OF_LOSSES = (
    TWO_NETWORKS
    + """
def losses(x):
    outputs = actor(torch.stack([x, x + 1])).tanh()
    error = critic(x) - outputs[1]
    return {"actor": outputs[0].mean(), "critic": error.pow(2).mean()}
found = losses(x)
for opt, key in ((opt_a, "actor"), (opt_c, "critic")):
    opt.zero_grad()
    found[key].backward()
    opt.step()
"""
)
CACHE_IN_A_BUFFER = """
class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.freqs = nn.Parameter(torch.ones(3))
        self.register_buffer("cached", None)
    def forward(self, x):
        if self.cached is None:
            self.cached = self.freqs.exp()
        return x * self.cached
net, rotary = nn.Linear(3, 3), Rotary()
opt = torch.optim.SGD([*net.parameters(), *rotary.parameters()], 0.1)
for step in range(3):
    opt.zero_grad()
    rotary(net(torch.randn(2, 3))).pow(2).mean().backward()
    opt.step()
"""
QUEUE_IN_A_BUFFER = """
class Queue(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(3, 2)
        self.register_buffer("keys", torch.randn(4, 2))
    def forward(self, x, row):
        z = self.f(x)
        similarity = z @ self.keys.clone().t()
        self.keys[row] = z
        return similarity
queue = Queue()
for row in range(3):
    queue(torch.randn(3), row).pow(2).sum().backward()
"""
UNITS_EDITED = """
blocks = nn.ModuleList([nn.ModuleDict({"up": nn.Linear(3, 4), "down": nn.Linear(4, 3)})])
table = nn.Embedding(5, 3)
opt = torch.optim.SGD([*blocks.parameters(), *table.parameters()], 0.1)
x = table(torch.arange(5))
blocks[0]["down"](blocks[0]["up"](x)).mm(table.weight.t()).sum().backward()
opt.step()
def edit(k, unit, token):
    blocks[k]["down"].weight[:, unit] = table.weight[token] * 3
edit(-1, 2, 1)
"""
AVERAGED_BEFORE_THE_FIRST_STEP = """
student, teacher = nn.Linear(3, 2), nn.Linear(3, 2)
opt = torch.optim.SGD(student.parameters(), 0.1)
for new, old in zip(student.parameters(), teacher.parameters()):
    old.mul_(0.9).add_(new * 0.1)
"""
LEARNED_MIXTURE = """
base, other = nn.Linear(3, 2), nn.Linear(3, 2)
alpha = torch.zeros(1, requires_grad=True)
opt = torch.optim.SGD([alpha], 0.1)
for p, q in zip(base.parameters(), other.parameters()):
    p += alpha * q.detach()
"""
GRADIENT_IN_A_FUNCTIONS_FORWARD = """
class Relax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, net, z):
        slope, = torch.autograd.grad(net(z).sum(), z)
        return z - slope
net = nn.Linear(3, 1)
Relax.apply(net, nn.Linear(2, 3)(torch.ones(1, 2)))
"""
GRADIENT_OF_WHAT_IS_OFF_IN_FORWARD = (
    GRADIENT_IN_A_FUNCTIONS_FORWARD.replace(
        "        slope", "        with torch.enable_grad(): e = net(z)\n        slope"
    )
    .replace("net(z).sum()", "e.sum()")
    .replace("z - slope", "z")
    .replace(
        "(ctx, net, z):\n",
        """\
(ctx, net, z):
        z = z * 1
""",
    )
)
TWO_LOSSES_OF_A_GENERATOR = """
encoder, generator = nn.Linear(3, 2), nn.Linear(2, 3)
opt_g = torch.optim.SGD(generator.parameters(), 0.1)
opt_e = torch.optim.SGD([*encoder.parameters(), *generator.parameters()], 0.1)
encoder.requires_grad_(False)
z = torch.randn(4, 2)
fake = generator(z).tanh()
adversarial, code = fake.mean(), F.mse_loss(encoder(fake), z)
opt_g.zero_grad()
adversarial.backward()
(0.5 * code).backward()
"""
AUTOENCODER = """
encoder, decoder = nn.Linear(3, 2), nn.Linear(2, 3)
opt_e, opt_d = (torch.optim.SGD(net.parameters(), 0.1) for net in (encoder, decoder))
x = torch.randn(4, 3)
y = decoder(encoder(x).tanh()).tanh()
sparsity, error = y.abs().mean(), F.mse_loss(y, x)
sparsity.backward()
error.backward()
"""


CACHE_OF_WEIGHTS_TRAINED_BEFORE = """
net, kept = nn.Linear(3, 3), []
def fit(opt):
    net(torch.ones(2, 3)).pow(2).sum().backward()
    opt.step()
fit(torch.optim.SGD(net.parameters(), 0.1))
x = torch.randn(3, 3, requires_grad=True)
opt = torch.optim.SGD([x], 0.1)
for _ in range(2):
    if not kept:
        kept.append(net.weight.exp().tanh())
    (x @ kept[0]).exp().sum().backward()
    opt.step()
"""
COPIES_FROZEN_IN_A_LOOP = """
net = nn.Linear(3, 1)
copies = [p.clone() for p in net.parameters()]
for p in copies:
    p.requires_grad = False
"""


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("program", "advice"),
    [
        (CACHE_OF_WEIGHTS_TRAINED_BEFORE, "it would miss the steps"),
        (COPIES_FROZEN_IN_A_LOOP, "before p is computed from them"),
        (CACHE_IN_A_BUFFER, "reset rotary.cached in each iteration to its first value"),
        (QUEUE_IN_A_BUFFER, "if each forward pass is to start from the same values"),
        (TWO_LOSSES_OF_A_GENERATOR, "call backward() once: (adversarial + 0.5 * code).backward()"),
        (AUTOENCODER, "if each loss is to train its own network only"),
        (ADVANTAGE_OF_A_CRITIC, "detach advantage where actor_loss reads it"),
        (TUPLE_FOR_SEVERAL_EPOCHS, "detach batch.advantage in the loss whose optimizer does not"),
        (DICT_OF_LOSSES, "where found['critic'] reads it"),
        (BY_HAND, "recompute sigma in each iteration"),
        (TRAINED_VALUE, "write into table.clone()"),
        (INNER_STEP, "write into net.weight.clone()"),
        (UNITS_EDITED, "change blocks[k]['down'].weight under torch.no_grad(), because"),
        (AVERAGED_BEFORE_THE_FIRST_STEP, "change old under torch.no_grad(), because"),
        (LEARNED_MIXTURE, "write into p.clone()"),
        (GRADIENT_IN_A_FUNCTIONS_FORWARD, "take z = z.clone().requires_grad_() there"),
        (GRADIENT_OF_WHAT_IS_OFF_IN_FORWARD, "take z = z.clone().requires_grad_() there"),
        (STATE_BESIDE_THE_LOSS, "h = h.detach(); c = c.detach()"),
        (EACH_ENTRY_USED_BEFORE, "detach v where"),
    ],
)
def test_the_advice_leaves_no_parameter_without_gradient(run, program, advice, strict):
    _, found, _ = run(_HEAD + program, strict=strict)
    assert advice in found.fix, found.text()
    if program is DICT_OF_LOSSES:
        tensor = "outputs[1]" if strict else "the output of actor"
        assert found.fix.startswith(f"detach {tensor} where"), found.text()


ONE_LINE_FOR_TWO_LOSSES = """
def apply(opt, loss, keep=None):
    opt.zero_grad()
    loss.backward(retain_graph=keep)
    opt.step()
G, D = nn.Linear(2, 3), nn.Linear(3, 1)
og, od = torch.optim.SGD(G.parameters(), 0.1), torch.optim.SGD(D.parameters(), 0.1)
def learn(keep):
    fake = G(torch.randn(4, 2))
    d_loss = D(fake).mean()
    apply(od, d_loss, keep)
    g_loss = -D(fake).mean()
    apply(og, g_loss)
learn(None)
"""


@pytest.mark.parametrize("strict", [True, False])
def test_the_caller_is_named_of_a_line_that_two_losses_share(run, strict):
    _, found, _ = run(_HEAD + ONE_LINE_FOR_TWO_LOSSES, strict=strict)
    assert (_line(found.began_at), [*map(_line, found.began_through)]) == (5, [12])
    assert "12  apply(od, d_loss, keep)" in found.text()
    assert found.fix.startswith("detach fake where d_loss reads it (line 11),")
    stepped = (
        ONE_LINE_FOR_TWO_LOSSES.replace("learn(None)", "learn(True)")
        .replace(
            "    apply(od",
            "    g_loss = -D(torch.tanh(D.bias) * fake.detach()).mean()\n    apply(od",
        )
        .replace("    g_loss = -D(fake).mean()\n", "")
    )
    _, found, _ = run(_HEAD + stepped, strict=strict)
    assert found.cause == "optimizer_step_between_backwards"
    assert (_line(found.began_at), [*map(_line, found.began_through)]) == (6, [13])


ACTOR_AND_CRITIC = """
trunk, actor, critic = nn.Linear(4, 3), nn.Linear(3, 2), nn.Linear(3, 1)
oa = torch.optim.SGD(actor.parameters(), 0.1)
oc = torch.optim.SGD([*trunk.parameters(), *critic.parameters()], 0.1)
hidden = torch.tanh(trunk(torch.randn(5, 4)))
advantage = 1 - critic(hidden).squeeze()
actor_loss = (actor(HIDDEN)[:, 0] * advantage).mean()
critic_loss = advantage.pow(2).mean()
actor_loss.backward()
oa.step()
critic_loss.backward()
"""


@pytest.mark.parametrize("strict", [True, False])
def test_detach_is_advised_where_the_earlier_loss_alone_reads_all_that_both_share(run, strict):
    _, found, _ = run(_HEAD + ACTOR_AND_CRITIC.replace("HIDDEN", "hidden.detach()"), strict=strict)
    at = " (line 8)" if strict else ""  # without it, line 9 could be of either loss
    assert found.fix.startswith(f"detach advantage where actor_loss reads it{at}, because")
    _, found, _ = run(_HEAD + ACTOR_AND_CRITIC.replace("HIDDEN", "hidden"), strict=strict)
    assert "detach" not in found.fix
    assert "inputs=" in found.fix and found.otherwise.startswith("if both losses must train")


@pytest.mark.parametrize("strict", [True, False])
def test_the_call_is_named_that_requests_an_unused_input_beside_used_ones(run, strict):
    net = """
def task(net, x):
    return gradients(net[0](x).mean(), [*net.parameters()])
def gradients(loss, parameters):
    return torch.autograd.grad(loss, parameters)
net, loss = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)), None
task(net, torch.ones(1, 3))
"""
    _, found, _ = run(_HEAD + net, strict=strict)
    assert (found.cause, _line(found.began_at)) == ("unused_input", 6)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("buffers_of_two_layers", "net[0].state.detach(); net[1].state = net[1].state.detach()"),
        ("relu_of_a_parameter", "set inplace=False in the layer that changes "),
        ("perturbed_input_not_used", "compute the result from perturbed itself"),
        ("parameters_made_in_inference_mode", "compute net.weight under torch.no_grad()"),
        ("attribute_set_between_two_checkpoints", "pass self.length to Frames as an argument"),
        ("counter_advanced_after_its_checkpoint", "pass self.step to Net.block as an argument"),
        ("flag_of_an_inner_layer_cleared_by_a_probe", "change self.fast only after backward()"),
        ("global_switch_read_in_a_checkpoint", "change normalize only after backward()"),
        ("accuracy_in_eval_mode_before_backward", "call net.eval() only after backward()"),
        ("cache_of_a_layer_in_a_block", "do not change past in Block: pass the old value"),
        ("random_routes_in_a_checkpoint", "preserve_rng_state=True to checkpoint(), so that"),
        ("gradient_of_a_flag_missing", "in that order: return gradient, None"),
        ("gradient_of_a_constant_first_input", "in that order: return None, grad_support"),
        ("gradient_of_a_number", "in that order: return ctx.factor * gradient, None"),
        ("gradient_of_another_shape", "correct the line where it began, so that the gradient"),
        ("gradient_cut_wrongly", "correct the line where it began, so that the gradient"),
        ("gradient_of_the_columns_read", "add zeros for elements that it does not use"),
        ("penalty_on_a_gradient_from_numpy", "operations in place of numpy's, without detach()"),
        ("sorted_by_numpy_in_forward", "operations in place of numpy's"),
        ("plot_of_a_loss", "loss.detach().cpu().numpy()"),
        ("mean_of_weighted_losses_by_numpy", "[x.detach().cpu().numpy() for x in losses]"),
        ("max_norm_called_twice", "because the layer changes this parameter each time it runs"),
        ("max_norm_of_initialized_tied_weights", "because the layer changes this parameter"),
        ("images_scaled_after_requires_grad", "images = images.detach().requires_grad_()"),
        ("hook_on_a_frozen_weight", "if p.requires_grad"),
        ("scale_shaped_by_data_after_its_first_use", "write layer.scale.data.copy_(values)"),
        ("hook_on_an_activation_of_frozen_layers", "call output.requires_grad_() before"),
        ("metric_divided_after_inference_mode", "total = total / n"),
        ("solver_in_forward_of_a_function", "this call under torch.enable_grad()"),
        ("metric_read_before_no_grad_block", "outside torch.no_grad()"),
        ("update_out_of_place", "w -= lr * w.grad; w.grad = None"),
        ("scaled_after_requires_grad", "make latent a leaf"),
        ("gradient_of_an_activation", "call net.maps.retain_grad() before backward()"),
        ("entries_written_under_vmap", "create out by torch.zeros_like(x)"),
        ("running_statistics_under_grad", "value.clone() for key, value in net.named_buffers()"),
        ("calls_counted_under_grad", "make calls an argument"),
        ("inner_step_of_parameters_not_used", "Make updated values new tensors"),
        ("copies_of_weights_updated_in_a_loop", "build a list of new tensors"),
        ("layer_updated_by_its_gradient", "If the loss must depend on the change"),
        ("target_network_updated_with_a_graph", "change old under torch.no_grad(), because"),
        ("rows_of_a_layer_edited", "change layer.weight under torch.no_grad(), because"),
        ("reconstruction_in_the_losses_of_two_optimizers", "on each before all steps"),
        ("losses_of_two_optimizers_that_share_a_trunk", "after the weights have changed"),
        ("column_written_after_the_whole_was_read", "or write into a clone"),
        ("gradient_of_a_new_view", "request the gradient of x, and take the part"),
        ("vector_backward", "average loss first"),
        ("grad_of_vector", "pass grad_outputs=torch.ones_like(y)"),
        ("features_of_an_untrained_layer_in_accumulated_steps", "detach features once"),
        ("outputs_collected_by_name", "empty each container in outputs"),
        ("list_of_gradients", "in that order: return gradient * y, gradient * x"),
        ("nothing_saved", "keep x in forward"),
        ("mask_not_kept", "keep ctx.mask in forward"),
        ("adapters_frozen_with_their_base", "on adapter.weight, adapter.bias"),
        ("weights_loaded_before_backward", "change child.weight before it is used"),
        ("gradients_in_another_order", "order: return gradient * 2, None, gradient.sum(0)"),
        ("activation_kept_on_a_copied_module", "keep net.kept in a local variable"),
        ("encoder_and_decoder_with_an_optimizer_each", "if only the other loss is to train it"),
        ("three_networks_with_an_optimizer_each", "if both are to train what z was"),
        ("heads_step_before_their_trunk", "if both are to train what features was"),
        ("target_network_of_two_critics", "detach y directly after the computation, because no"),
        ("codebook_trained_in_the_forward_pass", "the first loss reads it, because the optimizer"),
        ("sum_of_states_beside_the_loss", "memory.total = memory.total.detach()"),
        ("weights_of_learned_steps", "tensor.detach().requires_grad_() for key, tensor in"),
        ("dropout_of_a_layer_in_place", "set inplace=False in the layer"),
        ("weights_in_a_cached_property", "put @property in place of @cached_property in the line"),
        ("probe_after_the_step_of_its_encoder", "backward(inputs=list(probe.parameters()))"),
        ("update_left_out_with_the_step", "call self.scaler.update() in each iteration that"),
        ("unscaled_after_each_part", "once, after the last backward() of the step"),
        ("gradients_cleared_before_the_scaled_step", "clear the gradients before backward()"),
        ("scaled_loss_of_copied_numbers", "combine tensors with torch.stack or torch.cat"),
        ("scaled_loss_of_another_network", "is computed from: copied.weight, copied.bias"),
        ("scaled_loss_of_a_frozen_network", "call requires_grad_(True) on the parameters"),
        ("value_from_before_the_step", "recompute value with the new weights after the step"),
        ("hidden_states_by_index", "instead of writing into hidden, or read clones of its parts"),
        ("lbfgs_forward_outside_closure", "inside the closure"),
        ("weights_clipped_in_a_loop_over_parameters", "change critic.2.weight after backward()"),
        ("features_scaled_in_a_loop", "build a list of new tensors"),
        ("labels_beside_alphas", "instead of writing into alphas"),
        ("once_differentiable_square", "remove the decorator @once_differentiable, if"),
        ("once_differentiable_in_eight_bits", "write that backward() with operations that"),
        ("once_differentiable_from_numbers", "write that backward() with operations that"),
        ("penalty_through_a_function_in_eight_bits", "write that backward() with operations that"),
        ("handed_out_by_an_attack", "moved = moved.detach().requires_grad_()"),
        ("update_out_of_place", "w -= lr * w.grad"),
        ("update_of_entries", "w -= lr * w.grad"),
        ("path_copied_into_its_parts", "collect the new parts in a list"),
        *(  # since Python 3.12 its variables have ended when the error is explained
            [("target_moved_in_a_comprehension", "because this statement updates a parameter")]
            if sys.version_info < (3, 12)
            else []
        ),
        ("log_probabilities_in_a_dict_of_lists", "empty memory['logp'] at the end"),
        ("log_probabilities_in_steps", "empty self.history at the end"),
        ("array_of_an_entry", "self.out['pi'].detach().cpu().numpy()"),
        ("clipped_parameters_in_an_attribute", "after backward(), because this loss"),
        ("gradient_viewed_with_other_strides", "call reshape() in place of view()"),
    ],
)
def test_the_advice_names_what_to_change(run, name, advice, strict):
    program = next(program for program in PROGRAMS if program.name == name)
    assert advice in run(program.source(fixed=False), strict).found.fix


@pytest.mark.parametrize(
    ("inplace", "fix"),
    [
        ("layers[1](y)", "set inplace=False in the layer"),
        ("y.relu_()", "y = y.relu()"),
        ("y += y.exp()", "y = y + y.exp()"),
        ("y.mul_(2).add_(y, alpha=2)", "y = y.mul(2).add(y, alpha=2)"),
        ("F.relu(y, inplace=True)", "y = F.relu(y)"),
        ("y[:, 0] += 1", "y = y.clone(), before this line"),
        ("y[:, 0] = 1", "y = y.clone(), before this line"),
        ("out = y.mul_(2)", "x = x * s in place of x *= s"),
    ],
)
def test_a_layer_that_changes_a_hooked_output_is_to_make_a_new_one(run, inplace, fix):
    program = f"""
layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True))
layers[0].register_full_backward_hook(lambda *gradients: None)
y = layers[0](torch.ones(1, 2, requires_grad=True))
{inplace}
"""
    _, found, _ = run(_HEAD + program)
    assert found.cause == "view_changed_inplace"
    assert fix in found.fix
    assert "outputs of a module that has a full backward hook" in found.explanation


def test_a_shared_part_without_an_optimizer_is_not_trained_by_a_step(run):
    program = """
target = torch.ones(3, requires_grad=True)
critics = [nn.Linear(3, 1), nn.Linear(3, 1)]
opts = [torch.optim.SGD(critic.parameters(), 0.1) for critic in critics]
y = target.exp().sum()
first, second = (F.mse_loss(critic(torch.randn(3)).sum(), y) for critic in critics)
first.backward()
opts[0].step()
second.backward()
"""
    assert "second_trains_others" not in run(_HEAD + program).found.facts


@pytest.mark.parametrize("strict", [True, False])
def test_losses_without_different_names_are_not_named(run, strict):
    program = "h = torch.zeros(3, requires_grad=True).exp()\n" + 2 * "h.sum().backward()\n"
    assert "(first + second).backward()" in run(_HEAD + program, strict).found.fix


def test_a_line_that_has_not_run_made_nothing(run):
    program = """
def fill(table):
    table[:, 0] = torch.zeros(2)
    table[:, 1] = torch.ones(2)
fill(torch.zeros(2, 2, requires_grad=True))
"""
    _, found, _ = run(_HEAD + program)
    assert found.raised_at.line == 4 and found.made_at is None


_STORING = {
    "an if": """
if FLAG:
    alpha = w.exp()
else:
    alpha = max(w, key=id)
for step in range(2):
    for _ in range(2):
        (alpha * w).sum().backward()
    if FLAG:
        alpha = w.exp()
""",
    "a later line": """
def make(): return w.exp()
memory = [make()]
for step in range(2):
    for _ in range(2):
        (memory[0] * w).sum().backward()
    memory.append(w.cos())
""",
    "an argument": """
def train(alpha=None):
    if alpha is None:
        alpha = w.cos()
    for _ in range(2):
        (alpha * w).sum().backward()
train(w.exp())
""",
    "an attribute": """
class Agent:
    def __init__(self):
        if FLAG:
            self.alpha = w.exp()
        else:
            self.alpha = max(w, key=id)
    def train(self):
        for _ in range(2):
            (self.alpha * w).sum().backward()
Agent().train()
""",
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", _STORING)
def test_no_line_that_may_not_have_run_stored_a_tensor(run, name, strict):
    w = "w, FLAG = torch.ones(2, requires_grad=True), True\n"
    _, found, _ = run(_HEAD + w + _STORING[name], strict)
    assert found.stored_at is None or found.stored_at.text == "memory = [make()]"


@pytest.mark.parametrize("other", ["3", "0", "None", "numpy.zeros(2)"])
def test_a_dict_is_rebuilt_only_if_all_its_values_are_tensors(run, other):
    program = """
import numpy, torch
w = torch.ones(2, requires_grad=True)
memory = {"state": torch.zeros(2), "other": OTHER}
for _ in range(2):
    memory["state"] = (memory["state"] + w).exp()
    memory["state"].sum().backward()
"""
    _, tensors, _ = run(program.replace("OTHER", "torch.ones(2)"))
    assert "for key, tensor in memory.items()" in tensors.fix
    _, mixed, _ = run(program.replace("OTHER", other))
    assert "detach every tensor in memory" in mixed.fix


def test_a_gradient_that_the_program_has_replaced_has_lost_its_graph_there(run):
    _, found, _ = run("""import torch
w = torch.ones(2, requires_grad=True)
(gradient,) = torch.autograd.grad(w.pow(3).sum(), w, create_graph=True)
w.grad = gradient.detach()
w.grad.pow(2).sum().backward()
""")
    assert (found.cause, _line(found.began_at)) == ("detach_wrong_place", 4)


def test_an_error_that_no_backward_raised_has_the_programs_line(run):
    error, found, _ = run("import torch\nx = torch.ones(2, requires_grad=True)\nx.mul_(2)\n")
    assert "leaf Variable" in str(error)
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    assert (found.raised_at.file, found.raised_at.line) == (files[-1], 3)
    assert run("import torch\nraise ValueError\n")[1] is None


@pytest.mark.parametrize("line", ["config.grad", "w.grad * None", "w.grad.missing", "h + None"])
def test_only_a_gradient_of_a_result_explains_an_error_about_none(run, line):
    text = f"w = torch.ones(2, requires_grad=True)\nh = w * 2\nh.sum().backward()\n{line}\n"
    error, found, _ = run(f"import torch\nconfig = None\n{text}")
    assert isinstance(error, AttributeError | TypeError) and found is None
    assert run(f"import torch\n{text}h.grad.abs()\n".replace(line, ""))[1].carried_by == "h"


@pytest.mark.parametrize(("call", "is_certain"), [("h.sum().backward()", True), ("pass", False)])
def test_only_a_graph_that_was_used_makes_the_array_of_a_tensor_certain(run, call, is_certain):
    text = f"w = torch.ones(2, requires_grad=True)\nh = w.exp()\n{call}\nh.numpy()\n"
    found = run(f"import torch\n{text}")[1]
    assert (found.confidence == "certain") is (found.otherwise is None) is is_certain


def test_an_error_without_tensors_has_a_family_and_no_cause():
    error = RuntimeError("Trying to backward through the graph a second time")
    for outputs in (None, torch.ones(())):  # nothing is known of them, or too little
        diagnosis = failure(Record(), error, outputs, (), None)
        assert (diagnosis.family, diagnosis.cause) == ("freed", "unknown")
        assert (diagnosis.confidence, diagnosis.reasons) == ("unknown", ())
        assert diagnosis.error == f"RuntimeError: {error}"
    unused = "One of the differentiated Tensors appears to not have been used in the graph"
    assert failure(Record(), RuntimeError(unused), None, (), None).cause == "unknown"


@pytest.mark.parametrize("start, confidence", [("", "certain"), ("thread.start()", "likely")])
def test_after_a_backward_call_in_a_second_thread_a_cause_is_likely(run, start, confidence):
    """Each thread numbers its own operations, so their order is not known."""
    source = f"""import threading, torch
thread = threading.Thread(target=lambda: torch.ones(2, requires_grad=True).sum().backward())
{start}
{start and "thread.join()"}
x = torch.ones(2, requires_grad=True)
y = x.exp()
loss = (y * y).sum()
y.add_(1)
loss.backward()
"""
    assert run(source)[1].confidence == confidence


def test_an_error_in_a_thread_that_runs_no_line_of_the_program_has_no_place():
    error = RuntimeError("Trying to backward through the graph a second time")
    with ThreadPoolExecutor() as threads:
        failed = threads.submit(failure, Record(), error, None, (), BackwardCall(1, None, 0))
    assert (failed.result().family, failed.result().raised_at) == ("freed", None)


def test_the_text_of_an_error_names_its_function():
    error = RuntimeError("function CubeBackward returned an invalid gradient at index 0")
    diagnosis = failure(Record(), error, None, (), None)
    cause = "function_returns_wrong_gradients"
    assert (diagnosis.family, diagnosis.cause) == ("unsupported", cause)
    assert diagnosis.carried_by == "Cube"
    assert diagnosis.confidence == "likely"  # its advice is not proven
    assert diagnosis.raised_at.file == __file__  # without a traceback, the line that runs


EXCHANGED = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, {inputs}):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        return {gradients}

x, w = torch.ones(4, 3, requires_grad=True), torch.ones(3, requires_grad=True)
Scale.apply({inputs}).sum().backward()
"""


@pytest.mark.parametrize(
    ("inputs", "gradients", "fact"),
    [
        ("x, w", "(gradient * x).sum(0), gradient * w", "fits_another_input"),
        ("w, x", "gradient * w, (gradient * x).sum(1)", "other_size"),
        ("x, w", "gradient.sum(1), (gradient * x).sum(0)", "other_size"),
        ("x, w", "(gradient * w).flatten(), (gradient * x).sum(0)", "fits_an_output"),
        ("w, x", "(gradient * x).sum(0)[None].T, gradient * w", "same_size"),
    ],
)
def test_a_gradient_of_another_shape_is_compared_with_inputs_and_outputs(
    run, inputs, gradients, fact
):
    _, found, _ = run(_HEAD + EXCHANGED.format(inputs=inputs, gradients=gradients))
    assert (found.cause, found.facts) == ("function_returns_wrong_gradients", (fact,))


PENALTY_AFTER_A_STEP = """
D = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(D.parameters(), 0.1)
for _ in range(2):
    opt.zero_grad()
    D(torch.randn(3, 2)).mean().backward({option})
    x = torch.randn(3, 2, requires_grad=True)
    slope, = torch.autograd.grad(D(x).sum(), x, create_graph=True)
    penalty = (slope.norm(2, 1) - 1).pow(2).mean()
    opt.step()
    penalty.backward()
"""


@pytest.mark.parametrize(("option", "is_inner"), [("", False), ("create_graph=True", True)])
def test_a_gradient_penalty_makes_no_step_differentiable(run, option, is_inner):
    _, found, _ = run(_HEAD + PENALTY_AFTER_A_STEP.format(option=option), strict=True)
    assert found.cause == "optimizer_step_between_backwards"
    assert ("differentiable_step" in found.facts) is is_inner
    assert is_inner or found.fix.startswith("recompute this loss after the step, by a new forward")


GAN = """
G, D = nn.Linear(2, 3), nn.Linear(3, 1)
opt_g, opt_d = (torch.optim.SGD(net.parameters(), 0.1) for net in (G, D))
for i in range(8):
    fake = G(torch.randn(4, 2))
    (-D(fake).mean()).backward()
    if i % 2 or not {adds_up}:
        opt_g.step()
        opt_g.zero_grad()
    (D(fake.detach()).mean() - D(torch.randn(4, 3)).mean()).backward()
    if i % 2 or not {adds_up}:
        opt_d.step()
        opt_d.zero_grad()
"""
GAN_NEVER_CLEARED = GAN.format(adds_up=False).replace("opt_d.zero_grad()", "pass")
REPLACED = """
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1), nn.Linear(1, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
net[0], net[2] = nn.Linear(3, {width}), nn.Linear({width}, 1)
for _ in range(5):
    opt.zero_grad()
    net(torch.randn(6, 3)).pow(2).mean().backward()
    opt.step()
"""
CODES = """
encoder, codes = nn.Linear(3, 2), nn.Parameter(torch.randn(4, 2))
class Quantizer(nn.Module):
    def forward(self, z):
        code = codes[torch.cdist(z, codes).argmin(1)]
        return z + (code - z).detach()
quantizer, opt = Quantizer(), torch.optim.SGD([*encoder.parameters(), codes], 0.1)
for _ in range(5):
    opt.zero_grad()
    z = encoder(torch.randn(6, 3))
    (quantizer(z) - z.detach()).pow(2).mean().backward()
    opt.step()
"""
JOINT = """
net = nn.ModuleDict({"maker": nn.Linear(2, 3), "judge": nn.Linear(3, 1)})
opt_ae, opt_judge = (torch.optim.SGD(part.parameters(), 0.1) for part in net.values())
for i in range(8):
    fake = net["maker"](torch.randn(4, 2))
    loss_ae = -net["judge"](fake).mean()
    loss_ae.backward()
    loss_judge = (net["judge"](fake.detach()) - net["judge"](torch.randn(4, 3))).mean()
    loss_judge.backward()
    if i % 2:
        opt_ae.step()
        opt_ae.zero_grad()
        opt_judge.step()
        opt_judge.zero_grad()
"""
SHARED = """
w, obs = nn.Parameter(torch.ones(3)), torch.rand(3)
array = obs.numpy()
loss = (w * obs).sum()
array += 1
loss.backward()
"""


NOISE = """
x = torch.linspace(-1, 1, 4, requires_grad=True)
noise = torch.tanh(x * 2)
noise.data[:2] = {new}
(noise + 1).pow(2).sum().backward()
"""


@pytest.mark.parametrize(
    ("text", "cause", "advice"),
    [
        (GAN.format(adds_up=False), "gradient_leaks", "by opt_d.zero_grad()"),
        (GAN.format(adds_up=True), "gradient_leaks", "by requires_grad_(False), while the other"),
        (GAN_NEVER_CLEARED, "gradients_not_cleared", "opt_d.zero_grad() before"),
        (REPLACED.format(width=4), "in_no_optimizer", "copy the new values"),
        (REPLACED.format(width=2), "in_no_optimizer", "create the optimizer after"),
        (CODES, "never_trained", "from the value before this line"),
        (SHARED, "data_edit_silent", "obs.clone()"),
        (NOISE.format(new="noise.data[:2] * 0.5"), "data_edit_silent", "as a new tensor"),
        (NOISE.format(new="0.0"), "data_edit_silent", "edit a clone"),
        (JOINT, "gradient_leaks", "freeze net.judge.weight, net.judge.bias, by requires_grad_"),
    ],
)
def test_advice_of_a_silent_failure_follows_from_a_fact(run, text, cause, advice):
    finding = next(f for f in run(_HEAD + text).findings if f.cause == cause)
    assert advice in finding.text().partition("fix:")[2].splitlines()[0]
