"""The judge of repairs, on records written by hand: nothing is run."""

from __future__ import annotations

from collections import Counter

import pytest

from gradtrace.repair import kinds
from gradtrace.repair.intent import targets_of_calls
from gradtrace.repair.judge import OPEN, PROVEN, REJECTED, UNPROVEN, Judge, Judgement
from gradtrace.repair.kinds import Repair
from gradtrace.repair.rule import Candidate
from gradtrace.repair.run.observations import (
    GradientsCleared,
    ObservedCall,
    OptimizerInfo,
    ProgramLine,
    ProgramRun,
    Sample,
    StepTaken,
)

LINE = ProgramLine("train.py", 7, "<module>")
TWO_NETWORKS = [OptimizerInfo("opt_g", ("g",)), OptimizerInfo("opt_d", ("d",))]


def sample(*values: float) -> Sample:
    return Sample(values)


def backward(number: int, loss: float, text: str = "loss.backward()", **fields) -> ObservedCall:
    gradients = fields.pop("gradients", {"w": sample(1.0, 2.0)})
    values = {
        "site": (LINE,),
        "text": text,
        "losses": (sample(loss),),
        "operations": Counter(MulBackward0=2, AddBackward0=1),
        "oldest_node": 10 * number,
        "saved_bytes": 8,
        "leaves": frozenset(gradients),
        "stale_leaves": frozenset(),
        "upstream": frozenset(),
        **fields,
    }
    return ObservedCall(number, gradients=gradients, **values)


def failing(call: ObservedCall) -> ObservedCall:
    call.failed, call.gradients = True, {}
    return call


def step(optimizer: int, *calls: int, **gradients: Sample) -> StepTaken:
    gradients = gradients or {"w": sample(1.0, 2.0)}
    return StepTaken(optimizer, gradients, dict.fromkeys(gradients, calls), closure=False)


def program(*events, status: str = "ended", optimizers=None, **fields) -> ProgramRun:
    optimizers = [OptimizerInfo("opt", ("w",))] if optimizers is None else optimizers
    keys = [key for optimizer in optimizers for key in optimizer.keys]
    diagnosis = {"family": "freed", "cause": "shared_subgraph", **fields.pop("diagnosis", {})}
    run = ProgramRun(status, events=list(events), optimizers=optimizers, diagnosis=diagnosis)
    run.names = {key: key for key in keys}
    run.error = "RuntimeError: freed" if status == "raised" else None
    for name, value in fields.items():
        setattr(run, name, value)
    return run


ORIGINAL = program(backward(1, 3.0), step(0, 1), failing(backward(2, 2.0)), status="raised")
REFERENCE = program(backward(1, 3.0), step(0, 1), backward(2, 2.0), step(0, 2))


def judge(
    repair: Repair, *events, original=ORIGINAL, reference=REFERENCE, optimizers=None, **fields
) -> Judgement:
    doubt = fields.pop("doubt", None)
    run = program(*events, optimizers=optimizers or original.optimizers, **fields)
    return Judge(original, reference).judge(Candidate(repair, "an edit", {}, doubt=doubt), run)


def repaired(loss: float = 2.0, **fields) -> tuple:
    """The events of a repaired program: its second call has this loss."""
    return backward(1, 3.0), step(0, 1), backward(2, loss, **fields), step(0, 2)


def test_the_objective_of_the_program_is_proven():
    judgement = judge(kinds.OUT_OF_PLACE, *repaired())
    assert (judgement.status, judgement.reasons) == (PROVEN, [])
    assert "the first 2 losses are unchanged" in judgement.evidence


@pytest.mark.parametrize("repair", [kinds.OUT_OF_PLACE, kinds.DETACH_STATE, kinds.CLONE_USED])
def test_a_doubled_loss_is_rejected(repair):
    judgement = judge(repair, *repaired(4.0, gradients={"w": sample(2.0, 4.0)}))
    assert judgement.reasons == ["runs, but changes the loss of backward call 2"]


def test_a_doubled_gradient_of_the_right_loss_is_rejected():
    judgement = judge(kinds.OUT_OF_PLACE, *repaired(gradients={"w": sample(2.0, 4.0)}))
    assert judgement.reasons == ["runs, but changes the gradient of backward call 2"]


def test_a_gradient_is_rejected_after_an_earlier_backward_of_the_same_iteration():
    """The discriminator's own call is right; the generator's is not."""
    events = [
        GradientsCleared(frozenset({1})),
        backward(1, 3.0, "d_loss.backward()", gradients={"d": sample(1.0)}),
        step(1, 1, d=sample(1.0)),
        GradientsCleared(frozenset({0})),
    ]
    last = backward(2, 2.0, "g_loss.backward()", gradients={"g": sample(1.0)})
    reference = program(*events, last, step(0, 2, g=sample(1.0)), optimizers=TWO_NETWORKS)
    lost = backward(2, 2.0, "g_loss.backward()", gradients={"g": sample(1.0)})
    original = program(*events, failing(lost), status="raised", optimizers=TWO_NETWORKS)
    for gradient, status in ((1.0, PROVEN), (3.0, REJECTED)):
        call = backward(2, 2.0, "g_loss.backward()", gradients={"g": sample(gradient)})
        taken = step(0, 2, g=sample(gradient))
        judgement = judge(
            kinds.CLONE_USED, *events, call, taken, original=original, reference=reference
        )
        assert judgement.status == status, judgement.reasons


def test_only_a_repair_that_cuts_may_truncate():
    truncated = {"w": sample(0.5, 1.0)}
    last = backward(2, 2.0, truncated=truncated)
    reference = program(backward(1, 3.0), step(0, 1), last, step(0, 2))
    for repair, status in (
        (kinds.DETACH_STATE, PROVEN),
        (kinds.OUT_OF_PLACE, REJECTED),
    ):
        judgement = judge(repair, *repaired(gradients=truncated), reference=reference)
        assert judgement.status == status, judgement.reasons


def test_a_repair_that_cuts_is_unproven_without_the_programs_own_gradient():
    judgement = judge(kinds.DETACH_STATE, *repaired(), reference=None)
    assert judgement.status == UNPROVEN
    assert "could not be computed" in judgement.reasons[0]


def test_a_reference_of_another_program_is_not_used():
    other = program(backward(1, 9.0), step(0, 1), backward(2, 2.0), step(0, 2))
    assert judge(kinds.DETACH_STATE, *repaired(), reference=other).status == UNPROVEN


@pytest.mark.parametrize(
    ("repair", "is_stale"), [(r, s) for r in (kinds.FORWARD_AGAIN,) for s in (0, 1)]
)
def test_repeated_statements_compute_the_programs_loss(repair, is_stale):
    """Its value may differ if weights were updated; its operations may not."""
    stale = frozenset({"w"} if is_stale else ())
    original = program(
        backward(1, 3.0), step(0, 1), failing(backward(2, 2.0, stale_leaves=stale)), status="raised"
    )
    same = judge(repair, *repaired(1.5), original=original)
    assert same.status == (PROVEN if is_stale else REJECTED), same.reasons
    twice = Counter(MulBackward0=4, AddBackward0=3)
    doubled = judge(repair, *repaired(3.0, operations=twice), original=original)
    assert doubled.status == REJECTED
    if is_stale:
        assert "operations that the program's own loss does not have" in doubled.reasons[0]


@pytest.mark.parametrize(
    ("value", "gradient", "status"),
    [(5.0, 2.0, PROVEN), (10.0, 4.0, REJECTED), (5.0, 1.0, REJECTED)],
)
def test_one_loss_is_the_sum_in_value_and_gradient(value, gradient, status):
    original = program(backward(1, 3.0), failing(backward(2, 2.0)), status="raised")
    reference = program(backward(1, 3.0), backward(2, 2.0), step(0, 1, 2))
    gradients = {"w": sample(gradient, 2 * gradient)}
    call = backward(1, value, gradients=gradients)
    events = (call, step(0, 1, **gradients))
    judgement = judge(kinds.ADD_LOSSES, *events, original=original, reference=reference)
    assert judgement.status == status, judgement.reasons


def test_a_sum_comes_after_an_earlier_backward_of_the_same_iteration():
    first = backward(1, 7.0)
    original = program(first, backward(2, 3.0), failing(backward(3, 2.0)), status="raised")
    reference = program(first, backward(2, 3.0), backward(3, 2.0), step(0, 1, 2, 3))
    total = backward(2, 5.0, gradients={"w": sample(2.0, 4.0)})
    events = (first, total, step(0, 1, 2, w=sample(3.0, 6.0)))
    judgement = judge(kinds.ADD_LOSSES, *events, original=original, reference=reference)
    assert judgement.status == PROVEN, judgement.reasons


def test_a_clone_that_changes_the_loss_is_a_question():
    assert judge(kinds.CLONE_WRITTEN, *repaired()).status == PROVEN
    judgement = judge(kinds.CLONE_WRITTEN, *repaired(1.0))
    assert judgement.status == OPEN
    assert judgement.question == "is the written value for this iteration only?"


def test_retained_graphs_are_rejected_where_a_step_lies_between():
    began = {"began_at": {"file": LINE.file, "line": LINE.line}}
    original = program(*ORIGINAL.events, status="raised", diagnosis=began)
    judgement = judge(kinds.RETAIN_GRAPH, *repaired(), original=original)
    assert "an optimizer steps between" in judgement.reasons[0]
    without_step = [event for event in ORIGINAL.events if not isinstance(event, StepTaken)]
    original = program(*without_step, status="raised", diagnosis=began)
    events = backward(1, 3.0), backward(2, 2.0), step(0, 1, 2)
    assert judge(kinds.RETAIN_GRAPH, *events, original=original).status == PROVEN


def test_a_step_before_the_call_that_frees_a_graph_makes_no_retained_graph_stale():
    began = {"began_at": {"file": LINE.file, "line": LINE.line}}
    events = step(0, 1), backward(1, 3.0)
    lost = failing(backward(2, 2.0))
    original = program(*events, lost, status="raised", diagnosis=began)
    reference = program(*events, backward(2, 2.0), step(0, 1, 2))
    judgement = judge(kinds.RETAIN_GRAPH, *reference.events, original=original, reference=reference)
    assert judgement.status == PROVEN, judgement.reasons


@pytest.mark.parametrize(("oldest", "is_rejected"), [((1, 20, 20), True), ((1, 20, 30), False)])
@pytest.mark.parametrize("accumulates", [True, False])
def test_retained_graphs_are_rejected_where_iterations_train_by_them(
    oldest, is_rejected, accumulates
):
    without_step = [event for event in ORIGINAL.events if not isinstance(event, StepTaken)]
    original = program(*without_step, status="raised")
    calls = [
        backward(i, loss, oldest_node=oldest[i - 1], accumulates=accumulates)
        for i, loss in ((1, 3.0), (2, 2.0), (3, 1.0))
    ]
    judgement = judge(kinds.RETAIN_GRAPH, *calls, step(0, 1, 2, 3), original=original)
    expected = ["runs, but later iterations would use the graph of an earlier iteration"]
    assert judgement.reasons == (expected if is_rejected and accumulates else [])


def test_a_gradient_of_old_weights_is_rejected():
    stale = {"stale_leaves": frozenset({"w"})}
    judgement = judge(kinds.OUT_OF_PLACE, *repaired(**stale))
    assert "uses an old value of w" in judgement.reasons[0]
    unused = repaired(stale_leaves=frozenset({"x"}))
    assert judge(kinds.OUT_OF_PLACE, *unused).status == PROVEN
    gradients = {"w": sample(1.0, 2.0), "input": sample(1.0)}
    untrained = repaired(stale_leaves=frozenset({"input"}), gradients=gradients)
    assert judge(kinds.OUT_OF_PLACE, *untrained).status == PROVEN


def test_a_parameter_that_is_created_again_is_rejected():
    judgement = judge(kinds.COMPUTE_AGAIN, *repaired(), replaced={"w": 2})
    assert judgement.reasons == ["runs, but creates w again"]
    other_batch = judge(kinds.COMPUTE_AGAIN, *repaired(), replaced={"batch": 2})
    assert other_batch.status == PROVEN


def test_a_growing_graph_is_rejected():
    events = [
        event
        for number in range(1, 5)
        for event in (
            backward(number, 2.0, operations=Counter(AddBackward0=number), oldest_node=1),
            step(0, number),
        )
    ]
    original = program(failing(backward(1, 2.0)), status="raised")
    reference = program(backward(1, 2.0), step(0, 1))
    judgement = judge(kinds.OUT_OF_PLACE, *events, original=original, reference=reference)
    assert "memory grows with each iteration: 1, 2, 3, 4 nodes" in judgement.reasons[0]


def test_a_parameter_that_is_no_longer_trained_is_an_objection():
    judgement = judge(kinds.DETACH_STATE, *repaired(gradients={}))
    assert "w is no longer trained" in judgement.reasons[0]


@pytest.mark.parametrize(("status", "reason"), [("time", "took too long"), ("ended", None)])
def test_a_run_that_is_stopped_proves_nothing(status, reason):
    judgement = judge(kinds.OUT_OF_PLACE, *repaired(), status=status)
    assert judgement.status == (UNPROVEN if reason else PROVEN)
    assert judgement.reasons == ([reason] if reason else [])


def test_a_doubt_of_the_rule_prevents_a_proof():
    judgement = judge(kinds.CREATE_GRAPH, *repaired(), doubt="no run shows it")
    assert (judgement.status, judgement.reasons) == (UNPROVEN, ["no run shows it"])


def test_a_repair_that_trains_fewer_parameters_than_another_is_rejected():
    both = OptimizerInfo("opt", ("w", "v"))
    call = {"gradients": {"w": sample(1.0), "v": sample(1.0)}}
    few = {"gradients": {"w": sample(1.0)}, "leaves": frozenset({"w", "v"})}
    original = program(failing(backward(1, 2.0, **call)), status="raised", optimizers=[both])
    judgements = []
    for fields in (call, few):
        gradients = fields["gradients"]
        events = backward(1, 2.0, **fields), step(0, 1, **gradients)
        judgements.append(judge(kinds.OUT_OF_PLACE, *events, original=original, reference=None))
    assert [judgement.status for judgement in judgements] == [PROVEN, PROVEN]
    Judge(original).compare(judgements)
    assert [judgement.status for judgement in judgements] == [PROVEN, REJECTED]
    assert judgements[1].reasons == ["runs, but v is no longer trained"]


@pytest.mark.parametrize(
    ("upstream", "part", "is_question"),
    [((), (0.0, 1.0), False), ((0, 1), (0.0, 1.0), True), ((0, 1), (-1.0, 0.0), False)],
)
def test_a_loss_that_leaks_into_another_optimizer(upstream, part, is_question):
    """It may be meant where that optimizer's parameters feed it, unless the two are adversaries."""
    cleared = GradientsCleared(frozenset({0, 1}))
    d_loss = backward(
        1,
        3.0,
        "d_loss.backward()",
        gradients={"g": sample(*part), "d": sample(1.0)},
        upstream=frozenset({upstream} if upstream else ()),
    )
    g_gradient = {"g": sample(1.0, 0.1)}
    g_loss = backward(2, 2.0, "g_loss.backward()", gradients=g_gradient)
    lost = failing(backward(2, 2.0, "g_loss.backward()", gradients=g_gradient))
    original = program(cleared, d_loss, lost, status="raised", optimizers=TWO_NETWORKS)
    total = g_gradient["g"].plus(sample(*part))
    steps = step(1, 1, d=sample(1.0)), step(0, 1, 2, g=total)
    events = cleared, d_loss, g_loss, *steps
    judgement = judge(kinds.CLONE_USED, *events, original=original, reference=None)
    if is_question:
        assert judgement.question == "should d_loss also train the parameters of opt_g?"
        assert judgement.status == OPEN
    else:
        assert "the gradient of d_loss leaks into opt_g" in judgement.reasons[0]


def test_clearing_after_ones_own_step_says_nothing_about_the_next_loss():
    """``step(); zero_grad()`` of one network stands before the loss of the other."""
    run = program(
        backward(1, 1.0, "d_loss.backward()"),
        step(1, 1, d=sample(1.0)),
        GradientsCleared(frozenset({1})),
        backward(2, 1.0, "g_loss.backward()"),
        step(0, 2, g=sample(1.0)),
        optimizers=TWO_NETWORKS,
    )
    assert targets_of_calls(run) == {1: {1}, 2: {0}}


def test_a_gradient_that_is_cleared_before_its_step_is_rejected():
    unused = step(0, 1, w=sample(1.0, 2.0))
    events = (
        backward(1, 3.0),
        step(0, 1),
        backward(2, 2.0),
        GradientsCleared(frozenset({0})),
        unused,
    )
    judgement = judge(kinds.OUT_OF_PLACE, *events)
    assert judgement.reasons == ["runs, but the gradient of loss is cleared before a step uses it"]


def test_a_detach_that_ends_the_training_of_another_network_is_rejected():
    """The critic's loss reached the generator, whose own loss comes after the failing call."""
    cleared = GradientsCleared(frozenset({1}))
    leaking = {"d": sample(1.0), "g": sample(0.5)}
    first = backward(1, 3.0, "d_loss.backward()", gradients=leaking)
    lost = failing(backward(2, 2.0, "d_loss.backward()", gradients=leaking))
    events = [cleared, first, step(1, 1, d=sample(1.0)), cleared]
    original = program(*events, lost, status="raised", optimizers=TWO_NETWORKS)
    alone = {"d": sample(1.0)}
    repaired_events = [
        cleared,
        backward(1, 3.0, "d_loss.backward()", gradients=alone),
        step(1, 1, **alone),
        cleared,
        backward(2, 2.0, "d_loss.backward()", gradients=alone),
        step(1, 2, **alone),
        GradientsCleared(frozenset({0})),
        backward(3, 1.0, "g_loss.backward()", gradients=alone),
        StepTaken(0, {}, {}, closure=False),
    ]
    judgement = judge(kinds.DETACH, *repaired_events, original=original, reference=None)
    assert judgement.reasons[0] == "runs, but g is no longer trained"


def test_a_list_is_cleared_if_nothing_else_holds():
    """Its old entries cannot be used again."""
    events = repaired(1.0)
    run = program(*events)
    candidate = Candidate(kinds.CLEAR, "saved.clear()", {}, "is saved to begin empty?")
    judge_ = Judge(ORIGINAL, REFERENCE)
    for others, status in (([], PROVEN), ([kinds.OUT_OF_PLACE], OPEN)):
        judgements = [judge_.judge(candidate, run)]
        assert judgements[0].status == OPEN
        judgements += [judge_.judge(Candidate(r, "", {}), program(*repaired())) for r in others]
        judge_.compare(judgements)
        assert judgements[0].status == status


def test_an_evaluation_after_the_training_needs_no_step():
    reading = {"gradients": {"image": sample(1.0)}}
    original = program(
        backward(1, 3.0),
        step(0, 1),
        failing(backward(2, 2.0, **reading)),
        status="raised",
        diagnosis={"family": "no_graph"},
    )
    events = backward(1, 3.0), step(0, 1), backward(2, 2.0, **reading)
    for status, expected in (("ended", PROVEN), ("enough", UNPROVEN)):
        judgement = judge(
            kinds.KEEP_GRADIENT, *events, original=original, reference=None, status=status
        )
        assert judgement.status == expected, judgement.reasons
