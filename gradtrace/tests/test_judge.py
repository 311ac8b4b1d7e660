"""The judge of repairs, on records written by hand: nothing is run."""

import copy
from collections import Counter
from dataclasses import replace

import pytest

from gradtrace.repair import kinds, proof, proof_text
from gradtrace.repair.intent import TrainingAction, assign_losses, loss_name, targets_of_calls
from gradtrace.repair.judge import OPEN, PROVEN, REJECTED, UNPROVEN, Judge, Judgement
from gradtrace.repair.kinds import Repair
from gradtrace.repair.proof import Proof, _classify, is_senseless
from gradtrace.repair.rule import Candidate
from gradtrace.repair.run.observations import (
    GradientsCleared,
    ObservedCall,
    OptimizerInfo,
    ProgramLine,
    ProgramRun,
    RunLimits,
    Sample,
    StepTaken,
    equal_gradients,
    growing_calls,
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
        "edges": 4,
        "oldest_node": 10 * number,
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
WITHOUT_OLD_PART = {"w": sample(1.0, 2.0)}
REFERENCE = program(
    backward(1, 3.0), step(0, 1), backward(2, 2.0, truncated=WITHOUT_OLD_PART), step(0, 2)
)


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
    assert judgement.evidence == [
        "the error is gone: the program ran to its end",
        "the first 2 losses are unchanged",
        "w gets a gradient",
        "no graph grows, and a strict watch finds nothing",
    ]


@pytest.mark.parametrize(("edges", "is_asked"), [(3, True), (4, False)])
def test_a_removed_gradient_that_was_zero_by_chance_is_asked_about(edges, is_asked):
    events = backward(1, 3.0, edges=edges), *repaired()[1:]
    judgement = judge(kinds.DETACH_SHARED, *events)
    question = f"is the loss at line {LINE.line} to have no gradient there? In this run it was 0"
    assert judgement.question == (question if is_asked else None)


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


def judged_together(reference: ProgramRun, *repairs: Repair, **fields) -> list[str]:
    """Return the status of each kind of repair, if all have the same second call."""
    judge = Judge(ORIGINAL, reference)
    runs = [program(*repaired(**fields)) for _ in repairs]
    pairs = zip(repairs, runs, strict=True)
    judgements = [judge.judge(Candidate(repair, "an edit", {}), run) for repair, run in pairs]
    judge.compare(judgements)
    return [judgement.status for judgement in judgements]


def test_what_trains_alike_is_judged_alike():
    """Alone, what is detached where it is used would be rejected for the truncated gradient."""
    truncated = {"w": sample(0.5, 1.0)}
    last = backward(2, 2.0, truncated=truncated)
    reference = program(backward(1, 3.0), step(0, 1), last, step(0, 2))
    together = kinds.DETACH_STATE, kinds.DETACH_SHARED
    assert judged_together(reference, *together, gradients=truncated) == [PROVEN, PROVEN]
    alone = judged_together(reference, kinds.DETACH_SHARED, gradients=truncated)
    assert alone == [REJECTED]
    other = judged_together(reference, *together, gradients={"w": sample(0.3, 1.0)})
    assert other == [REJECTED, REJECTED]


def test_a_gradient_of_old_weights_before_the_failing_call_may_be_truncated():
    """The program retained the graph of the first call, so the second ran over it, too."""
    stale, truncated = frozenset({"w"}), {"w": sample(0.5, 1.0)}

    def events(last: ObservedCall, **fields) -> tuple:
        second = backward(2, 3.0, stale_leaves=stale, **fields)
        return backward(1, 3.0), step(0, 1), second, step(0, 2), last, step(0, 3)

    original = program(*events(failing(backward(3, 2.0)))[:-1], status="raised")
    reference = program(*events(backward(3, 2.0), truncated=truncated))
    second = backward(2, 3.0, gradients=truncated)
    repaired_events = (
        *(backward(1, 3.0), step(0, 1)),
        *(second, step(0, 2, **truncated), backward(3, 2.0), step(0, 3)),
    )
    for repair, status in ((kinds.DETACH_STATE, PROVEN), (kinds.OUT_OF_PLACE, REJECTED)):
        judgement = judge(repair, *repaired_events, original=original, reference=reference)
        assert judgement.status == status, judgement.reasons


def test_losses_of_a_loop_are_added_beside_gradients_of_an_inner_loop():
    """The new loss has another number, because calls of autograd.grad run between the losses."""
    inner = {"gradients": {}, "accumulates": False}
    own = backward(1, 9.0, **inner), backward(2, 3.0), backward(3, 8.0, **inner)
    original = program(*own, failing(backward(4, 2.0)), status="raised")
    reference = program(*own, backward(4, 2.0), step(0, 2, 4, w=sample(2.0, 4.0)))
    gradients = {"w": sample(2.0, 4.0)}
    total = backward(3, 5.0, gradients=gradients)
    events = own[0], backward(2, 8.0, **inner), total, step(0, 3, **gradients)
    judgement = judge(kinds.ADD_ROUNDS, *events, original=original, reference=reference)
    assert (judgement.status, judgement.reasons) == (PROVEN, [])


def test_only_a_repair_that_cuts_may_truncate():
    truncated = {"w": sample(0.5, 1.0)}
    last = backward(2, 2.0, truncated=truncated)
    reference = program(backward(1, 3.0), step(0, 1), last, step(0, 2))
    for repair, status in (
        (kinds.DETACH_STATE, PROVEN),
        (kinds.DETACH_SHARED, REJECTED),
        (kinds.OUT_OF_PLACE, REJECTED),
    ):
        judgement = judge(repair, *repaired(gradients=truncated), reference=reference)
        assert judgement.status == status, judgement.reasons


def test_a_repair_that_cuts_is_unproven_without_the_programs_own_gradient():
    judgement = judge(kinds.DETACH_STATE, *repaired(), reference=None)
    assert judgement.status == UNPROVEN
    assert "could not be computed" in judgement.reasons[0]


@pytest.mark.parametrize(
    "events",
    [
        (backward(1, 9.0), step(0, 1), backward(2, 2.0), step(0, 2)),
        (backward(1, 3.0), step(0, 1)),  # it ends too early
        (backward(1, 3.0), step(0, 1), failing(backward(2, 2.0))),
    ],
)
def test_a_reference_of_another_program_is_not_used(events):
    assert judge(kinds.DETACH_STATE, *repaired(), reference=program(*events)).status == UNPROVEN


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


def penalty(number: int) -> ObservedCall:
    return backward(number, 7.0, "penalty = slope(D)", accumulates=False, gradients={})


@pytest.mark.parametrize(("text", "status"), [("penalty = slope(D)", PROVEN), ("else", REJECTED)])
def test_a_gradient_that_a_repair_computes_again_shifts_no_later_call(text, status):
    last = backward(3, 2.0, "p.backward()", stale_leaves=frozenset({"w"}))
    events = penalty(1), backward(2, 3.0), step(0, 2)
    original = program(*events, failing(last), status="raised")
    again = replace(penalty(3), text=text, operations=Counter(TanhBackward0=9))
    after = again, backward(4, 1.5, "p.backward()"), step(0, 4)
    new = judge(kinds.FORWARD_AGAIN, *events, *after, original=original)
    assert new.status == status, new.reasons
    if status == PROVEN:
        assert [call.number for call in new.run.calls] == [1, 2, 3]
        assert new.run.steps[-1].calls == {"w": (3,)}


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


def test_a_reference_may_fail_beyond_the_failing_call():
    further = program(*REFERENCE.events, failing(backward(3, 1.0)), status="raised")
    judgement = judge(kinds.DETACH_STATE, *repaired(), reference=further)
    assert judgement.status == PROVEN, judgement.reasons


def test_out_of_place_is_judged_as_the_copy_that_computes_the_same():
    """Both leave the old value to the tensor's other uses: one of them alone is not wrong."""
    judgements = [judge(kind, *repaired(1.0)) for kind in (kinds.CLONE_WRITTEN, kinds.OUT_OF_PLACE)]
    assert [one.status for one in judgements] == [OPEN, REJECTED]
    Judge(ORIGINAL, REFERENCE).compare(judgements)
    assert [one.status for one in judgements] == [OPEN, OPEN]
    assert judgements[0].question == judgements[1].question


@pytest.mark.parametrize(
    ("repair", "status"), [(kinds.CLONE_WRITTEN, UNPROVEN), (kinds.CLONE_USED, PROVEN)]
)
def test_out_of_place_is_judged_by_itself_beside_a_copy_that_does_not_hold(repair, status):
    """Or beside one for the backward pass only, which leaves the tensor's other uses alone."""
    run = program(*repaired())
    evidence = ["no graph grows"] if status == PROVEN else []
    copied = Judgement(Candidate(repair, "", {}), run, status, evidence=evidence)
    for own_status in (PROVEN, REJECTED):
        judgement = Judgement(Candidate(kinds.OUT_OF_PLACE, "", {}), run, own_status)
        Judge(ORIGINAL, REFERENCE).compare([copied, judgement])
        assert judgement.status == own_status


@pytest.mark.parametrize("repair", [kinds.RESET_STATE, kinds.NEW_SUM, kinds.COMPUTE_AGAIN])
@pytest.mark.parametrize(
    ("known", "stale", "new_loss", "gradient", "status"),
    [
        (2.0, (), 2.0, (1.0, 2.0), PROVEN),
        (2.0, (), 1.0, (1.0, 2.0), OPEN),  # the failing call's loss was known
        (4.0, (), 1.0, (1.0, 2.0), PROVEN),  # without that of the first call, 3
        (4.0, (), 1.0, (1.0, 3.0), OPEN),  # whose gradient is another
        (2.0, ("w",), 1.0, (1.0, 2.0), PROVEN),  # the same of new weights
    ],
)
def test_a_repair_that_changes_a_loss_which_the_program_computed_is_a_question(
    repair, known, stale, new_loss, gradient, status
):
    original = program(backward(1, 3.0), step(0, 1), failing(backward(2, known)), status="raised")
    call = backward(2, known, gradients={"w": sample(2.0, 4.0)}, stale_leaves=frozenset(stale))
    call.truncated = WITHOUT_OLD_PART  # the call's gradient is the sum of two
    reference = program(backward(1, 3.0), step(0, 1), call, step(0, 2))
    events = repaired(new_loss, gradients={"w": sample(*gradient)})
    judgement = judge(repair, *events, original=original, reference=reference)
    assert judgement.status == status, judgement.reasons
    asks = f"is the loss of backward call 2 to change, because {repair.when}?"
    assert judgement.question == (asks if status == OPEN else None)


@pytest.mark.parametrize(
    ("repair", "status"), [(kinds.RESET_STATE, OPEN), (kinds.COMPUTE_AGAIN, PROVEN)]
)
def test_a_loss_of_old_weights_without_its_history_is_another(repair, status):
    """A value that one loss uses twice may be computed twice; a state is no such value."""
    call = backward(2, 2.0, stale_leaves=frozenset("w"), truncated=WITHOUT_OLD_PART)
    reference = program(backward(1, 3.0), step(0, 1), call, step(0, 2))
    events = repaired(1.0, operations=Counter(MulBackward0=1))
    assert judge(repair, *events, reference=reference).status == status


@pytest.mark.parametrize(("slope", "status"), [(2.0, PROVEN), (5.0, REJECTED)])
def test_what_keeps_some_casts_trains_as_without_any(slope, status):
    again = *repaired()[:3], step(0, 2, w=sample(1.0, slope))
    judgements = [judge(kinds.NO_CACHE, *repaired()), judge(kinds.COMPUTE_AGAIN, *again)]
    Judge(ORIGINAL, REFERENCE).compare(judgements)
    assert [one.status for one in judgements] == [PROVEN, status]


def test_what_detaches_and_keeps_all_losses_is_preferred_to_computing_again():
    judgements = [
        judge(kinds.DETACH_SHARED, *repaired()),
        judge(kinds.COMPUTE_AGAIN, *repaired(1.0)),
        judge(kinds.RESET_STATE, *repaired(1.0)),
    ]
    Judge(ORIGINAL, REFERENCE).compare(judgements)
    assert [one.status for one in judgements] == [PROVEN, REJECTED, OPEN]
    assert "changes the loss of backward call 2" in judgements[1].reasons[0]
    # Whether the part is meant to be detached is the reader's decision.
    asked = Candidate(kinds.DETACH_SHARED, "an edit", {}, "is it not to be trained?")
    judgements = [
        Judge(ORIGINAL, REFERENCE).judge(asked, program(*repaired())),
        judge(kinds.COMPUTE_AGAIN, *repaired(1.0)),
    ]
    Judge(ORIGINAL, REFERENCE).compare(judgements)
    assert [one.status for one in judgements] == [OPEN, OPEN]


@pytest.mark.parametrize(
    ("repair", "weight", "again", "reference", "status"),
    [
        (kinds.DETACH_SHARED, 1.0, 1.0, REFERENCE, REJECTED),
        (kinds.DETACH_STATE, 1.0, 1.0, REFERENCE, PROVEN),  # it may truncate
        (kinds.DETACH_SHARED, 5.0, 1.0, REFERENCE, PROVEN),  # its first step is another one
        (kinds.DETACH_SHARED, 1.0, 1.0, None, PROVEN),
        (kinds.DETACH_SHARED, 1.0, 2.0, REFERENCE, PROVEN),  # neither changes a loss
    ],
)
def test_computing_again_is_rejected_beside_a_detached_part_that_changes_nothing(
    repair, weight, again, reference, status
):
    taken = step(0, 1, w=sample(weight, 2.0))
    runs = program(backward(1, 3.0), taken, backward(2, 2.0), step(0, 2)), program(*repaired(again))
    candidates = (Candidate(kind, "an edit", {}) for kind in (repair, kinds.COMPUTE_AGAIN))
    judgements = [Judgement(*pair, PROVEN) for pair in zip(candidates, runs, strict=True)]
    Judge(ORIGINAL, reference).compare(judgements)
    assert [judgement.status for judgement in judgements] == [PROVEN, status]


def test_a_rejected_repair_does_not_say_what_has_to_be_trained():
    more = {"w": sample(1.0, 2.0), "v": sample(1.0)}
    optimizers = [OptimizerInfo("opt", ("w", "v"))]
    original = program(*ORIGINAL.events, status="raised", optimizers=optimizers)
    computed_again = *repaired(1.0, gradients=more)[:-1], step(0, 2, **more)
    judgements = [
        judge(kinds.DETACH_SHARED, *repaired(), original=original),
        judge(kinds.COMPUTE_AGAIN, *computed_again, original=original),
    ]
    assert [judgement.status for judgement in judgements] == [PROVEN, OPEN]
    Judge(original, REFERENCE).compare(judgements)
    assert [judgement.status for judgement in judgements] == [PROVEN, REJECTED]
    # The others do: a repair that trains all parameters remains the measure of one that does not.
    events = *repaired(gradients=more)[:-1], step(0, 2, **more)
    judgements = [
        Judgement(Candidate(repair, "an edit", {}), program(*events), PROVEN)
        for repair, events in (
            (kinds.DETACH_SHARED, events),
            (kinds.COMPUTE_AGAIN, computed_again),
            (kinds.OUT_OF_PLACE, repaired()),
        )
    ]
    Judge(original, REFERENCE).compare(judgements)
    assert [judgement.status for judgement in judgements] == [PROVEN, REJECTED, REJECTED]


def test_a_detached_part_is_compared_beyond_the_failing_call():
    """It may be multiplied by zero at first, as in a warm-up."""
    later = backward(3, 1.0, gradients={"w": sample(5.0, 5.0)})
    reference = program(*REFERENCE.events, later, step(0, 3, w=sample(5.0, 5.0)))
    less = backward(3, 1.0, gradients={"w": sample(1.0, 0.0)}), step(0, 3, w=sample(1.0, 0.0))
    for repair, status in ((kinds.DETACH_SHARED, REJECTED), (kinds.DETACH_STATE, PROVEN)):
        assert judge(repair, *repaired(), *less, reference=reference).status == status


def repaired_last_call(keys: str, *later) -> tuple:
    """The events of a program whose second call, of opt_d, gives these parameters a gradient."""
    gradients = {key: sample(1.0) for key in keys}
    call = backward(2, 2.0, gradients=gradients, leaves=frozenset(keys))
    first = backward(1, 3.0, gradients={"g": sample(1.0)}), step(0, 1, g=sample(1.0))
    return *first, GradientsCleared(frozenset({1})), call, step(1, 2, d=sample(1.0)), *later


@pytest.mark.parametrize("repair", [kinds.DETACH_STATE, kinds.DETACH_SHARED])
@pytest.mark.parametrize("steps_later", [False, True])
def test_a_cut_from_parameters_that_no_later_step_trains_is_a_question(repair, steps_later):
    """The first stage of a program is over, and the second one detaches what it has trained."""
    reference = program(*repaired_last_call("gd"), optimizers=TWO_NETWORKS)
    events = repaired_last_call("gd")[:3]
    failed = failing(backward(2, 2.0, gradients={"g": sample(1.0)}))
    original = program(*events, failed, status="raised", optimizers=TWO_NETWORKS)
    later = [backward(3, 1.0, gradients={"g": sample(1.0)}), step(0, 3, g=sample(1.0))]
    judgement = judge(
        repair,
        *repaired_last_call("d", *later * steps_later),
        original=original,
        reference=reference,
    )
    question = None if steps_later else "is this loss to leave g untrained?"
    assert (judgement.question, judgement.reasons) == (question, [])


def test_the_total_alone_has_the_gradient_of_the_last_loss():
    original = program(backward(1, 3.0), failing(backward(2, 5.0)), status="raised")
    both = sample(2.0, 4.0)
    reference = program(backward(1, 3.0), backward(2, 5.0, gradients={"w": both}), step(0, 2))
    for value, gradient, status in ((5.0, both, PROVEN), (5.0, sample(1.0, 2.0), REJECTED)):
        events = backward(1, value, gradients={"w": gradient}), step(0, 1, w=gradient)
        judgement = judge(kinds.TOTAL_ALONE, *events, original=original, reference=reference)
        assert judgement.status == status, judgement.reasons


def test_registered_modules_are_compared_by_their_names():
    """The optimizer holds its old parameters at other places."""
    diagnosis = {"family": "silent", "cause": "in_no_optimizer"}
    original = program(backward(1, 3.0), step(0, 1), diagnosis=diagnosis)
    original.names = {"w": "net.out"}
    gradients = {"x": sample(7.0), "y": sample(1.0, 2.0)}
    for name, status in (("net.out", PROVEN), ("net.other", REJECTED)):
        events = backward(1, 3.0, gradients=dict(gradients)), step(0, 1, **gradients)
        judgement = judge(
            kinds.REGISTER, *events, original=original, reference=None,
            optimizers=[OptimizerInfo("opt", ("x", "y"))], names={"x": "net.new", "y": name},
        )  # fmt: skip
        assert judgement.status == status, judgement.reasons


def test_without_candidates_nothing_is_proven():
    assert proof_text.data(Proof(ORIGINAL))["outcome"] == "unproven"
    listed = [Candidate(kinds.OUT_OF_PLACE, "an edit", {})]
    assert proof_text.data(Proof(ORIGINAL, listed=listed))["outcome"] == "listed"


def test_an_error_of_other_code_leaves_nothing_to_prove():
    """A silent finding beside it is no diagnosis of the error; a failed call is of autograd."""
    silent = {"family": "silent", "cause": "graph_grows"}
    other = {"status": "raised", "error": "KeyError: 'total'", "diagnosis": silent}
    sentence = "This is no error of backward(), so nothing can be proven: KeyError: 'total'"
    assert proof_text.text(Proof(program(backward(1, 2.0), **other))) == sentence
    for run in (program(failing(backward(1, 2.0)), **other), ORIGINAL):
        assert proof_text.text(Proof(run)) == "No repair could be proven."


def test_without_a_failure_the_text_says_what_was_examined():
    text = proof_text.text(Proof(program(backward(1, 2.0), step(0, 1))))
    assert "1 backward call raised no error" in text


class ScriptedLauncher:
    """A launcher that starts no process: it has a run for each edit, and for each reference."""

    def __init__(self, runs: dict[str, ProgramRun], repetition: ProgramRun | None = None):
        self.runs, self.repetition = runs, repetition
        self.started: list[tuple[str, RunLimits]] = []

    def run(self, edits, limits, reference="") -> ProgramRun:
        name = edits.get("train.py", reference)
        run = self.repetition if ("", limits) in self.started and not name else None
        self.started.append((name, limits))
        return copy.deepcopy(run or self.runs[name])


EDITS = [Candidate(kinds.OUT_OF_PLACE, name, {"train.py": name}) for name in ("good", "bad")]
RUNS = {
    "": ORIGINAL,
    "retained": REFERENCE,
    "good": program(*repaired()),
    "bad": program(*repaired(9.0)),
}
LIMITS = RunLimits(beyond=3, seconds=60.0)


@pytest.fixture
def proved(monkeypatch):
    """Prove the repairs of scripted runs, for which the rules yield these candidates."""

    def proved(launcher: ScriptedLauncher, listed=EDITS, **options) -> Proof:
        monkeypatch.setattr(proof, "candidates", lambda run, texts, report: listed)
        return proof.prove(launcher, LIMITS, **options)

    return proved


def test_each_candidate_is_run_within_limits_and_judged(proved):
    slow = program(*ORIGINAL.events, status="raised", seconds=2.0, explanation="gradtrace: why")
    launcher, lines = ScriptedLauncher({**RUNS, "": slow}), []
    result = proved(launcher, report=lines.append)
    assert [judgement.status for judgement in result.judgements] == [PROVEN, REJECTED]
    assert result.repeats and result.listed == EDITS and len(result.accepted) == 1
    assert launcher.started == [
        *[("", LIMITS)] * 2,  # the program as it is, and again
        ("retained", RunLimits(2, 50, 40.0)),  # 30 seconds, and five times its own time
        *[(name, RunLimits(2, 3, 40.0)) for name in ("good", "bad")],
    ]
    assert lines[:2] == ["as it is: RuntimeError: freed (2 backward calls, 2.0 s)", "why"]
    assert lines[2:] == ["2 candidates, each in a process of its own"]


def test_the_progress_is_reported_now_and_then(proved, monkeypatch):
    seconds = iter(range(0, 900, 9))
    monkeypatch.setattr(proof.time, "monotonic", lambda: next(seconds))
    lines = []
    proved(ScriptedLauncher(RUNS), [EDITS[0]] * 4, report=lines.append)
    assert [line.split(",")[0] for line in lines[2:]] == ["1 of 4 candidates", "3 of 4 candidates"]


def test_the_judgements_are_compared(proved, monkeypatch):
    compared = []
    monkeypatch.setattr(Judge, "compare", lambda _, judgements: compared.extend(judgements))
    assert compared == proved(ScriptedLauncher(RUNS), EDITS).judgements != []


def test_what_autograd_refuses_is_allowed_where_no_backward_call_failed(proved):
    refused = program(*ORIGINAL.events[:2], status="raised", diagnosis={"family": "leaf_inplace"})
    launcher = ScriptedLauncher({**RUNS, "": refused, "allowed": REFERENCE})
    assert len(proved(launcher).judgements) == 2
    assert "allowed" in dict(launcher.started)


def test_nothing_is_run_if_the_candidates_are_only_listed_or_nothing_fails(proved):
    launcher = ScriptedLauncher(RUNS)
    assert proved(launcher, only_list=True).listed == EDITS
    assert proved(launcher, listed=[]).listed == []
    assert not proved(ScriptedLauncher({"": REFERENCE})).fails
    assert len(launcher.started) == 2


def test_no_repair_is_proven_if_two_runs_of_the_program_differ(proved):
    other = program(backward(1, 4.0), step(0, 1), failing(backward(2, 2.0)), status="raised")
    raising = {"bad": program(backward(1, 3.0), status="raised", error="ValueError: no")}
    result = proved(ScriptedLauncher({**RUNS, **raising}, other))
    assert not result.repeats and result.accepted == []
    assert [judgement.status for judgement in result.judgements] == [UNPROVEN, REJECTED]
    assert "two runs of the unchanged program differ" in result.judgements[0].reasons[0]


def test_a_senseless_edit_is_not_listed(proved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("total = 0.0", encoding="utf-8")
    error = "AttributeError: 'float' object has no attribute 'detach'"
    line = ProgramLine("train.py", 1, "<module>")
    senseless = program(status="raised", error=error, raised_at=(line,))
    result = proved(ScriptedLauncher({**RUNS, "bad": senseless}))
    assert [candidate.title for candidate in result.listed] == ["good"]


def test_a_program_that_fails_silently_has_no_reference(proved):
    finding = {"cause": "no_gradient", "began_at": None, "explanation": "why"}
    diagnosis = {"family": "silent", "cause": "no_gradient"}
    silent = program(*REFERENCE.events, diagnosis=diagnosis, findings=[finding])
    launcher = ScriptedLauncher({**RUNS, "": silent})
    assert len(proved(launcher).judgements) == 2
    assert "retained" not in dict(launcher.started)


def test_a_lost_gradient_counts_only_if_a_loss_uses_it(proved):
    """Where NaN replaces values without a gradient, such a loss or gradient is NaN, too."""
    refused = program(status="raised", diagnosis={"family": "leaf_inplace"})
    losing = program(backward(1, 2.0, loses_gradient=True), step(0, 1))
    nan = sample(float("nan"), 2.0)
    for run, status in (
        (program(backward(1, 2.0), step(0, 1)), PROVEN),
        (program(backward(1, float("nan")), step(0, 1)), UNPROVEN),
        (program(backward(1, 2.0, gradients={"w": nan}), step(0, 1)), UNPROVEN),
        (program(backward(1, 2.0), backward(2, 2.0)), UNPROVEN),
        (program(backward(1, 2.0), status="raised"), UNPROVEN),
    ):
        runs = {"": refused, "allowed": losing, "nan": run, "good": losing}
        assert proved(ScriptedLauncher(runs), EDITS[:1]).judgements[0].status == status


def test_a_clone_that_changes_the_loss_is_a_question():
    assert judge(kinds.CLONE_WRITTEN, *repaired()).status == PROVEN
    judgement = judge(kinds.CLONE_WRITTEN, *repaired(1.0))
    assert judgement.status == OPEN
    assert judgement.question.endswith("to read its old value?")


def test_retained_graphs_are_rejected_where_a_step_lies_between():
    began = {"began_at": {"file": LINE.file, "line": LINE.line}}
    original = program(*ORIGINAL.events, status="raised", diagnosis=began)
    judgement = judge(kinds.RETAIN_GRAPH, *repaired(), original=original)
    assert "an optimizer steps between" in judgement.reasons[0]
    without_step = [event for event in ORIGINAL.events if not isinstance(event, StepTaken)]
    original = program(*without_step, status="raised", diagnosis=began)
    events = backward(1, 3.0), backward(2, 2.0), step(0, 1, 2)
    assert judge(kinds.RETAIN_GRAPH, *events, original=original).status == PROVEN


def test_a_step_stays_between_two_calls_if_other_calls_follow_it():
    began = {"began_at": {"file": LINE.file, "line": LINE.line}}
    elsewhere = (ProgramLine("train.py", 9, "<module>"),)
    before = backward(1, 3.0), step(0, 1), backward(2, 1.0, site=elsewhere)
    original = program(*before, failing(backward(3, 2.0)), status="raised", diagnosis=began)
    events = *before, backward(3, 2.0), step(0, 2, 3)
    reference = program(*events)
    judgement = judge(kinds.RETAIN_GRAPH, *events, original=original, reference=reference)
    assert "an optimizer steps between" in judgement.reasons[0]


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
    events = calls[0], calls[1], step(0, 1, 2), calls[2], step(0, 1, 2, 3)
    judgement = judge(kinds.RETAIN_GRAPH, *events, original=original)
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


def test_a_stale_parameter_counts_only_in_calls_that_give_it_a_gradient():
    both = {"w": sample(1.0, 2.0), "v": sample(1.0)}

    def events(second):
        return backward(1, 3.0, gradients=both), step(0, 1, **both), second, step(0, 2)

    optimizers = [OptimizerInfo("opt", ("w", "v"))]
    original = program(
        *events(backward(2, 2.0))[:2],
        failing(backward(2, 2.0)),
        status="raised",
        optimizers=optimizers,
    )
    reference = program(*events(backward(2, 2.0)), optimizers=optimizers)
    stale = events(backward(2, 2.0, stale_leaves=frozenset({"v"})))
    judgement = judge(kinds.OUT_OF_PLACE, *stale, original=original, reference=reference)
    assert (judgement.status, judgement.reasons) == (PROVEN, [])


def test_a_parameter_that_is_created_again_is_rejected():
    judgement = judge(kinds.COMPUTE_AGAIN, *repaired(), replaced={"w": 2})
    assert judgement.reasons == ["runs, but creates w again"]
    other_batch = judge(kinds.COMPUTE_AGAIN, *repaired(), replaced={"batch": 2})
    assert other_batch.status == PROVEN
    later = judge(kinds.COMPUTE_AGAIN, *repaired(), replaced={"w": 3})
    assert later.status == PROVEN  # what the program does beyond the failing call is its own


@pytest.mark.parametrize(
    ("is_known", "is_rejected"), [(False, True), (True, False)], ids=["new", "as it is"]
)
def test_a_gradient_of_unused_tensors_only_is_rejected(is_known, is_rejected):
    """An option that gives zeros where all is unused hides that the loss is another one's."""
    original = program(
        backward(1, 3.0, unconnected=is_known), failing(backward(2, 2.0)), status="raised"
    )
    judgement = judge(
        kinds.SWITCH,
        backward(1, 3.0, unconnected=is_known),
        backward(2, 2.0, unconnected=True),
        step(0, 2),
        original=original,
        reference=None,
    )
    reason = "runs, but the gradient at line 7 is of no tensor that its loss was computed from"
    assert (judgement.reasons == [reason]) == is_rejected


def test_an_edit_that_calls_what_is_no_method_is_senseless(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("total = 0.0\ntotal.backward()\n", encoding="utf-8")
    edits = {str(path): "total = 0.0\ntotal = total.clone()\ntotal.backward()\n"}
    for line, error, is_expected in (
        (2, "AttributeError: 'float' object has no attribute 'clone'", True),
        (3, "AttributeError: 'float' object has no attribute 'backward'", False),
        (2, "RuntimeError: a leaf Variable that requires grad", False),
        (4, "NameError: raised by a line that the edit has removed", False),
    ):
        run = ProgramRun("raised", error, (ProgramLine(str(path), line, "<module>"),))
        assert is_senseless(Candidate(kinds.CLONE_WRITTEN, "", edits), run) == is_expected


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
    judgement = judge(kinds.CREATE_GRAPH, *repaired(), doubt="does no run show it?")
    assert (judgement.status, judgement.question) == (OPEN, "does no run show it?")


@pytest.mark.parametrize(("other", "status"), [(1.0, REJECTED), (4e-7, PROVEN)])
def test_a_repair_that_trains_fewer_parameters_than_another_is_rejected(other, status):
    """But not if the other gradient is only rounding errors, as of a bias before a norm."""
    both = OptimizerInfo("opt", ("w", "v", "trained by none"))
    call = {"gradients": {"w": sample(1.0), "v": sample(other)}}
    few = {"gradients": {"w": sample(1.0)}, "leaves": frozenset({"w", "v"})}
    original = program(failing(backward(1, 2.0, **call)), status="raised", optimizers=[both])
    judgements = []
    for fields in (call, few):
        gradients = fields["gradients"]
        events = backward(1, 2.0, **fields), step(0, 1, **gradients)
        judgements.append(judge(kinds.OUT_OF_PLACE, *events, original=original, reference=None))
    assert [judgement.status for judgement in judgements] == [PROVEN, PROVEN]
    Judge(original).compare(judgements)
    assert [judgement.status for judgement in judgements] == [PROVEN, status]
    expected = ["runs, but v is no longer trained"] if status == REJECTED else []
    assert judgements[1].reasons == expected


def test_a_repair_that_leaves_a_question_does_not_reject_one_that_is_proven():
    """Whether what it trains is meant to be trained is the question."""
    both = OptimizerInfo("opt", ("w", "v"))
    original = program(failing(backward(1, 2.0)), status="raised", optimizers=[both])
    statuses = {}
    for question in (None, "is v to be trained?"):
        judgements = []
        for keys, asked in ((("w",), None), (("w", "v"), question)):
            gradients = {key: sample(1.0) for key in keys}
            run = program(backward(1, 2.0, gradients=gradients), step(0, 1, **gradients))
            candidate = Candidate(kinds.OUT_OF_PLACE, "an edit", {}, asked)
            status = OPEN if asked else PROVEN
            judgements.append(Judgement(candidate, run, status, question=asked))
        Judge(original).compare(judgements)
        statuses[question] = [judgement.status for judgement in judgements]
    assert statuses == {None: [REJECTED, PROVEN], "is v to be trained?": [PROVEN, OPEN]}


@pytest.mark.parametrize(
    ("upstream", "part", "is_question"),
    [
        ((), (0.0, 1.0), False),
        ((0, 1), (0.0, 1.0), True),
        ((0, 1), (-1.0, 0.0), False),
        ((0, 1), (1.0, -0.5), True),
        ((0, 1), (-3.0, 10.0), True),  # more across than against
    ],
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
    g_gradient = {"g": sample(2.0, 0.2)}
    g_loss = backward(2, 2.0, "g_loss.backward()", gradients=g_gradient)
    lost = failing(backward(2, 2.0, "g_loss.backward()", gradients=g_gradient))
    original = program(cleared, d_loss, lost, status="raised", optimizers=TWO_NETWORKS, names={})
    total = g_gradient["g"].plus(sample(*part))
    steps = step(1, 1, d=sample(1.0)), step(0, 1, 2, g=total)
    events = cleared, d_loss, g_loss, *steps
    judgement = judge(kinds.CLONE_USED, *events, original=original, reference=None)
    if is_question:
        assert judgement.question == "should d_loss also train the parameters of opt_g?"
        assert judgement.status == OPEN
        assert not any("its own losses only" in line for line in judgement.evidence)
    else:
        leak = "the gradient of d_loss leaks into opt_g: the gradient of g is"
        assert leak in judgement.reasons[0]


def test_a_sum_whose_gradient_is_cleared_leaks_into_no_later_step():
    """Two optimizers share a network, and each clears its gradients before its own loss."""
    optimizers = [OptimizerInfo("opt_g", ("g",)), OptimizerInfo("opt_e", ("e", "g"))]
    g, both = (GradientsCleared(frozenset(indices)) for indices in ({0}, {0, 1}))
    parts = [backward(n, 2.0, "adv.backward()", gradients={"g": sample(1.0)}) for n in (1, 2)]
    rest = {"e": sample(2.0), "g": sample(1.0, 1.0)}
    original = program(g, parts[0], failing(parts[1]), status="raised", optimizers=optimizers)
    total = backward(1, 4.0, "total.backward()", gradients={"g": sample(2.0)})
    rec = backward(2, 3.0, "rec.backward()", gradients=rest)
    events = g, total, step(0, 1, g=sample(2.0)), both, rec, step(1, 2, **rest)
    again = backward(2, 2.0, "adv.backward()", gradients={"g": sample(1.0)})
    reference = program(g, parts[0], again, optimizers=optimizers)
    judgement = judge(kinds.ADD_LOSSES, *events, original=original, reference=reference)
    assert judgement.status == PROVEN, judgement.reasons


def test_a_value_that_is_detached_or_computed_again_is_the_readers_choice():
    """To detach it comes first: the loss of each iteration is then that of the same value."""
    judge_ = Judge(ORIGINAL, REFERENCE)
    judgements = [
        Judgement(Candidate(kind, "an edit", {}), program(*repaired(loss)), status, question=asked)
        for kind, loss, status, asked in (
            (kinds.COMPUTE_AGAIN, 5.0, PROVEN, None),
            (kinds.DETACH, 2.0, OPEN, "is a not to be trained?"),
        )
    ]
    judge_.compare(judgements)
    assert [j.candidate.repair for j in judgements] == [kinds.DETACH, kinds.COMPUTE_AGAIN]
    assert [j.status for j in judgements] == [OPEN, OPEN]
    assert judgements[1].question == "is the value to follow the parameters in each iteration?"


def test_whether_a_loss_is_the_mean_of_its_elements_is_asked():
    original = program(diagnosis={"family": "not_scalar"}, status="raised")
    candidate = Candidate(kinds.AVERAGE, "an edit", {}, "is the loss the mean, not the sum?")
    run = program(backward(1, 2.0), step(0, 1))
    assert Judge(original).judge(candidate, run).status == OPEN


def test_a_call_without_a_sign_of_its_own_is_meant_as_the_others_of_its_line():
    """Such as the last call of a run that was stopped, which no step follows."""
    g, d = (GradientsCleared(frozenset({optimizer})) for optimizer in (0, 1))
    other_line = (ProgramLine("train.py", 9, "<module>"),)
    calls = [d, backward(1, 1.0), step(1, 1), d, backward(2, 1.0), step(1, 2)]
    for last, expected in (
        (backward(3, 1.0), {1}),
        (backward(3, 1.0, site=other_line), None),
    ):
        run = program(*calls, last, optimizers=TWO_NETWORKS)
        assert targets_of_calls(run).get(3) == expected
    calls[3], calls[5] = g, step(0, 2)  # the line trains either network
    run = program(*calls, backward(3, 1.0), optimizers=TWO_NETWORKS)
    assert targets_of_calls(run) == {1: {1}, 2: {0}}


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


def test_an_optimizer_that_holds_nothing_of_a_loss_steps_for_an_earlier_one():
    a, b = frozenset("a"), frozenset("b")
    actions = [("zero_grad", a), ("backward", a, "first"), ("step", b)]
    assert assign_losses([TrainingAction(*x) for x in actions], {"a": "", "b": ""}) == {1: a}


def test_a_loss_is_meant_for_the_optimizer_that_steps_next_not_for_one_cleared_before():
    """A part that trains itself in the forward pass runs after the clearing of the others."""
    run = program(
        GradientsCleared(frozenset({0})),
        backward(1, 1.0),
        step(1, 1, d=sample(1.0)),
        backward(2, 1.0),
        step(0, 2, g=sample(1.0)),
        optimizers=TWO_NETWORKS,
    )
    assert targets_of_calls(run) == {1: {1}, 2: {0}}


@pytest.mark.parametrize(
    "text, name",
    [
        ("(d_loss / 2).backward()", "(d_loss / 2)"),
        ("(loss.backward(), step())", "loss"),
        ("torch.autograd.grad(loss, w)", "backward call 3"),
    ],
)
def test_a_loss_has_the_name_on_which_backward_was_called(text, name):
    assert loss_name(backward(3, 1.0, text)) == name


def test_a_step_before_the_last_backward_call_does_not_explain_why_gradients_are_cleared():
    lines = ((ProgramLine("train.py", number, "<module>"),) for number in (3, 4, 5))
    calls = [backward(number, 1.0, site=line) for number, line in enumerate(lines, 1)]
    taken, cleared = step(1, 1, d=sample(1.0)), GradientsCleared(frozenset({1}))
    run = program(calls[0], taken, calls[1], cleared, calls[2], optimizers=TWO_NETWORKS)
    assert targets_of_calls(run) == {1: {1}, 3: {1}}


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
    with_closure = StepTaken(0, unused.gradients, unused.calls, closure=True)
    assert judge(kinds.OUT_OF_PLACE, *events[:-1], with_closure).reasons == []


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


def test_steps_before_the_failing_call_do_not_count_as_steps_after_it():
    events = backward(1, 3.0), step(0, 1), step(0, 1), backward(2, 2.0)
    judgement = judge(kinds.OUT_OF_PLACE, *events)
    assert judgement.status == UNPROVEN
    assert judgement.reasons == ["no optimizer has stepped after the failing call"]


@pytest.mark.parametrize("question", [None, "is it meant?"])
def test_a_repair_that_leaves_a_question_is_another_idea(question):
    """Two clones that train differently are one idea, unless only one of them is proven."""
    changed = {"w": sample(5.0, 5.0)}
    *events, _ = repaired(1.0, gradients=changed)
    runs = program(*repaired()), program(*events, step(0, 2, **changed))
    clone = Candidate(kinds.CLONE_WRITTEN, "an edit", {})
    judgements = [
        Judgement(clone, runs[0], PROVEN),
        Judgement(clone, runs[1], OPEN if question else PROVEN, question=question),
    ]
    proof = Proof(ORIGINAL, judgements=judgements)
    _classify(proof, Judge(ORIGINAL, REFERENCE))
    assert proof.accepted == (judgements if question else judgements[:1])


def test_proven_repairs_that_train_differently_are_accepted_first():
    changed = {"w": sample(5.0, 5.0)}
    *events, _ = repaired(1.0, gradients=changed)
    same, other = repaired(), (*events, step(0, 2, **changed))

    def judged(repair, events, question=None):
        status = OPEN if question else PROVEN
        candidate = Candidate(repair, "an edit", {})
        return Judgement(candidate, program(*events), status, question=question)

    for first, second, accepted, equivalent in (
        (judged(kinds.CLEAR, same, "is it meant?"), judged(kinds.SWITCH, other), [1, 0], []),
        (judged(kinds.CLEAR, same), judged(kinds.SWITCH, same), [0], [1]),
        (judged(kinds.SWITCH, same), judged(kinds.SWITCH, other), [0, 1], []),
        (judged(kinds.CLONE_WRITTEN, same), judged(kinds.DETACH_STATE, other), [0, 1], []),
    ):
        judgements = [first, second]
        proof = Proof(ORIGINAL, judgements=judgements)
        _classify(proof, Judge(ORIGINAL, REFERENCE))
        assert proof.accepted == [judgements[i] for i in accepted]
        assert proof.equivalent == [judgements[i] for i in equivalent]


def test_repairs_of_two_kinds_are_two_ideas_even_if_they_ask_the_same():
    changed = {"w": sample(5.0, 5.0)}
    *events, _ = repaired(1.0, gradients=changed)
    runs = program(*repaired()), program(*events, step(0, 2, **changed))
    judgements = [
        Judgement(Candidate(kind, "an edit", {}), run, OPEN, question="is it meant?")
        for kind, run in zip((kinds.DETACH_SHARED, kinds.FORWARD_AGAIN), runs, strict=True)
    ]
    proof = Proof(ORIGINAL, judgements=judgements)
    _classify(proof, Judge(ORIGINAL, REFERENCE))
    assert proof.accepted == judgements


def test_a_list_is_cleared_if_nothing_else_holds():
    """Its old entries cannot be used again."""
    events = repaired(1.0)
    run = program(*events)
    candidate = Candidate(kinds.CLEAR, "saved.clear()", {}, "is saved to begin empty?")
    judge_ = Judge(ORIGINAL, REFERENCE)
    other = Candidate(kinds.OUT_OF_PLACE, "", {})
    for losses_of_others, status in (([], PROVEN), ([2.0], OPEN), ([9.0], PROVEN)):
        judgements = [judge_.judge(candidate, run)]
        assert judgements[0].status == OPEN
        judgements += [judge_.judge(other, program(*repaired(n))) for n in losses_of_others]
        judge_.compare(judgements)
        assert judgements[0].status == status


@pytest.mark.parametrize(
    ("truncated", "status"),
    [({"w": sample(0.5, 1.0)}, PROVEN), ({"w": sample(0.5, 2.0)}, OPEN), ({}, OPEN), (None, OPEN)],
)
def test_a_list_whose_entries_are_combined_is_not_cleared_without_a_question(truncated, status):
    """If the failing loss is only their mean, the gradient of its new terms keeps its direction."""
    last = backward(2, 2.0, truncated=truncated)
    judge_ = Judge(ORIGINAL, program(backward(1, 3.0), step(0, 1), last, step(0, 2)))
    candidate = Candidate(kinds.CLEAR, "saved.clear()", {}, "is saved to begin empty?")
    judgement = judge_.judge(candidate, program(*repaired(1.0)))
    judge_.compare([judgement])
    assert judgement.status == status


@pytest.mark.parametrize(
    ("repair", "facts", "status"),
    [
        (kinds.CLONE_USED, [], OPEN),
        (kinds.OUT_OF_PLACE, [], OPEN),
        (kinds.CLONE_USED, ["shares_memory"], PROVEN),
    ],
)
def test_an_edit_that_autograd_still_does_not_see_needs_a_question(repair, facts, status):
    """That a strict watch no longer warns does not show that the gradient has the edit's factor."""
    diagnosis = {"family": "silent", "cause": "data_edit_silent", "facts": facts}
    diagnosis |= {"began_at": {"file": "train.py", "line": 5}}
    original = program(backward(1, 3.0), step(0, 1), diagnosis=diagnosis)
    other = {"w": sample(1.0, 1.0)}
    events = backward(1, 3.0, gradients=other), step(0, 1, **other)
    judgement = judge(repair, *events, original=original, reference=None)
    assert judgement.status == status, judgement.reasons
    assert ("line 5" in (judgement.question or "")) is (status == OPEN)


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


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("RuntimeError: freed", "still raises the same error"),
        (
            "RuntimeError: Trying to backward through the graph a second time",
            "raises an error: a graph that it needs has been freed",
        ),
        ("ValueError: no", "raises ValueError: no"),
    ],
)
def test_a_candidate_that_raises_is_rejected(error, reason):
    judgement = judge(kinds.OUT_OF_PLACE, *ORIGINAL.events, status="raised", error=error)
    assert (judgement.status, judgement.reasons) == (REJECTED, [reason])


@pytest.mark.parametrize(("family", "status"), [("freed", OPEN), ("modified", REJECTED)])
def test_a_detach_that_takes_a_part_of_a_gradient_away_is_a_question(family, status):
    original = program(*ORIGINAL.events, status="raised", diagnosis={"family": family})
    judge_ = Judge(original, REFERENCE)
    question = "is state not to be trained?"
    candidate = Candidate(kinds.DETACH, "detach state", {}, question)
    less = judge_.judge(candidate, program(*repaired(gradients={"w": sample(1.0, 0.5)})))
    assert (less.status, less.question) == (status, question if status == OPEN else None)
    same = judge_.judge(candidate, program(*repaired()))
    assert (same.status, same.question) == (PROVEN, None)
    assert "the first 2 losses are unchanged" in same.evidence


@pytest.mark.parametrize(("cause", "is_right"), [("no_gradient", True), ("graph_grows", False)])
def test_a_repair_of_a_silent_failure_changes_a_wrong_gradient(cause, is_right):
    original = program(backward(1, 3.0), step(0, 1), diagnosis={"family": "silent", "cause": cause})
    gradient = sample(3.0, 2.0)
    events = backward(1, 3.0, gradients={"w": gradient}), step(0, 1, w=gradient)
    judgement = judge(kinds.MOVE_DETACH, *events, original=original, reference=None)
    if is_right:
        assert judgement.status == PROVEN
        assert "a strict watch no longer warns about it" in judgement.evidence
    else:
        assert judgement.reasons == ["runs, but changes the gradient of backward call 1"]


def test_a_repair_of_a_silent_failure_may_call_backward_more_often():
    """As LBFGS does, whose closure runs until the loss falls no more."""
    diagnosis = {"family": "silent", "cause": "no_gradient"}
    original = program(backward(1, 3.0), step(0, 1, w=sample(1.0, 0.0)), diagnosis=diagnosis)
    judgement = judge(kinds.MOVE_DETACH, *repaired(), original=original, reference=None)
    assert judgement.status == PROVEN, judgement.reasons


def test_a_clone_that_changes_a_gradient_of_an_equal_loss_is_a_question():
    """As of an argument that a function changes a little, which its caller uses again."""
    other = {"w": sample(1.0, 2.5)}
    judgement = judge(kinds.CLONE_WRITTEN, *repaired(gradients=other))
    assert judgement.status == OPEN, judgement.reasons
    assert judgement.question.startswith("are the other uses of the tensor")
    diagnosis = {"family": "silent", "cause": "gradient_changed_in_backward"}
    wrong = program(backward(1, 3.0), step(0, 1), diagnosis=diagnosis)
    events = backward(1, 3.0, gradients=other), step(0, 1, **other)
    repaired_judgement = judge(kinds.CLONE_WRITTEN, *events, original=wrong, reference=None)
    assert repaired_judgement.status == PROVEN  # its gradient was wrong


def test_a_value_of_new_weights_may_change_the_gradient_of_an_equal_loss():
    """A small step changes the loss less than rounding errors may."""
    other = {"w": sample(1.0, 2.5)}
    for stale, status in ((("w",), PROVEN), ((), REJECTED)):
        call = backward(2, 2.0, stale_leaves=frozenset(stale))
        reference = program(backward(1, 3.0), step(0, 1), call, step(0, 2))
        events = repaired(gradients=other)
        judgement = judge(kinds.COMPUTE_AGAIN, *events, reference=reference)
        assert judgement.status == status, judgement.reasons


@pytest.mark.parametrize(
    ("cause", "status"), [("gradients_not_cleared", REJECTED), ("graph_grows", PROVEN)]
)
def test_a_repair_that_only_hides_a_wrong_gradient_is_rejected(cause, status):
    """As create_graph=True does: some warnings are not given for a gradient with a graph."""
    diagnosis = {"family": "silent", "cause": cause}
    original = program(backward(1, 3.0), step(0, 1), diagnosis=diagnosis)
    events = backward(1, 3.0), step(0, 1)
    judgement = judge(kinds.CREATE_GRAPH, *events, original=original, reference=None)
    assert judgement.status == status
    reasons = ["runs, but each step uses the same gradients as before"]
    assert judgement.reasons == (reasons if status == REJECTED else [])


def test_an_error_without_a_diagnosis_has_repairs_too():
    original = program(*ORIGINAL.events, status="raised")
    original.diagnosis = None
    judgement = judge(kinds.OUT_OF_PLACE, *repaired(), original=original)
    assert judgement.status == PROVEN, judgement.reasons


@pytest.mark.parametrize(("keys", "is_trained"), [("w", False), ("wv", True)])
def test_a_parameter_that_was_never_trained_must_get_a_gradient(keys, is_trained):
    diagnosis = {"family": "silent", "cause": "never_trained", "carried_by": "v"}
    optimizers = [OptimizerInfo("opt", ("w", "v"))]
    original = program(backward(1, 3.0), step(0, 1), diagnosis=diagnosis, optimizers=optimizers)
    gradients = {key: sample(1.0, 2.0) for key in keys}
    events = backward(1, 3.0, gradients=gradients), step(0, 1, **gradients)
    judgement = judge(kinds.KEEP_GRADIENT, *events, original=original, reference=None)
    assert judgement.status == (PROVEN if is_trained else REJECTED)
    assert judgement.reasons == ([] if is_trained else ["runs, but v gets no gradient"])


def test_the_missing_second_derivative_that_made_the_program_fail_may_not_stay():
    missing = {"cause": "create_graph_missing", "began_at": "train.py:7", "explanation": "why"}
    diagnosis = {"family": "freed", "began_at": "train.py:7"}
    warned = ["runs, but a strict watch warns: why"]
    for place, findings, reasons in (
        ("train.py:7", [missing], warned),
        ("train.py:7", [], []),
        ("train.py:9", [missing], []),  # the program fails for another reason
    ):
        original = program(
            *ORIGINAL.events,
            status="raised",
            diagnosis=diagnosis,
            findings=[{**missing, "began_at": place}],
        )
        judgement = judge(kinds.OUT_OF_PLACE, *repaired(), original=original, findings=findings)
        assert judgement.reasons == reasons


@pytest.mark.parametrize("known", [[], ["other"], ["leak"]])
@pytest.mark.parametrize("family", ["freed", "silent"])
@pytest.mark.parametrize("cause", ["leak", "graph_grows"])
def test_a_warning_of_a_strict_watch_is_an_objection_unless_the_program_had_it(
    known, family, cause
):
    findings = [{"cause": cause, "explanation": "why"}]
    original = program(
        *ORIGINAL.events,
        status="raised",
        diagnosis={"family": family, "cause": "gradient_changed_in_backward"},
        findings=[{"cause": name, "explanation": ""} for name in known],
    )
    judgement = judge(kinds.OUT_OF_PLACE, *repaired(), original=original, findings=findings)
    expected = ["runs, but a graph grows with each iteration"] if cause == "graph_grows" else []
    if cause not in known:
        expected.append("runs, but a strict watch warns: why")
    assert judgement.reasons == expected
    remains = {"silent": "another fault remains: why"}
    last = remains.get(family, "no graph grows, and a strict watch finds nothing new")
    assert expected or judgement.evidence[-1] == last


def test_the_warning_that_a_program_had_is_not_repeated():
    cause = "gradient_leaks"
    original = program(backward(1, 3.0), step(0, 1), diagnosis={"family": "silent", "cause": cause})
    events, findings = original.events, [{"cause": cause, "explanation": "why"}]
    fields = {"original": original, "reference": None, "findings": findings}
    judgement = judge(kinds.CLEAR_GRADIENTS, *events, **fields)
    assert judgement.reasons[0] == "runs, but a strict watch still warns"


def test_only_the_first_warning_of_a_strict_watch_is_named():
    findings = [{"cause": "leak", "explanation": name} for name in ("first", "second")]
    judgement = judge(kinds.OUT_OF_PLACE, *repaired(), findings=findings)
    assert judgement.reasons == ["runs, but a strict watch warns: first"]


@pytest.mark.parametrize(
    "cause, facts",
    [
        ("loss_accumulated", []),
        ("shared_subgraph", []),
        ("shared_subgraph", ["not built_after", "a_loss_is_added"]),
    ],
)
@pytest.mark.parametrize("repair", [kinds.RETAIN_GRAPH, kinds.OUT_OF_PLACE])
def test_a_loss_that_contains_an_earlier_one_is_not_retained(cause, facts, repair):
    events = backward(1, 3.0), failing(backward(2, 2.0))
    original = program(*events, status="raised", diagnosis={"cause": cause, "facts": facts})
    repaired_events = backward(1, 3.0), backward(2, 2.0), step(0, 1, 2)
    reference = program(*repaired_events)
    judgement = judge(repair, *repaired_events, original=original, reference=reference)
    contains = cause == "loss_accumulated" or "a_loss_is_added" in facts
    if contains and repair == kinds.RETAIN_GRAPH:
        assert judgement.reasons == [
            "runs, but the loss contains an earlier one: its gradient counts twice"
        ]
    else:
        assert judgement.status == PROVEN, judgement.reasons


def without_optimizer(**fields) -> tuple[ProgramRun, tuple]:
    """A program without an optimizer, whose second call fails, and the events of its repair."""
    events = backward(1, 3.0, gradients={"v": sample(1.0)}), backward(2, 2.0)
    lost = failing(backward(2, 2.0))
    return program(events[0], lost, status="raised", optimizers=[], **fields), events


def test_without_an_optimizer_the_gradients_of_late_calls_count():
    original, events = without_optimizer()
    judgement = judge(kinds.OUT_OF_PLACE, *events, original=original, reference=None)
    assert judgement.status == PROVEN, judgement.reasons
    assert "w gets a gradient" in judgement.evidence
    Judge(original).compare([judgement])
    assert judgement.status == PROVEN  # nothing says what has to be trained
    both = events[0], backward(2, 2.0, gradients={"v": sample(1.0), "w": sample(1.0, 2.0)})
    original.events[-1] = failing(backward(2, 2.0))
    reference = program(*both, optimizers=[])
    judgement = judge(kinds.OUT_OF_PLACE, *both, original=original, reference=reference)
    assert "v, w get a gradient" in judgement.evidence
    total = backward(1, 5.0, gradients={"v": sample(1.0), "w": sample(1.0, 2.0)})
    reference = program(*events, optimizers=[])
    judgement = judge(kinds.ADD_LOSSES, total, original=original, reference=reference)
    assert "v, w get a gradient" in judgement.evidence  # one call is all there is
    doubled = backward(1, 3.0, gradients={"v": sample(2.0)}), events[1]
    judgement = judge(kinds.OUT_OF_PLACE, *doubled, original=original, reference=None)
    assert judgement.reasons == ["runs, but changes the gradient of backward call 1"]


def test_parameters_that_the_program_updates_itself_stay_trained():
    for by_hand, reason in (({"w"}, "w is no longer trained"), ({"v"}, None)):
        original, events = without_optimizer(updated_by_hand=by_hand)
        lost = events[0], backward(2, 2.0, gradients={"x": sample(1.0)})
        judgement = judge(kinds.OUT_OF_PLACE, *lost, original=original, reference=None)
        assert judgement.reasons == ([f"runs, but {reason}"] if reason else [])
    assert "x gets a gradient" in judgement.evidence


def test_a_part_of_a_gradient_that_is_meant_for_no_optimizer_may_go():
    """The discriminator's loss had reached the generator, too."""
    both = {"d": sample(1.0), "g": sample(0.5)}
    cleared = GradientsCleared(frozenset({1}))
    taken = step(1, 1, d=sample(1.0))
    g_loss = backward(2, 2.0, "g_loss.backward()", gradients={"g": sample(1.0)})
    first = [cleared, backward(1, 3.0, "d_loss.backward()", gradients=both), taken]
    alone = [cleared, backward(1, 3.0, "d_loss.backward()", gradients={"d": sample(1.0)}), taken]
    second = [GradientsCleared(frozenset({0})), g_loss, step(0, 2, g=sample(1.0))]
    lost = failing(backward(2, 2.0, "g_loss.backward()", gradients={"g": sample(1.0)}))
    original = program(*first, second[0], lost, status="raised", optimizers=TWO_NETWORKS)
    reference = program(*first, *second, optimizers=TWO_NETWORKS)
    judgement = judge(kinds.CLONE_USED, *alone, *second, original=original, reference=reference)
    assert judgement.status == PROVEN, judgement.reasons
    assert "each step uses the gradient of its own losses only" in judgement.evidence
    # Of a parameter that no optimizer of the repaired program has, every part counts.
    none = [OptimizerInfo("opt_g", ()), OptimizerInfo("opt_d", ("d",))]
    judgement = judge(
        kinds.CLONE_USED, *alone, *second, original=original, reference=reference, optimizers=none
    )
    assert "runs, but changes the gradient of backward call 1" in judgement.reasons


def test_a_gradient_of_another_parameter_is_a_change():
    optimizers = [OptimizerInfo("opt", ("w", "v"))]
    original = program(*ORIGINAL.events, status="raised", optimizers=optimizers)
    more = {"w": sample(1.0, 2.0), "v": sample(1.0)}
    judgement = judge(kinds.OUT_OF_PLACE, *repaired(gradients=more), original=original)
    assert judgement.reasons == ["runs, but changes the gradient of backward call 2"]


@pytest.mark.parametrize("was_nan", [False, True])
def test_a_gradient_that_becomes_nan_is_an_objection(was_nan):
    nan = {"w": sample(float("nan"), 2.0)}
    first = backward(1, 3.0, gradients=nan) if was_nan else backward(1, 3.0)
    original = program(first, failing(backward(2, 2.0)), status="raised")
    judgement = judge(
        kinds.OUT_OF_PLACE, *repaired(gradients=nan), original=original, reference=None
    )
    reason = "runs, but the gradient of w is NaN"
    assert (reason in judgement.reasons) != was_nan


OTHER_LINE = (ProgramLine("train.py", 9, "<module>"),)


@pytest.mark.parametrize(
    ("sizes", "is_rejected"),
    [
        ([1, 2, 3, 4], True),
        ([5, 1, 2, 3, 4], True),  # only the last four count
        ([1, 2, 2, 3], False),
        ([4, 3, 2, 1], False),
    ],
)
def test_the_graphs_of_one_line_grow(sizes, is_rejected):
    calls = []
    for size in sizes:
        for site, count in (((LINE,), size), (OTHER_LINE, 3)):
            operations = Counter(AddBackward0=count)
            calls.append(
                backward(len(calls) + 1, 2.0, site=site, operations=operations, oldest_node=1)
            )
    original = program(failing(backward(1, 2.0)), status="raised")
    reference = program(backward(1, 2.0), step(0, 1))
    used = range(1, len(calls) + 1)
    events = *calls, step(0, *used)
    judgement = judge(kinds.OUT_OF_PLACE, *events, original=original, reference=reference)
    assert judgement.reasons == (
        ["runs, but memory grows with each iteration: 1, 2, 3, 4 nodes in the graph"]
        if is_rejected
        else []
    )


@pytest.mark.parametrize(("stale_call", "is_rejected"), [(1, False), (2, True)])
def test_a_gradient_of_old_weights_counts_from_the_failing_call_on(stale_call, is_rejected):
    stale = {stale_call: {"stale_leaves": frozenset({"w"})}}
    first = backward(1, 3.0, **stale.get(1, {}))
    lost = failing(backward(2, 2.0, **stale.get(2, {})))
    original = program(first, step(0, 1), lost, status="raised")
    judgement = judge(
        kinds.OUT_OF_PLACE, *repaired(stale_leaves=frozenset({"w"})), original=original
    )
    reason = (
        "runs, but backward call 2 uses an old value of w: the gradient is not that of the "
        "present weights"
    )
    assert judgement.reasons == ([reason] if is_rejected else [])


def test_calls_that_failed_before_are_not_compared():
    """The program catches an error of an earlier call; only the calls that ran have gradients."""
    caught = failing(backward(1, 9.0))
    original = program(caught, backward(2, 3.0), failing(backward(3, 2.0)), status="raised")
    for gradient, reasons in (
        (1.0, []),
        (4.0, ["runs, but changes the gradient of backward call 2"]),
    ):
        second = backward(2, 3.0, gradients={"w": sample(gradient, 2.0)})
        events = backward(1, 9.0), second, backward(3, 2.0), step(0, 1, 2, 3)
        judgement = judge(kinds.OUT_OF_PLACE, *events, original=original, reference=None)
        assert judgement.reasons == reasons


def test_the_two_most_frequent_additional_operations_are_named():
    stale = frozenset({"w"})
    lost = failing(backward(2, 2.0, stale_leaves=stale))
    original = program(backward(1, 3.0), step(0, 1), lost, status="raised")
    operations = Counter(MulBackward0=5, AddBackward0=3, SinBackward0=1)
    judgement = judge(kinds.FORWARD_AGAIN, *repaired(3.0, operations=operations), original=original)
    assert judgement.reasons[0].endswith("does not have (MulBackward, AddBackward)")


@pytest.mark.parametrize(
    ("first", "second", "total", "is_sum"),
    [
        (3.0, 2.0, 5.0, True),
        (3000.0, 2000.0, 5000.3, True),  # as exact as float32 is
        (0.3, 0.2, 0.50015, False),
        (3.0, 2.0, 3.0, False),  # only the first of them
    ],
)
def test_the_sum_of_two_losses_has_the_value_of_both(first, second, total, is_sum):
    original = program(backward(1, first), failing(backward(2, second)), status="raised")
    reference = program(backward(1, first), backward(2, second), step(0, 1, 2))
    gradients = {"w": sample(2.0, 4.0)}
    events = backward(1, total, gradients=gradients), step(0, 1, **gradients)
    judgement = judge(kinds.ADD_LOSSES, *events, original=original, reference=reference)
    reasons = ["runs, but the new loss is not the sum of the two losses"]
    assert judgement.reasons == ([] if is_sum else reasons)
    if is_sum:
        text = "its loss is the sum of the losses on which the program called backward()"
        assert text in judgement.evidence
        assert not any("unchanged" in line for line in judgement.evidence)


def test_the_sum_of_two_losses_has_the_gradient_of_both():
    optimizers = [OptimizerInfo("opt", ("w", "v"))]
    wrong = "runs, but the gradient of the new loss is not the sum of their gradients"
    w, v = {"w": sample(1.0, 2.0)}, {"v": sample(1.0)}
    both = {"w": sample(2.0, 4.0), "v": sample(2.0)}
    for expected, total, reasons in (
        (w | v, both, []),
        (w, both, [wrong]),
        (w | v, {"w": both["w"]}, [wrong]),
    ):
        calls = backward(1, 3.0, gradients=expected), backward(2, 2.0, gradients=expected)
        reference = program(*calls, step(0, 1, 2, **expected), optimizers=optimizers)
        original = program(
            calls[0], failing(backward(2, 2.0)), status="raised", optimizers=optimizers
        )
        events = backward(1, 5.0, gradients=total), step(0, 1, **total)
        judgement = judge(kinds.ADD_LOSSES, *events, original=original, reference=reference)
        assert judgement.reasons == reasons


def test_a_run_without_a_backward_call_proves_nothing():
    judgement = judge(kinds.ADD_LOSSES)
    assert (judgement.status, judgement.reasons) == (
        UNPROVEN,
        ["no backward() call was observed"],
    )


def test_a_sum_trains_what_the_losses_trained():
    """Fewer calls are no reason to look at none of them."""
    optimizers = [OptimizerInfo("opt", ("w",)), OptimizerInfo("other", ("v",))]
    both = {"w": sample(1.0, 2.0), "v": sample(1.0)}
    calls = backward(1, 3.0, gradients=both), backward(2, 2.0, gradients=both)
    original = program(calls[0], failing(backward(2, 2.0)), status="raised", optimizers=optimizers)
    reference = program(*calls, step(0, 1, 2), optimizers=optimizers)
    total = backward(1, 5.0, gradients={"w": sample(2.0, 4.0)})
    events = total, step(0, 1, w=sample(2.0, 4.0)), StepTaken(1, {}, {}, closure=False)
    judgement = judge(kinds.ADD_LOSSES, *events, original=original, reference=reference)
    assert judgement.reasons[0] == "runs, but v is no longer trained"


def test_only_calls_from_the_line_of_the_failing_one_share_a_retained_graph():
    calls = [
        backward(number, loss, oldest_node=oldest, site=site)
        for number, loss, oldest, site in (
            (1, 3.0, 1, OTHER_LINE),
            (2, 2.0, 20, (LINE,)),
            (3, 1.0, 20, (LINE,)),
        )
    ]
    original = program(calls[0], failing(backward(2, 2.0)), status="raised")
    events = *calls[:2], step(0, 1, 2), calls[2], step(0, 3)
    judgement = judge(kinds.RETAIN_GRAPH, *events, original=original)
    assert judgement.reasons == [
        "runs, but later iterations would use the graph of an earlier iteration"
    ]


@pytest.mark.parametrize("grows", [False, True])
def test_losses_between_two_steps_may_share_a_graph_that_does_not_grow(grows):
    calls = [
        backward(i, 3.0 - i, oldest_node=7, operations=Counter(AddBackward0=1 + grows * i))
        for i in range(1, 4)
    ]
    original = program(calls[0], failing(backward(2, 1.0)), status="raised")
    reference = program(*calls, step(0, 1, 2, 3))
    judgement = judge(kinds.RETAIN_GRAPH, *reference.events, original=original, reference=reference)
    assert (judgement.status == PROVEN) != grows, judgement.reasons


@pytest.mark.parametrize("ended_by", ["step", "backward", None])
def test_an_inner_loop_of_gradients_unrolls_its_graph_on_purpose(ended_by):
    """Only what is longer in the next iteration of the training grows."""
    for is_carried in (False, True):
        events = []
        for iteration in range(4):
            for inner in range(4):
                size = 1 + inner + 4 * iteration * is_carried
                number = sum(isinstance(event, ObservedCall) for event in events) + 1
                events.append(
                    backward(
                        number,
                        2.0,
                        site=OTHER_LINE,
                        operations=Counter(AddBackward0=size),
                        oldest_node=1 if is_carried else 10 * iteration,
                        accumulates=False,
                    )
                )
            if ended_by == "step":
                events.append(step(0, number))
            elif ended_by == "backward":
                events.append(backward(number + 1, 2.0, oldest_node=1000 + number))
        has_grown = any(growing_calls(program(*events)))
        assert has_grown == (is_carried or ended_by is None)


@pytest.mark.parametrize("is_later_equal", [False, True])
def test_a_gradient_that_may_be_differentiated_is_a_question(is_later_equal):
    """The failing call returns its gradient; the loss that uses it comes after it."""
    first = backward(1, 3.0), failing(backward(2, 2.0, accumulates=False, gradients={}))
    inner = backward(2, 2.0, accumulates=False, gradients={})
    last = backward(3, 1.0)
    original = program(*first, status="raised")
    reference = program(first[0], inner, last, step(0, 1, 3))
    gradient = sample(1.0, 2.0) if is_later_equal else sample(1.0, 3.0)
    events = first[0], inner, backward(3, 1.0, gradients={"w": gradient}), step(0, 1, 3, w=gradient)
    candidate = Candidate(kinds.CREATE_GRAPH, "an edit", {}, "is it to be differentiated?")
    judgement = Judge(original, reference).judge(candidate, program(*events))
    assert judgement.status == (PROVEN if is_later_equal else OPEN), judgement.reasons


WEIGHTS = [OptimizerInfo("opt", ("w", "v"))]
BOTH_WEIGHTS = {"w": sample(1.0, 2.0), "v": sample(1.0)}


@pytest.mark.parametrize(
    ("first", "second", "is_trained"),
    [
        ("wv", "wv", True),
        ("wv", "w", False),  # it was a leaf of the failing call
        ("w", "wv", False),
    ],
)
def test_each_call_trains_what_it_trained_and_the_failing_one_all_its_leaves(
    first, second, is_trained
):
    lost = failing(backward(2, 2.0, gradients=BOTH_WEIGHTS))
    original = program(
        backward(1, 3.0, gradients=BOTH_WEIGHTS), lost, status="raised", optimizers=WEIGHTS
    )
    calls = [
        backward(1, 3.0, gradients={key: BOTH_WEIGHTS[key] for key in first}, leaves={"w", "v"}),
        backward(2, 2.0, gradients={key: BOTH_WEIGHTS[key] for key in second}),
    ]
    events = *calls, step(0, 1, 2, **BOTH_WEIGHTS)
    judgement = judge(kinds.OUT_OF_PLACE, *events, original=original, reference=None)
    assert judgement.reasons[:1] == ([] if is_trained else ["runs, but v is no longer trained"])


def test_only_gradients_that_a_step_uses_and_that_are_not_zero_train():
    original = program(
        failing(backward(1, 2.0, gradients=BOTH_WEIGHTS)), status="raised", optimizers=WEIGHTS
    )
    call, w = backward(1, 2.0, gradients=BOTH_WEIGHTS), sample(1.0, 2.0)
    for taken, trained in (
        ({"w": w}, "w gets"),
        ({"w": w, "v": sample(0.0)}, "w gets"),
        (BOTH_WEIGHTS, "all 2 parameters get"),
    ):
        events = call, step(0, 1, **taken)
        judgement = judge(kinds.OUT_OF_PLACE, *events, original=original, reference=None)
        assert f"{trained} a gradient" in judgement.evidence


def test_a_leaf_that_an_earlier_call_did_not_train_may_stay_so():
    unused = {"leaves": frozenset({"w", "v"})}
    original = program(
        backward(1, 3.0, **unused), failing(backward(2, 2.0)), status="raised", optimizers=WEIGHTS
    )
    events = backward(1, 3.0, **unused), backward(2, 2.0), step(0, 1, 2)
    judgement = judge(kinds.OUT_OF_PLACE, *events, original=original, reference=None)
    assert judgement.status == PROVEN, judgement.reasons
    assert "w gets a gradient" in judgement.evidence


@pytest.mark.parametrize("accumulates", [True, False])
def test_gradients_that_are_all_zero_train_nothing(accumulates):
    zero = {"gradients": {"w": sample(0.0, 0.0)}}
    last = backward(3, 1.0, accumulates=accumulates, **zero)
    judgement = judge(kinds.OUT_OF_PLACE, *repaired(**zero), last)
    assert ("runs, but all gradients are zero" in judgement.reasons) == accumulates


@pytest.mark.parametrize(
    ("site", "closure", "is_rejected"),
    [((LINE,), False, True), ((LINE,), True, False), (OTHER_LINE, False, False)],
)
def test_an_unused_gradient_is_an_objection_at_the_repaired_line(site, closure, is_rejected):
    """A closure may call backward often, and the step uses the last gradient."""
    first = backward(1, 3.0, site=OTHER_LINE)
    original = program(first, step(0, 1), failing(backward(2, 2.0)), status="raised")
    cleared = GradientsCleared(frozenset({0}))
    events = first, step(0, 1), backward(2, 2.0), step(0, 2), backward(3, 1.0, site=site), cleared
    taken = step(0)
    taken.closure = closure
    judgement = judge(kinds.OUT_OF_PLACE, *events, taken, original=original)
    assert bool(judgement.reasons) == is_rejected


def test_an_unused_gradient_is_only_a_doubt_where_the_program_reads_gradients(tmp_path):
    first, cleared = backward(1, 3.0, site=OTHER_LINE), GradientsCleared(frozenset({0}))
    original = program(first, step(0, 1), failing(backward(2, 2.0)), status="raised")
    events = first, step(0, 1), backward(2, 2.0), step(0, 2), backward(3, 1.0), cleared, step(0)
    for text, status in (("p.grad = None", REJECTED), ("total += p.grad * p.grad", UNPROVEN)):
        path = tmp_path / f"{status}.py"
        path.write_text(text, encoding="utf-8")
        files = [str(path)]
        judgement = judge(kinds.OUT_OF_PLACE, *events, original=original, files=files)
        assert (judgement.status, len(judgement.reasons)) == (status, 1)


def test_a_gradient_that_the_program_did_not_use_either_is_no_objection():
    cleared = GradientsCleared(frozenset({0}))
    original = program(backward(1, 3.0), cleared, failing(backward(2, 2.0)), status="raised")
    events = backward(1, 3.0), cleared, backward(2, 2.0), step(0, 2)
    judgement = judge(kinds.OUT_OF_PLACE, *events, original=original)
    assert judgement.status == PROVEN, judgement.reasons


@pytest.mark.parametrize("text", ["g_loss.backward()", "loss.backward()"])
def test_a_gradient_whose_optimizer_never_steps_is_no_objection(text):
    """Neither is one of a loss of which no optimizer can be said to be the one."""
    gradients = {"g": sample(1.0)}
    lost = failing(backward(1, 2.0, text, gradients=gradients))
    original = program(lost, status="raised", optimizers=TWO_NETWORKS)
    d_loss = backward(2, 3.0, "d_loss.backward()", gradients={"d": sample(1.0)})
    events = backward(1, 2.0, text, gradients=gradients), d_loss, step(1, 2, d=sample(1.0))
    judgement = judge(kinds.OUT_OF_PLACE, *events, original=original, reference=None)
    assert judgement.status == PROVEN, judgement.reasons


@pytest.mark.parametrize(
    ("own", "part", "share"),
    [(1.0, 3.0, 300), (2.0, 1.0, 50), (0.0, 1.0, 100), (1000.0, 0.05, None)],
)
def test_a_sum_that_leaks_into_another_optimizer(own, part, share):
    """The generator's loss, which failed, reaches the discriminator; added to that's, it leaks."""
    cleared = GradientsCleared(frozenset({0, 1}))
    g, d = {"g": sample(1.0)}, {"d": sample(own)}
    first = backward(1, 1.0, "g_loss.backward()", gradients=g)
    second = backward(2, 3.0, "d_loss.backward()", gradients=d)
    last = {"gradients": {"g": sample(1.0), "d": sample(part)}}
    lost = failing(backward(3, 2.0, "g_loss.backward()", **last))
    original = program(
        *(cleared, first, cleared, second, cleared, lost),
        status="raised",
        optimizers=TWO_NETWORKS,
        names={"g": "generator.weight", "d": "critic.weight"},
    )
    total = {"g": sample(2.0), "d": sample(own + part)}
    events = cleared, backward(1, 6.0, "total.backward()", gradients=total)
    steps = step(1, 1, d=total["d"]), step(0, 1, g=total["g"])
    judgement = judge(kinds.ADD_LOSSES, *events, *steps, original=original, reference=None)
    leak = (
        f"runs, but the gradient of g_loss leaks into opt_d: the gradient of critic.weight is "
        f"{share} % off"
    )
    assert judgement.reasons == ([leak] if share else [])


@pytest.mark.parametrize(
    ("trained", "leaves", "question"),
    [
        (("w", "v"), "wv", "is v to be trained?"),
        (("w", "v", "u"), "wvu", "are u, v to be trained?"),
        (("w", "v"), "wvx", None),  # the optimizer has a part of the parameters only
        (("w",), "w", None),  # nothing new is trained
    ],
)
def test_parameters_that_are_no_longer_frozen_are_a_question(trained, leaves, question):
    optimizers = [OptimizerInfo("opt", trained)]
    original = program(
        backward(1, 3.0), failing(backward(2, 2.0)), status="raised", optimizers=optimizers
    )
    gradients = {key: sample(1.0, 2.0) for key in leaves}
    events = backward(1, 3.0), backward(2, 2.0, gradients=gradients), step(0, 1, 2, **gradients)
    judgement = judge(kinds.SWITCH_ON, *events, original=original, reference=None)
    assert judgement.question == question
    assert judgement.status == (OPEN if question else PROVEN)


@pytest.mark.parametrize(("repair", "status"), [(kinds.CLEAR, UNPROVEN), (kinds.NUMBER, PROVEN)])
def test_gradients_that_a_call_returns_cannot_be_compared(repair, status):
    asked = {"accumulates": False}
    lost = failing(backward(2, 2.0, **asked))
    original = program(backward(1, 3.0, **asked), lost, status="raised")
    events = backward(1, 3.0, **asked), backward(2, 2.0, **asked)
    judgement = judge(repair, *events, original=original, reference=None)
    assert judgement.status == status
    if status == UNPROVEN:
        assert "autograd.grad returns it" in judgement.reasons[0]


@pytest.mark.parametrize(
    ("missing", "listed"),
    [("a", "net.a is"), ("ab", "net.a, net.b are"), ("abc", "net.a, net.b and 1 more are")],
)
def test_the_parameters_that_are_no_longer_trained_are_named(missing, listed):
    all_of_them = {key: sample(1.0) for key in "abcd"}
    less = {key: sample(1.0) for key in "abcd" if key not in missing}
    names = {key: f"net.{key}" for key in "abcd"}
    original = program(
        failing(backward(1, 2.0, gradients=all_of_them)),
        status="raised",
        optimizers=[OptimizerInfo("opt", ("a", "b", "c", "d"))],
        names=names,
    )
    events = backward(1, 2.0, gradients=less), step(0, 1, **less)
    judgement = judge(kinds.OUT_OF_PLACE, *events, original=original, reference=None)
    assert judgement.reasons == [f"runs, but {listed} no longer trained"]


@pytest.mark.parametrize(("status", "expected"), [("ended", PROVEN), ("enough", UNPROVEN)])
def test_an_error_outside_of_backward_may_be_all_that_a_program_does(status, expected):
    original = program(status="raised", diagnosis={"family": "modified"})
    judgement = judge(kinds.OUT_OF_PLACE, original=original, reference=None, status=status)
    assert judgement.status == expected, judgement.reasons


def test_a_loss_before_the_failing_one_may_never_change():
    events = backward(1, 9.0), step(0, 1), backward(2, 2.0), step(0, 2)
    judgement = judge(kinds.CLEAR, *events)
    assert judgement.reasons == ["runs, but changes the loss of backward call 1"]


def test_a_parameter_without_gradient_is_a_doubt_if_the_reference_failed_at_that_call():
    optimizers = [OptimizerInfo("opt", ("w", "unused"))]
    original = program(status="raised", optimizers=optimizers)
    events = backward(1, 2.0), step(0, 1)
    reference = program(failing(backward(1, 2.0)), status="raised", optimizers=optimizers)
    judgement = judge(kinds.OUT_OF_PLACE, *events, original=original, reference=reference)
    assert judgement.status == UNPROVEN
    assert judgement.reasons == ["runs, but unused gets no gradient"]


def test_a_program_that_never_steps_needs_no_step():
    events = [backward(i, loss, gradients={"g": sample(1.0)}) for i, loss in ((1, 3.0), (2, 2.0))]
    original = program(
        events[0],
        failing(backward(2, 2.0, gradients={"g": sample(1.0)})),
        status="raised",
        optimizers=TWO_NETWORKS,
    )
    reference = program(*events, optimizers=TWO_NETWORKS)
    judgement = judge(
        kinds.OUT_OF_PLACE, *events, original=original, reference=reference, status="enough"
    )
    assert (judgement.status, judgement.reasons) == (PROVEN, [])
    assert not any("each step uses" in line for line in judgement.evidence)


def test_a_loss_that_cannot_be_compared_is_unproven():
    original = program(status="raised", diagnosis={"family": "leaf_inplace"})
    events = backward(1, 2.0), step(0, 1)
    judgement = judge(kinds.OUT_OF_PLACE, *events, original=original, reference=None)
    assert judgement.status == UNPROVEN
    reference = program(failing(backward(1, 2.0)), status="raised")
    judgement = judge(kinds.OUT_OF_PLACE, *events, original=original, reference=reference)
    assert judgement.status == PROVEN, judgement.reasons
    judgement = judge(kinds.OUT_OF_PLACE, backward(1, 3.0), original=original, reference=reference)
    assert judgement.reasons == ["runs, but changes the loss of backward call 1"]


REFUSED = program(status="raised", diagnosis={"family": "leaf_inplace"})


def test_the_gradient_is_compared_where_the_reference_lost_none():
    """At the first call a weight that begins at zero hides that a gradient is missing."""
    optimizers = [OptimizerInfo("opt", ("w", "unused"))]
    original = program(status="raised", optimizers=optimizers)
    less = {"w": sample(1.0, 0.0)}

    def events(changed=None):
        for i in range(1, 5):
            call = backward(i, 5.0 - i, **{"gradients": less} if i == changed else {})
            yield from (call, step(0, i, **call.gradients))

    reference = program(*events(), optimizers=optimizers)
    judgement = judge(kinds.NO_GRAD, *events(), original=original, reference=reference)
    assert judgement.status == PROVEN, judgement.reasons
    assert "the first loss is unchanged" in judgement.evidence
    for number in (1, 2, 3):
        judgement = judge(kinds.NO_GRAD, *events(number), original=original, reference=reference)
        reason = f"runs, but changes the gradient of backward call {number}"
        assert judgement.reasons == [reason]
    judgement = judge(kinds.NO_GRAD, *events(4), original=original, reference=reference)
    assert judgement.status == PROVEN, judgement.reasons  # rounding errors add up


@pytest.mark.parametrize(
    ("loses", "repair", "status"),
    [
        (True, kinds.NO_GRAD, UNPROVEN),
        (True, kinds.OUT_OF_PLACE, UNPROVEN),
        (True, kinds.CLONE_WRITTEN, OPEN),
        (None, kinds.NO_GRAD, PROVEN),  # either value of a leaf may be meant
    ],
)
def test_a_repair_is_unproven_where_the_reference_lost_a_gradient(loses, repair, status):
    later = backward(2, 1.0), step(0, 2)  # it loses none
    reference = program(backward(1, 2.0, loses_gradient=loses), step(0, 1), *later)
    other_gradient = {"w": sample(9.0, 9.0)}
    events = backward(1, 2.0, gradients=other_gradient), step(0, 1, **other_gradient)
    judgement = judge(repair, *events, original=REFUSED, reference=reference)
    assert judgement.status == status, judgement.reasons
    if status == UNPROVEN:
        assert "an operation that autograd refuses" in judgement.reasons[0]
    asked = Candidate(repair, "an edit", {}, "is it not to be trained?")
    judgement = Judge(REFUSED, reference).judge(asked, program(*events))
    assert (judgement.status, judgement.question) == (OPEN, asked.question)


def test_an_update_of_a_parameter_outside_of_a_forward_pass_needs_no_gradient():
    update = copy.deepcopy(REFUSED)
    update.diagnosis["facts"] = ["updates_a_parameter"]
    for bias in (sample(1.0), sample(0.0)):  # zero before a normalization
        optimizers = [OptimizerInfo("opt", ("w", "bias"))]
        update.optimizers = optimizers
        gradients = {"w": sample(1.0), "bias": bias}
        call = backward(1, 2.0, gradients=gradients, loses_gradient=True)
        reference = program(call, step(0, 1, **gradients), optimizers=optimizers)
        events = backward(1, 2.0, gradients=gradients), step(0, 1, **gradients)
        judgement = judge(kinds.NO_GRAD, *events, original=update, reference=reference)
        assert judgement.status == PROVEN, judgement.reasons


@pytest.mark.parametrize("later_loss", [2.0, 5.0])
def test_a_loss_after_a_removed_leak_is_not_compared(later_loss):
    """The step before it had another gradient, and so the weights of another network differ."""
    leak, alone = {"d": sample(1.0), "g": sample(0.5)}, {"d": sample(1.0)}
    cleared = GradientsCleared(frozenset({1}))
    own = {"g": sample(2.0)}

    def events(gradients, loss):
        first = backward(1, 3.0, "d_loss.backward()", gradients=gradients)
        second = backward(2, loss, "g_loss.backward()", gradients=own)
        g = gradients.get("g")
        taken = own["g"] if g is None else own["g"].plus(g)
        return (
            cleared,
            first,
            step(1, 1, d=alone["d"]),
            step(0, 1, g=taken),
            second,
            step(0, 2, **own),
        )

    reference = program(*events(leak, 2.0), optimizers=TWO_NETWORKS)
    lost = failing(backward(2, 2.0, "g_loss.backward()", gradients=own))
    original = program(*events(leak, 2.0)[:4], lost, status="raised", optimizers=TWO_NETWORKS)
    judgement = judge(
        kinds.OWN_INPUTS, *events(alone, later_loss), original=original, reference=reference
    )
    assert judgement.reasons == []
    assert "the first loss is unchanged" in judgement.evidence


def test_a_run_that_is_stopped_before_its_optimizer_steps_proves_nothing():
    events = backward(1, 3.0), backward(2, 2.0)
    judgement = judge(kinds.OUT_OF_PLACE, *events, status="enough")
    assert judgement.status == UNPROVEN
    assert judgement.reasons == ["no optimizer has stepped after the failing call"]


def test_the_evidence_says_how_far_a_stopped_run_went():
    events = *repaired(), backward(3, 1.0), step(0, 3), backward(4, 1.0), step(0, 4)
    judgement = judge(kinds.OUT_OF_PLACE, *events, status="enough")
    assert "the error is gone: the program ran 2 backward calls further" in judgement.evidence


def test_nothing_is_unchanged_where_the_first_loss_may_change():
    original = program(failing(backward(1, 2.0)), status="raised")
    events = backward(1, 1.0), step(0, 1)
    judgement = judge(kinds.CLEAR, *events, original=original, reference=program(*events))
    assert judgement.status == PROVEN, judgement.reasons
    assert not any("unchanged" in line for line in judgement.evidence)


@pytest.mark.parametrize("used", [(3,), (2, 3)])
def test_a_leak_is_one_of_the_repaired_run_and_only_into_a_step_that_uses_it(used):
    """Clearing the gradients before the second loss keeps the first one out of its step."""
    d_gradients = {"d": sample(1.0), "g": sample(1.0)}
    first = backward(1, 1.0, "g_loss.backward()", gradients={"g": sample(2.0)})
    original = program(failing(first), status="raised", optimizers=TWO_NETWORKS)
    g = {"g": sample(2.0)}
    events = (
        GradientsCleared(frozenset({0})),
        backward(1, 1.0, "g_loss.backward()", gradients=g),
        step(0, 1, **g),
        GradientsCleared(frozenset({1})),
        backward(2, 1.0, "d_loss.backward()", gradients=d_gradients),
        step(1, 2, d=sample(1.0)),
        GradientsCleared(frozenset({0})),
        backward(3, 1.0, "g_loss.backward()", gradients=g),
        step(0, *used, g=sample(3.0 if 2 in used else 2.0)),
    )
    judgement = judge(kinds.CLONE_USED, *events, original=original, reference=None)
    leaks = [reason for reason in judgement.reasons if "leaks into" in reason]
    assert bool(leaks) == (2 in used), judgement.reasons


@pytest.mark.parametrize(
    ("repair", "line"),
    [
        (kinds.CLONE_WRITTEN, "the first loss is unchanged"),
        (kinds.OUT_OF_PLACE, "the first 2 losses are unchanged"),
    ],
)
def test_the_evidence_counts_the_losses_that_cannot_change(repair, line):
    judgement = judge(repair, *repaired())
    assert line in judgement.evidence
    assert "w gets a gradient" in judgement.evidence


def test_a_question_about_one_loss_does_not_hide_the_leak_of_another():
    both = {"d": sample(1.0), "g": sample(0.0, 1.0)}
    lost = failing(backward(1, 3.0, "d_loss.backward()", gradients=both))
    original = program(lost, status="raised", optimizers=TWO_NETWORKS)
    losses = [
        backward(number, 3.0, "d_loss.backward()", gradients=both, upstream=upstream)
        for number, upstream in ((1, frozenset({(0, 1)})), (2, frozenset()))
    ]
    last = backward(3, 1.0, "g_loss.backward()", gradients={"g": sample(2.0, 0.0)})
    steps = step(1, 1, 2, d=sample(2.0)), step(0, 1, 2, 3, g=sample(2.0, 2.0))
    judgement = judge(kinds.CLONE_USED, *losses, last, *steps, original=original, reference=None)
    assert any("the gradient of d_loss leaks" in reason for reason in judgement.reasons)


def test_a_shorter_run_is_no_sum():
    """The program has ended after as many steps: the call that failed is gone."""
    judgement = judge(kinds.OUT_OF_PLACE, backward(1, 3.0), step(0, 1))
    assert judgement.status == PROVEN, judgement.reasons
    assert not any("sum" in line for line in judgement.evidence)


def test_a_gradient_that_no_step_follows_is_not_said_to_be_cleared():
    judgement = judge(kinds.OUT_OF_PLACE, *repaired(), backward(3, 1.0), status="enough")
    assert judgement.status == PROVEN, judgement.reasons


def test_a_gradient_of_rounding_errors_equals_any_other():
    first = {"weight": sample(3.0, 4.0), "bias_before_a_normalization": sample(1e-6)}
    second = {"weight": sample(3.0, 4.0), "bias_before_a_normalization": sample(-2e-6)}
    assert equal_gradients(first, second)
    assert not equal_gradients(first, {**second, "bias_before_a_normalization": sample(1e-4)})
    assert not equal_gradients(first, {"weight": first["weight"]})
    assert not equal_gradients({}, {"w": sample(1e-6)})
