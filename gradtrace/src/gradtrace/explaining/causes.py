"""The table of causes: what can go wrong with a graph, the evidence that decides, and the texts.

An error's text gives its *family* (:data:`PATTERNS`).  Within a family the first of its
:data:`RULES` whose evidence holds names the *cause*.  Evidence has a name and a sentence here; how
it is gathered is the business of :mod:`gradtrace.explaining.diagnose` and
:mod:`gradtrace.explaining.silent`.  The documentation of families, causes and the JSON report is
made from this module, which therefore needs no PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

SCHEMA = 1  # of the JSON report

CERTAIN, LIKELY, UNKNOWN = "certain", "likely", "unknown"
SEEN = "certain if a strict watch saw it, else likely"

FAMILIES = {
    "freed": "Backward reached a part of the graph that an earlier backward had freed.",
    "modified": "A tensor that an operation had saved for backward was changed in place.",
    "no_graph": "Backward was called on a tensor that has no graph behind it.",
    "not_scalar": "Backward was called on several elements without a direction.",
    "leaf_inplace": "A leaf that requires grad was changed in place.",
    "unused_input": "A gradient was asked for a tensor that took no part in the result.",
    "unsupported": "PyTorch cannot differentiate this part of the program in this way.",
    "silent": "Nothing is raised, but a gradient is wrong or a graph grows.",
}

# What the keys of the JSON report mean.
KEYS = {
    "schema": "number of this contract; it grows when a key changes its meaning or goes",
    "torch": "version of PyTorch; null when the program never imported it",
    "family": "one of the families below; null when no error of autograd ended the program",
    "cause": "one of the causes below",
    "confidence": f'"{CERTAIN}", "{LIKELY}" or "{UNKNOWN}"',
    "raised_at": "file and line of the program that raised",
    "began_at": "file and line where it began: the backward that freed, the write, the cut",
    "made_at": "file and line that made what both need",
    "made_through": "the calls of the program that led to that line, innermost first",
    "carried_by": "the variables or attributes that carried it there",
    "error": "type and text of the error that ended the program",
    "explanation": "what went wrong, in a sentence",
    "seen": "what decided, in sentences",
    "fix": "what to do about it",
    "otherwise": "what to try next, where the fix is not known to help and to harm nothing",
    "warnings": "findings of the family silent, each with the keys above",
}


@dataclass(frozen=True)
class Fix:
    """What to do, where the evidence that it ``needs`` holds.

    ``proof`` is the evidence that the change takes what is wrong out of this loss, and cuts no
    trained parameter's only path; None where nothing can tell.  ``otherwise`` is what to try next
    where that does not hold.

    In the texts ``{it}`` stands for the variables that carried it, ``{trained}`` for parameters; or
    for what follows the bar where they are not known: ``{it|the state}``.
    """

    text: str
    needs: tuple[str, ...] = ()
    proof: tuple[str, ...] | None = ()
    otherwise: str | None = None

    def text_for(self, names: Mapping[str, str]) -> str:
        return _filled(self.text, names)

    def otherwise_for(self, names: Mapping[str, str]) -> str | None:
        return None if self.otherwise is None else _filled(self.otherwise, names)


@dataclass(frozen=True)
class Cause:
    """What can go wrong: ``meaning`` says what happened and ``fixes`` what to do.

    Of the fixes the first whose needs are met is for this program; the last needs nothing.
    ``family`` is None for what any family may end in.
    """

    name: str
    family: str | None
    meaning: str
    fixes: tuple[Fix, ...]

    def meaning_for(self, names: Mapping[str, str]) -> str:
        return _filled(self.meaning, names)


def _filled(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)(?:\|(.*?))?\}", lambda open: names.get(open[1], open[2]), text)


@dataclass(frozen=True)
class Rule:
    """A cause, and the evidence that must all hold; ``not name`` is evidence that must not."""

    cause: str
    evidence: tuple[str, ...]
    confidence: str


# Texts differ between versions of PyTorch: these match what they have had in common since 0.4.
# The third is the cause, where the text decides it.
PATTERNS = [
    (r"backward through the graph (a )?second time", "freed", None),
    (r"saved (intermediate|tensors|variables).* freed", "freed", None),
    (r"modified by an inplace operation", "modified", None),
    (r"detached in-place", "modified", None),
    (r"does not require grad and does not have a grad_fn", "no_graph", None),
    (r"[Ii]nference tensors? cannot be saved for backward", "no_graph", "no_grad_region"),
    (r"implicitly created only for scalar", "not_scalar", "not_scalar"),
    (r"leaf Variable that requires grad", "leaf_inplace", "leaf_inplace"),
    (r"not have been used in the graph", "unused_input", None),
    (r"One of the differentiated Tensors does not require grad", "unused_input", None),
    (r"marked with @once_differentiable", "unsupported", "once_differentiable"),
    (r"derivative for .* is not implemented", "unsupported", "double_backward_unsupported"),
    (r"[Dd]ouble backwards? is not supported", "unsupported", "double_backward_unsupported"),
    (r"not currently support double backward", "unsupported", "double_backward_compiled"),
    (r"cudnn RNN backward can only be called in train", "unsupported", "cudnn_rnn_eval"),
    (
        r"checkpoint(ing)? is (incompatible|not compatible) with",
        "unsupported",
        "checkpoint_reentrant",
    ),
    (r"finished reduction in the prior iteration", "unsupported", "ddp_unused_parameter"),
    (r"mark a variable ready only once", "unsupported", "ddp_ready_twice"),
    (r"is a view and .*modified in-?place", "unsupported", "view_changed_inplace"),
    (r"donated buffer", "unsupported", "donated_buffers"),
    (r"support saved tensor hooks", "unsupported", "saved_tensor_hooks"),
    (r"Backward returned an (incorrect number of|invalid) gradient", "unsupported",
     "function_backward_failed"),
    (r"returned nan values in its \d+th output", "unsupported", "nan_in_backward"),
]  # fmt: skip


def family_of(message: str) -> tuple[str | None, str | None]:
    """Family of an error's text, and its cause where the text decides it.

    >>> family_of("Trying to backward through the graph a second time")
    ('freed', None)
    """
    for pattern, family, cause in PATTERNS:
        if re.search(pattern, message):
            return family, cause
    return None, None


# What each evidence says where it holds, and where it does not.
EVIDENCE = {
    "loss_was_run": (
        "the loss itself has been through a backward: nothing in it is new",
        "something in this loss is new",
    ),
    "repeated": (
        "the line that raised has called backward before, after the freed part was made",
        "the line that raised has not called backward since the freed part was made",
    ),
    "goes_round": (
        "the lines that use the freed part have used it before, in a loss that was run",
        "the lines that use the freed part had not used it before",
    ),
    "made_before_the_loop": (
        "the freed part was made before the loop that raised, or only once",
        "the freed part was made in the loop that raised",
    ),
    "built_after": (
        "some of the loss was made after that backward",
        "all of the loss had been made when that backward ran",
    ),
    "same_operations": (
        "what is new are operations that the freed graph had, too",
        "what is new are other operations than the freed graph had",
    ),
    "other_parameters": (
        "this loss reaches other parameters than the one before",
        "this loss reaches the parameters that the one before did",
    ),
    "trains": (
        "what is new reaches parameters of its own",
        "what is new reaches no parameters of its own",
    ),
    "made_again": (
        "the line that made the freed part has made its like again since",
        "the freed part was not made again since",
    ),
    "passed_on": (
        "the loss reaches the freed part through its own successor",
        "the loss reaches the freed part directly",
    ),
    "in_a_dataset": ("a dataset or a data loader holds it", "no dataset holds it"),
    "in_a_buffer": ("a buffer of a module holds it", "no buffer holds it"),
    "written_in_place": (
        "it was written into a part of a tensor, or through a view",
        "nothing was written through a view",
    ),
    "a_loss_is_added": (
        "what was freed is a loss, which was added to this one",
        "what was freed is not a loss that was added",
    ),
    "in_a_container": ("a list, tuple, dict, set or deque holds it", "no container holds it"),
    "held_by_a_name_too": (
        "a variable holds its newest entry, too",
        "nothing else holds its newest entries",
    ),
    "refilled": (
        "that container holds newer tensors, too",
        "that container holds no newer tensors",
    ),
    "in_a_cache": (
        "a dict holds it, and beside it what was made since",
        "no dict holds it beside what was made since",
    ),
    "constant": (
        "a variable holds it that is not assigned again",
        "no variable holds it that stays as it is",
    ),
    "looped_over": (
        "the loop that raised runs over that container",
        "the loop that raised does not run over it",
    ),
    "carried_over": (
        "the changed tensor belongs to an iteration whose graph was retained, and this loss"
        " reaches it through its own successor",
        "the changed tensor belongs to this iteration",
    ),
    "freed_by_a_gradient": (
        "a gradient to some inputs (torch.autograd.grad, or inputs=) freed it",
        "a whole backward freed it",
    ),
    "trained_there": (
        "parameters that are trained lie behind it",
        "nothing that is trained lies behind it",
    ),
    "trained_only_there": (
        "this loss reaches parameters that are trained through the freed part only",
        "every trained parameter is reached without the freed part, too",
    ),
    "trained_through_the_container": (
        "this loss reaches parameters that are trained through that container only",
        "every trained parameter is reached without that container, too",
    ),
    "every_entry_is_named": (
        "what is named is all that leads into the freed part",
        "something else leads into the freed part, too",
    ),
    "optimizers_are_known": (
        "an optimizer trains some of what is reached",
        "no optimizer trains any of what is reached",
    ),
    "several_optimizers": (
        "several optimizers train what these losses reach",
        "no two optimizers train what these losses reach",
    ),
    "one_optimizer": (
        "one optimizer trains all that is reached",
        "no one optimizer trains all that is reached",
    ),
    "others_are_trained": (
        "other leaves of this loss were changed, by hand",
        "no leaf of this loss was changed by hand",
    ),
    "weights_changed": (
        "the weights were changed between the two backwards",
        "no change of the weights between the two backwards was seen",
    ),
    "only_others_stepped": (
        "an optimizer that does not train the shared part stepped between the two backwards",
        "the optimizer of the shared part stepped between, or none",
    ),
    "its_own_stepped": (
        "the optimizer of the shared part stepped between the two backwards, and another trains"
        " what is new",
        "the optimizer of the shared part did not step between the two backwards",
    ),
    "partly_new": (
        "a part of this loss was computed before the change, the rest after it",
        "all of this loss was computed before the change",
    ),
    "optimizer_wrote": ("an optimizer made the change", "no optimizer made the change"),
    "keeps_what_is_written": (
        "what was written has a graph, and goes on into the next iteration",
        "what was written does not go on into the next iteration",
    ),
    "by_a_layer": (
        "code of PyTorch made the change, as inplace=True or max_norm asks it to",
        "a line of the program made the change",
    ),
    "through_a_view": (
        "the change was made through a view of it",
        "the change was not made through a view",
    ),
    "differentiable_step": (
        "the gradient of that step was computed with create_graph=True",
        "the gradient of that step was computed without create_graph=True",
    ),
    "owned_twice": (
        "two optimizers hold what was changed",
        "no two optimizers hold what was changed",
    ),
    "written_once": ("it was changed once", "it was changed several times, or that was not seen"),
    "a_buffer": ("what was changed is a buffer of a module", "no buffer was changed"),
    "a_leaf": ("what was changed is a parameter or another leaf", "no leaf was changed"),
    "backward_between": (
        "a backward lies between the operation and the change",
        "no backward lies between the operation and the change",
    ),
    "cut_by_detach": ("it was cut by detach() or .data", "it was not cut by detach() or .data"),
    "cut_by_copy": (
        "numbers left PyTorch and came back as a new tensor",
        "no numbers left PyTorch and came back",
    ),
    "cut_by_region": (
        "an operation ran in torch.no_grad() or torch.inference_mode()",
        "no operation ran in torch.no_grad()",
    ),
    "cut_by_update": (
        "a parameter was updated by a new tensor, in torch.no_grad()",
        "no parameter was updated by a new tensor",
    ),
    "cut_by_first_order": (
        "a gradient was computed without create_graph=True",
        "no gradient was computed without create_graph=True",
    ),
    "cut_by_operation": ("an operation has no derivative", "every operation has a derivative"),
    "cut_by_function": (
        "a gradient was asked through a custom function whose backward leaves no graph",
        "no custom function was in the way",
    ),
    "cut_by_checkpoint": (
        "a reentrant checkpoint ran it without gradients",
        "no reentrant checkpoint was in the way",
    ),
    "cut_by_freezing": (
        "it was computed from parameters that were switched off",
        "no parameter was switched off",
    ),
    "all_frozen": (
        "no parameter that the variables reach requires grad",
        "a parameter requires grad",
    ),
    "gradients_are_off": (
        "gradients are switched off where backward was called",
        "gradients are on where backward was called",
    ),
    "asked_of_what_is_off": (
        "a tensor that the gradient was asked for does not require grad",
        "every tensor that the gradient was asked for requires grad",
    ),
    "ran_before": (
        "an earlier backward has run through it",
        "no earlier backward has run through it",
    ),
    "asks_for_a_graph": (
        "this backward has create_graph=True",
        "this backward has no create_graph=True",
    ),
    "creates_graph": (
        "each backward has create_graph=True, and what it adds to .grad has a graph",
        "no backward creates a graph",
    ),
    "strict_watch": ("every operation was seen", "only backwards and steps were seen"),
    "on_ctx": (
        "the changed tensor is an attribute of a custom function's ctx",
        "the changed tensor is saved as it should be",
    ),
}


def told(evidence: str) -> str:
    """What evidence of this name says; ``not name``: what it says where it does not hold."""
    name = evidence.removeprefix("not ")
    holds, does_not = EVIDENCE[name]
    return holds if name == evidence else does_not


# For each family, in this order: the first rule whose evidence holds.
RULES = {
    "freed": (
        Rule("forward_not_rerun", ("loss_was_run", "not repeated"), CERTAIN),
        Rule("computed_once_outside_loop", ("loss_was_run", "made_before_the_loop"), SEEN),
        Rule("forward_not_rerun", ("loss_was_run",), SEEN),
        Rule("shared_subgraph", ("not built_after",), CERTAIN),
        Rule("buffer_has_graph", ("in_a_buffer",), SEEN),
        Rule("loss_accumulated", ("a_loss_is_added",), SEEN),
        Rule("replay_keeps_graph", ("in_a_cache", "not passed_on"), SEEN),
        Rule("hidden_state_carried", ("passed_on",), SEEN),
        Rule("replay_keeps_graph", ("in_a_container", "made_again"), SEEN),
        Rule("replay_keeps_graph", ("in_a_container", "refilled"), SEEN),
        Rule("computed_once_outside_loop", ("constant", "made_again", "repeated"), SEEN),
        Rule("hidden_state_carried", ("made_again", "repeated"), LIKELY),
        Rule("dataset_tensor_has_graph", ("in_a_dataset",), SEEN),
        Rule("shared_subgraph", ("looped_over", "not trains", "not weights_changed"), LIKELY),
        Rule("dataset_tensor_has_graph", ("looped_over",), LIKELY),
        Rule("shared_subgraph", ("goes_round", "other_parameters", "not weights_changed"), SEEN),
        Rule("forward_not_rerun", ("goes_round", "not trains", "not made_before_the_loop"), LIKELY),
        Rule("computed_once_outside_loop", ("goes_round",), SEEN),
        Rule("forward_not_rerun", ("not trains", "weights_changed"), LIKELY),
        Rule("forward_not_rerun", ("not trains", "same_operations"), LIKELY),
        Rule("shared_subgraph", (), SEEN),
    ),
    "modified": (
        Rule("optimizer_step_between_backwards", ("optimizer_wrote",), SEEN),
        Rule("inplace_on_buffer", ("a_buffer",), CERTAIN),
        Rule("optimizer_step_between_backwards", ("a_leaf", "backward_between"), LIKELY),
        Rule("inplace_on_parameter_in_forward", ("a_leaf",), LIKELY),
        Rule("inplace_on_saved", (), SEEN),
    ),
    "no_graph": (
        Rule("create_graph_missing", ("cut_by_first_order",), CERTAIN),
        Rule("once_differentiable", ("cut_by_function",), CERTAIN),
        Rule("checkpoint_reentrant", ("cut_by_checkpoint",), CERTAIN),
        Rule("frozen_parameters", ("cut_by_freezing",), CERTAIN),
        Rule("no_grad_region", ("cut_by_update",), CERTAIN),
        Rule("no_grad_region", ("cut_by_region",), CERTAIN),
        Rule("not_differentiable_op", ("cut_by_operation",), CERTAIN),
        Rule("detach_wrong_place", ("cut_by_copy",), SEEN),
        Rule("detach_wrong_place", ("cut_by_detach",), SEEN),
        Rule("no_grad_region", ("gradients_are_off",), LIKELY),
        Rule("frozen_parameters", ("all_frozen",), LIKELY),
    ),
    "unused_input": (
        Rule("input_off", ("asked_of_what_is_off",), CERTAIN),
        Rule("unused_input", (), CERTAIN),
    ),
    "function": (
        Rule("function_backward_twice", ("ran_before",), LIKELY),
        Rule("function_backward_failed", (), CERTAIN),
    ),
    "silent": (
        Rule("custom_function_ctx", ("on_ctx",), LIKELY),
        Rule("optimizer_step_between_backwards_silent", ("optimizer_wrote",), LIKELY),
        Rule("data_edit_silent", (), LIKELY),
    ),
}

_TABLE = (
    # freed
    Cause(
        "hidden_state_carried",
        "freed",
        "a state from the last iteration is still part of this loss, and that part of the graph"
        " was freed by the backward of the last iteration",
        (
            Fix(
                "reset {it|the state} in each iteration, to what it was before the first: this"
                " loss reaches {trained|some parameters} through the freed part only",
                needs=("trained_only_there",),
                proof=None,
                otherwise="where the state is to go on, detach it at the end of each iteration,"
                " {detached|detach what goes on into the next one}; the first"
                " iteration alone then trains {trained|what it began with}",
            ),
            Fix(
                "at the end of each iteration: {detached|detach what goes on into the next"
                " one}, if it is a state",
                needs=("in_a_cache",),
                proof=None,
                otherwise="empty {it|it} after each step of the optimizer, if it is a cache of"
                " what is computed from parameters: detached they would get no"
                " gradient through it",
            ),
            Fix(
                "at the end of each iteration: {detached|detach what goes on into the next one}"
                " (or reset it, where each iteration starts afresh)",
                proof=("every_entry_is_named",),
                otherwise="detach all that goes from one iteration into the next",
            ),
        ),
    ),
    Cause(
        "computed_once_outside_loop",
        "freed",
        "something that needs gradients was computed once and is used in every iteration; the"
        " first backward freed its graph",
        (
            Fix(
                "detach {it|it} where this loss reads it: the optimizer that steps in this loop"
                " does not train what is behind it",
                needs=("only_others_stepped",),
                proof=None,
                otherwise="compute {it|it} anew in each iteration, before it is used, if this"
                " loss is to train through it, too",
            ),
            Fix(
                "compute {it|it} anew in each iteration, before it is used (to detach it would"
                " end the training of {trained|the parameters behind it})",
                needs=("optimizers_are_known", "trained_only_there"),
                proof=("every_entry_is_named",),
                otherwise="detach {it|it}, once, if what it was computed from is not to be trained",
            ),
            Fix(
                "detach {it|it}, once, where it is made, if it is to enter as numbers (old"
                " log-probabilities, an advantage, a target)",
                needs=("optimizers_are_known", "trained_there"),
                proof=None,
                otherwise="compute {it|it} anew in each iteration, before it is used, if this"
                " loss is to train through it, too",
            ),
            Fix(
                "detach {it|it}, once, where it is made: no optimizer trains what it was"
                " computed from",
                needs=("optimizers_are_known",),
                proof=("every_entry_is_named",),
                otherwise="compute {it|it} anew in each iteration",
            ),
            Fix(
                "detach {it|it}, once, where it is made: what it was computed from was never"
                " changed, other leaves were",
                needs=("not trained_there", "others_are_trained"),
                proof=None,
                otherwise="compute {it|it} anew in each iteration, if it is to be trained",
            ),
            Fix(
                "compute {it|it} anew in each iteration, before it is used",
                proof=None,
                otherwise="detach {it|it}, once, if what it was computed from is not to be trained",
            ),
        ),
    ),
    Cause(
        "forward_not_rerun",
        "freed",
        "the forward pass was not run again: this loss has already been through backward",
        (
            Fix(
                "run the forward pass again before each backward (in a closure: inside it)",
                needs=("weights_changed",),
            ),
            Fix(
                "run the forward pass again before each backward; or leave the second backward"
                " out, where nothing has changed since the first",
            ),
        ),
    ),
    Cause(
        "shared_subgraph",
        "freed",
        "two losses share a part of the graph, and the first backward freed it",
        (
            Fix(
                "give that first call retain_graph=True, since this loss needs the graph, too;"
                " or create_graph=True, if this loss is made of the gradient that it computed",
                needs=("freed_by_a_gradient",),
                proof=None,
            ),
            Fix(
                "detach {it|the shared part}, once, where it is made: no optimizer trains what"
                " is behind it",
                needs=("optimizers_are_known", "not trained_there"),
            ),
            Fix(
                "detach {it|the shared part} where the loss of the first backward reads it: the"
                " optimizer that stepped after that does not train what is behind it",
                needs=("only_others_stepped",),
                proof=None,
                otherwise="add the losses and call backward once, if both are to train it",
            ),
            Fix(
                "detach {it|the shared part} where the loss of the second backward reads it:"
                " its optimizer has stepped after the first",
                needs=("its_own_stepped",),
                proof=None,
                otherwise="if the second loss is to train it, too, compute it anew after the step",
            ),
            Fix(
                "compute {it|the shared part} anew for the second loss, after the weights have"
                " changed",
                needs=("weights_changed",),
                proof=None,
                otherwise="add the losses, call backward once, and change the weights after it",
            ),
            Fix(
                "let each loss train its own network only:"
                " loss.backward(inputs=list(own.parameters())), the first with"
                " retain_graph=True, too",
                needs=("several_optimizers",),
                proof=None,
                otherwise="if both losses are to train all that they reach, add them and call"
                " backward once",
            ),
            Fix(
                "add the losses and call backward once: (first + second).backward()",
                needs=("one_optimizer",),
            ),
            Fix(
                "if both losses are to train all that they reach, add them and call backward once",
                proof=None,
                otherwise="if only one of them is to train {it|the shared part}, detach it"
                " where the other reads it",
            ),
        ),
    ),
    Cause(
        "loss_accumulated",
        "freed",
        "this loss contains a loss of an earlier iteration, which has been through backward",
        (
            Fix(
                "call backward on the loss of this iteration alone, and keep the total as a"
                " number: total += loss.item()",
            ),
        ),
    ),
    Cause(
        "replay_keeps_graph",
        "freed",
        "a stored tensor still has the graph of the iteration that made it, which was freed",
        (
            Fix(
                "empty {it|the cache} after each step of the optimizer, so that what it holds"
                " is computed anew: parameters that are trained lie behind it, and detached"
                " they would get no gradient through it",
                needs=("in_a_cache", "trained_there"),
                proof=("every_entry_is_named", "optimizers_are_known"),
                otherwise="detach what is put into {it|the cache}, if it is to enter as numbers",
            ),
            Fix(
                "empty {it|the container} at the end of each iteration, if each update is to"
                " start with an empty one, as with the log-probabilities of an episode",
                needs=("trained_through_the_container", "not held_by_a_name_too"),
                proof=None,
                otherwise="detach all that it holds at the end of each iteration, if the old"
                " entries are to stay as numbers",
            ),
            Fix(
                "at the end of each iteration, detach all that {it|the container}"
                " holds{as_code|}, if the old entries are to stay as numbers; detached before,"
                " they would train nothing",
                needs=("trained_through_the_container",),
                proof=None,
                otherwise="empty it, if each update is to start with an empty one",
            ),
            Fix(
                "detach what is put into {it|the container}: x.detach()",
                proof=("every_entry_is_named",),
                otherwise="detach all that it holds at the end of each iteration",
            ),
        ),
    ),
    Cause(
        "dataset_tensor_has_graph",
        "freed",
        "the dataset holds tensors with a graph; the first batch's backward freed it",
        (
            Fix(
                "compute {it|the tensors} inside the loop (to detach them would end the"
                " training of {trained|the parameters behind them})",
                needs=("trained_only_there",),
                proof=None,
                otherwise="detach {it|them} before the dataset gets them, if they are not to be",
            ),
            Fix(
                "detach {it|the tensors} before the dataset gets them",
                needs=("not trained_there",),
                proof=("optimizers_are_known", "every_entry_is_named"),
                otherwise="compute them inside the loop, if they are to be trained",
            ),
            Fix(
                "detach {it|the tensors} before the dataset gets them, or compute them inside"
                " the loop",
                proof=None,
            ),
        ),
    ),
    Cause(
        "buffer_has_graph",
        "freed",
        "a module's buffer holds a tensor with a graph, which an earlier backward freed",
        (
            Fix(
                "work on a copy: take {it|the buffer}.clone() in the forward pass and write"
                " into that, so that the buffer itself keeps no graph",
                needs=("written_in_place",),
                proof=None,
                otherwise="if the buffer is to keep what is written, detach {it|it} after each"
                " backward",
            ),
            Fix(
                "compute {it|the buffer} anew in each forward pass: parameters are trained"
                " through it only",
                needs=("not made_again", "trained_only_there"),
                proof=None,
            ),
            Fix(
                "at the end of each iteration: {detached|self.buffer = self.buffer.detach()};"
                " or detach what is written into it",
                proof=("every_entry_is_named",),
            ),
        ),
    ),
    # modified
    Cause(
        "optimizer_step_between_backwards",
        "modified",
        "the optimizer changed weights in place after this loss was computed with the old ones,"
        " and its backward needs the old ones",
        (
            Fix(
                "leave retain_graph=True out, and at the end of each iteration: {detached|h ="
                " h.detach()}",
                needs=("carried_over", "not trained_only_there"),
                proof=("every_entry_is_named",),
                otherwise="detach all that goes from one iteration into the next",
            ),
            Fix(
                "reset {it|the state} in each iteration, and leave retain_graph=True out",
                needs=("carried_over",),
                proof=None,
                otherwise="where the state is to go on, detach {it|it} at the end of each"
                " iteration",
            ),
            Fix(
                "take the step as a new tensor, fast = w - lr * gradient, with gradient from"
                " torch.autograd.grad(loss, w, create_graph=True), and compute this loss with fast"
                " (torch.func.functional_call); an optimizer's step writes over the weights, and"
                " has no derivative",
                needs=("differentiable_step",),
                proof=None,
                otherwise="leave create_graph=True out, and compute this loss anew after the step,"
                " if nothing is to be differentiated through the step",
            ),
            Fix(
                "compute {it|the older part} anew after each step: it was computed with the old"
                " weights",
                needs=("partly_new", "one_optimizer"),
                proof=None,
                otherwise="detach {it|it}, where it is made, if it is to enter as numbers",
            ),
            Fix(
                "compute this loss anew after the step, by a new forward pass",
                needs=("owned_twice",),
                proof=None,
                otherwise="let one optimizer hold all that both losses train, add the losses, and"
                " call backward and step once",
            ),
            Fix(
                "compute this loss anew after the step, by a new forward pass",
                needs=("one_optimizer",),
                proof=None,
                otherwise="call all backwards before the step",
            ),
            Fix(
                "compute this loss anew after the step, by a new forward pass; or let each"
                " backward reach its own parameters only,"
                " loss.backward(inputs=list(own.parameters())), all but the last with"
                " retain_graph=True, and step after all of them; only if this loss is to train"
                " the stepped network, too, call all backwards before all steps without inputs=",
            ),
        ),
    ),
    Cause(
        "inplace_on_saved",
        "modified",
        "a tensor that an operation had saved for backward was changed in place",
        (
            Fix(
                "give the layer that changes {it|it} inplace=False",
                needs=("by_a_layer",),
                proof=None,
                otherwise="hand that layer a clone of {it|it}",
            ),
            Fix(
                "write into {it|it} after the backward, and without a graph: value.detach()",
                needs=("keeps_what_is_written",),
                proof=None,
                otherwise="make a new tensor instead of writing into {it|it}, and detach it"
                " after each backward",
            ),
            Fix(
                "put a new tensor together from the changed and the unchanged parts (torch.cat,"
                " torch.stack, torch.where), instead of writing through a view of {it|it}",
                needs=("through_a_view",),
                proof=None,
                otherwise="write into a clone of {it|it}, and let all that is computed before the"
                " change have the original",
            ),
            Fix(
                "do not write into {it|it} after its use: take an out-of-place operation, or"
                " write into a clone",
                proof=("written_once",),
                otherwise="let the operation that needs the old values have a clone of them",
            ),
        ),
    ),
    Cause(
        "inplace_on_buffer",
        "modified",
        "a module's buffer that an operation had saved was changed in place",
        (
            Fix(
                "compute with a clone of {it|the buffer}, or update the buffer after backward",
            ),
        ),
    ),
    Cause(
        "inplace_on_parameter_in_forward",
        "modified",
        "the forward pass itself changed a parameter in place after it had been used",
        (
            Fix(
                "let the earlier use have a clone of {it|the parameter}: the layer changes it"
                " each time that it runs, as max_norm asks it to",
                needs=("by_a_layer",),
            ),
            Fix(
                "change {it|the parameter} before it is used, or let the earlier use have a clone",
            ),
        ),
    ),
    # no_graph
    Cause(
        "create_graph_missing",
        "no_graph",
        "a gradient is used as if it could be differentiated, but it was computed without"
        " create_graph=True, so no graph is behind it",
        (
            Fix(
                "compute it with torch.autograd.grad(..., create_graph=True)",
            ),
        ),
    ),
    Cause(
        "detach_wrong_place",
        "no_graph",
        "the graph was cut on the way to this loss",
        (
            Fix(
                "compute it with PyTorch all the way: put tensors together with torch.stack or"
                " torch.cat; torch.tensor, .item(), .tolist() and numpy copy numbers, not their"
                " graph",
                needs=("cut_by_copy",),
                proof=None,
                otherwise="if the value is to have no gradient, compute the loss from something"
                " that has one",
            ),
            Fix(
                "take the detach() or .data out where the value leads to the loss; detach only"
                " what is to be a constant in it",
                proof=None,
                otherwise="where the value itself is to be a constant, something else in this"
                " loss must reach the parameters",
            ),
        ),
    ),
    Cause(
        "no_grad_region",
        "no_graph",
        "the forward pass ran where gradients are switched off",
        (
            Fix(
                "update the parameter in place, under torch.no_grad(): w -= lr * w.grad, not w"
                " = w - lr * w.grad, which makes a tensor that does not require grad",
                needs=("cut_by_update",),
            ),
            Fix(
                "run the forward pass outside torch.no_grad(), or under torch.enable_grad()",
                needs=("cut_by_region",),
            ),
            Fix(
                "run the forward pass, and backward, outside torch.no_grad() and"
                " torch.inference_mode()",
            ),
        ),
    ),
    Cause(
        "frozen_parameters",
        "no_graph",
        "what this was computed from does not require grad: its parameters were switched off",
        (
            Fix(
                "switch on what this loss is to train, requires_grad_(True), before the forward"
                " pass",
            ),
        ),
    ),
    Cause(
        "not_differentiable_op",
        "no_graph",
        "an operation without a derivative lies between the parameters and the loss",
        (
            Fix(
                "compute the loss from the value before that operation, which has a gradient"
                " (for a cross entropy the logits, before softmax and argmax, with whole"
                " numbers as labels; of a distribution rsample(), not sample())",
                proof=None,
                otherwise="replace the operation by one that has a derivative, where the loss"
                " needs its result",
            ),
        ),
    ),
    # unsupported
    Cause(
        "double_backward_unsupported",
        "unsupported",
        "an operation in this graph has no second derivative in PyTorch",
        (
            Fix(
                "use an operation that has one (for cuDNN RNNs:"
                " torch.backends.cudnn.flags(enabled=False) around the forward pass)",
            ),
        ),
    ),
    Cause(
        "double_backward_compiled",
        "unsupported",
        "the backward of what torch.compile compiled cannot be differentiated again",
        (
            Fix(
                "where the gradient is part of the loss, call the model that torch.compile was"
                " given, not what it returned; or keep the part that is differentiated twice out"
                " of it: torch.compiler.disable(part)",
            ),
        ),
    ),
    Cause(
        "checkpoint_reentrant",
        "unsupported",
        "reentrant checkpointing runs its forward pass without gradients: it needs an input"
        " that requires grad, and supports loss.backward() only, not autograd.grad or inputs=",
        (
            Fix(
                "checkpoint(..., use_reentrant=False)",
            ),
        ),
    ),
    Cause(
        "cudnn_rnn_eval",
        "unsupported",
        "the RNN's forward pass ran in eval mode, in which cuDNN keeps nothing for backward",
        (
            Fix(
                "run the forward pass in train() mode, or with"
                " torch.backends.cudnn.flags(enabled=False)",
            ),
        ),
    ),
    Cause(
        "ddp_unused_parameter",
        "unsupported",
        "a parameter took no part in the loss, and DistributedDataParallel waits for its gradient",
        (
            Fix(
                "use every output in the loss, or pass find_unused_parameters=True",
            ),
        ),
    ),
    Cause(
        "ddp_ready_twice",
        "unsupported",
        "DistributedDataParallel averages the gradient of each parameter once for each forward"
        " pass, and a second backward brought one anew",
        (
            Fix(
                "add the losses and call backward once for each forward pass",
                proof=None,
                otherwise="checkpoint(..., use_reentrant=False), where a checkpoint runs: the"
                " reentrant kind calls backward inside backward",
            ),
        ),
    ),
    Cause(
        "once_differentiable",
        "unsupported",
        "the backward of {it|a custom function} leaves no graph, so what it computes cannot be"
        " differentiated again",
        (
            Fix(
                "write its backward with operations that have a derivative: without detach(),"
                " .data or no_grad(), with create_graph=True in a gradient that it computes,"
                " and without the mark @once_differentiable",
                proof=None,
                otherwise="use an ordinary function in its place where second derivatives are"
                " needed",
            ),
        ),
    ),
    Cause(
        "view_changed_inplace",
        "unsupported",
        "a view that must not be written to (of unbind, split or chunk, or what a custom"
        " function returned as it came) was changed in place",
        (
            Fix(
                "make a new tensor instead: x = x * s in place of x *= s; or write into a clone",
            ),
        ),
    ),
    Cause(
        "donated_buffers",
        "unsupported",
        "what torch.compile compiled gives its saved tensors away in the first backward, so"
        " this graph cannot be kept",
        (
            Fix(
                "where the gradient is part of the loss, call the model that torch.compile was"
                " given, not what it returned: what is compiled has no second derivative",
                needs=("asks_for_a_graph",),
                proof=None,
            ),
            Fix(
                "add the losses and call backward once, without retain_graph=True",
                proof=None,
                otherwise="compile with torch._functorch.config.donated_buffer = False, which"
                " keeps them",
            ),
        ),
    ),
    Cause(
        "saved_tensor_hooks",
        "unsupported",
        "saved-tensor hooks (a checkpoint without reentry sets some) do not work inside the"
        " transforms of torch.func",
        (
            Fix(
                "call the function without the checkpoint under torch.func; or compute this by"
                " torch.autograd.functional, or torch.autograd.grad",
            ),
        ),
    ),
    Cause(
        "nan_in_backward",
        "unsupported",
        "anomaly mode found the first gradient that is not a number",
        (
            Fix(
                "look at the forward call that the warning above this error shows: a division"
                " by zero, sqrt, log, norm or atan2 at zero; keep its input away from there",
                proof=None,
            ),
        ),
    ),
    Cause(
        "function_backward_twice",
        "unsupported",
        "the backward of {it|a custom function} raised this when it ran for the second time: it"
        " has dropped what it needs",
        (
            Fix(
                "keep what backward needs by ctx.save_for_backward, and delete nothing from ctx"
                " in backward",
                proof=None,
                otherwise="run backward through it once only: add the losses",
            ),
        ),
    ),
    Cause(
        "function_backward_failed",
        "unsupported",
        "the backward of {it|a custom function} raised this itself",
        (
            Fix(
                "mend that backward: it gets one gradient for each output of forward, and"
                " returns one for each input, or None",
                proof=None,
            ),
        ),
    ),
    # not_scalar
    Cause(
        "not_scalar",
        "not_scalar",
        "backward was called on a tensor of more than one element without saying in which"
        " direction",
        (
            Fix(
                "reduce it first (.sum() or .mean()), or pass gradient=",
            ),
        ),
    ),
    # leaf_inplace
    Cause(
        "leaf_inplace",
        "leaf_inplace",
        "a leaf that requires grad was changed in place while gradients were recorded",
        (
            Fix(
                "change it under torch.no_grad(); where the loss is to see the change, make a"
                " new tensor of it instead",
            ),
        ),
    ),
    # unused_input
    Cause(
        "unused_input",
        "unused_input",
        "a gradient was asked for something that the output was not computed from: {it|an input}",
        (
            Fix(
                "use {it|that tensor} itself in the computation, not a copy that was detached"
                " or made anew; or pass allow_unused=True, where it may take no part",
                proof=None,
            ),
        ),
    ),
    Cause(
        "input_off",
        "unused_input",
        "a gradient was asked for something that does not require grad: {it|an input}",
        (
            Fix(
                "ask only for the gradients of what requires grad: [p for p in parameters if"
                " p.requires_grad]",
                needs=("cut_by_freezing",),
            ),
            Fix(
                "switch it on before the forward pass, requires_grad_(True), or leave it out of"
                " the inputs",
                proof=None,
            ),
        ),
    ),
    # silent
    Cause(
        "optimizer_step_between_backwards_silent",
        "silent",
        "an optimizer changed saved weights without PyTorch noticing (fused optimizers do not"
        " bump the version), so this backward mixes old activations with new weights",
        (
            Fix(
                "compute this loss anew after the step, by a new forward pass; or let each"
                " backward reach its own parameters only,"
                " loss.backward(inputs=list(own.parameters())), and step after all of them;"
                " torch.autograd.graph.increment_version(parameter), for each parameter after"
                " the step, brings the error back",
            ),
        ),
    ),
    Cause(
        "checkpoint_recomputes_anew",
        "silent",
        "a checkpoint runs its forward pass again in backward, and weights were changed since the"
        " first time: it computes with the new ones, and no check notices",
        (
            Fix(
                "compute this loss anew after the step, by a new forward pass; or call this"
                " backward before the step",
                proof=None,
            ),
        ),
    ),
    Cause(
        "data_edit_silent",
        "silent",
        "a tensor saved for backward was changed past autograd (.data, numpy or dlpack), so the"
        " gradient is silently wrong",
        (
            Fix(
                "compute this loss anew after the change, by a new forward pass; or call this"
                " backward before it",
                needs=("a_leaf",),
                proof=None,
            ),
            Fix(
                "edit a clone, or use .detach() instead of .data, which brings the error back",
            ),
        ),
    ),
    Cause(
        "graph_grows",
        "silent",
        "a graph is kept alive and grows with each iteration",
        (
            Fix(
                "set .grad to None in each iteration, as optimizer.zero_grad() does; or take"
                " torch.autograd.grad(loss, parameters, create_graph=True), which leaves .grad"
                " alone",
                needs=("creates_graph",),
            ),
            Fix(
                "keep numbers instead of tensors (.item()), or detach what is carried over",
            ),
        ),
    ),
    Cause(
        "custom_function_ctx",
        "silent",
        "a custom function keeps a tensor as an attribute of ctx; it was changed in place"
        " since, and no check notices",
        (
            Fix(
                "use ctx.save_for_backward for tensors",
            ),
        ),
    ),
    Cause(
        "never_trained",
        "silent",
        "an optimizer holds {it|parameters} that never got a gradient: the graph is cut between"
        " them and the loss",
        (
            Fix(
                "take the cut out; or, if they are not to be trained, take them out of the"
                " optimizer",
                proof=None,
            ),
        ),
    ),
    Cause(
        "optimizer_holds_replaced",
        "silent",
        "an optimizer holds parameters that never got a gradient, and that no variable reaches"
        " any more: they were replaced after it was made",
        (
            Fix(
                "make the optimizer after the model is complete",
                proof=None,
            ),
        ),
    ),
    Cause(
        "gradient_changed_in_backward",
        "silent",
        "the backward of {it|a custom function} changes the gradient that it is given in place;"
        " other parts of the graph may still need it",
        (
            Fix(
                "compute with a new tensor there: grad_output * x in place of grad_output.mul_(x)",
                proof=None,
            ),
        ),
    ),
    Cause(
        "step_inside_backward",
        "silent",
        "an optimizer made a step while backward ran (in a hook), without PyTorch noticing (fused"
        " optimizers do not bump the version), and a part of backward that was still to run needs"
        " what it changed",
        (
            Fix(
                "make the step after backward has ended",
                proof=None,
            ),
        ),
    ),
    Cause(
        "ddp_not_averaged",
        "silent",
        "DistributedDataParallel averages gradients once for each forward pass; this backward runs"
        " again over one whose graph was kept, and leaves its gradient as it is in each process",
        (
            Fix(
                "add the losses and call backward once",
                proof=None,
                otherwise="run the forward pass again for the second loss",
            ),
        ),
    ),
    Cause(
        "gradient_still_scaled",
        "silent",
        "a gradient of a scaled loss is a part of this loss, and is still scaled",
        (
            Fix(
                "unscale the gradient before it enters the loss: divide it by scaler.get_scale()",
                proof=None,
            ),
        ),
    ),
    Cause(
        "intermediate_saved",
        "silent",
        "{it|a custom function} saves for backward what it computed in forward, which has no graph:"
        " the second derivative leaves out what goes through that",
        (
            Fix(
                "save the inputs, and compute it from them in backward; or return it as one more"
                " output, and save that",
                proof=None,
            ),
        ),
    ),
    # any
    Cause(
        "unknown",
        None,
        "what led to this cannot be told from what was seen",
        (
            Fix(
                "see every operation from the program's start:"
                " {strict|gradtrace.watch(strict=True), or python -m gradtrace --strict script.py}",
                needs=("not strict_watch",),
            ),
            Fix(
                "follow the loss back: print(x.requires_grad, x.grad_fn) of what it is computed"
                " from shows where the graph ends; what runs in other threads, in compiled code"
                " or before the watch began is not seen",
            ),
        ),
    ),
)
CAUSES = {cause.name: cause for cause in _TABLE}
