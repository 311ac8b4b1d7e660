"""The table of causes: what can go wrong with a graph, the evidence that decides, and the texts.

An error's text gives its *family* (:data:`PATTERNS`).  Within a family the first of its
:data:`RULES` whose evidence holds names the *cause*.  Evidence has a name and a sentence here; how
it is gathered is the business of :mod:`gradtrace.diagnose` and :mod:`gradtrace.silent`.  The
documentation of families, causes and the JSON report is made from this module, which therefore
needs no PyTorch.
"""

from __future__ import annotations

import re
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
    "carried_by": "the variable or attribute that carried it there",
    "error": "type and text of the error that ended the program",
    "explanation": "what went wrong, in a sentence",
    "fix": "what to do about it",
    "warnings": "findings of the family silent, each with the keys above",
}


@dataclass(frozen=True)
class Cause:
    """What can go wrong: ``meaning`` says what happened and ``fix`` what to do.

    In a fix ``{it}`` stands for the variable that carried it, or for what follows the bar where it
    is not known: ``{it|the state}``.  ``family`` is None for what any family may end in.
    """

    name: str
    family: str | None
    meaning: str
    fix: str

    def fix_for(self, carried_by: str | None) -> str:
        return re.sub(r"\{it\|?(.*?)\}", lambda it: carried_by or it[1] or "it", self.fix)


@dataclass(frozen=True)
class Rule:
    """A cause, and the evidence that must all hold; ``not name`` is evidence that must not.

    ``carrier`` names the evidence that is the variable which carried it, where that is known.
    """

    cause: str
    evidence: tuple[str, ...]
    confidence: str
    carrier: str = "holder"


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
    (r"not have been used in the graph", "unused_input", "unused_input"),
    (r"marked with @once_differentiable", "unsupported", "once_differentiable"),
    (r"derivative for .* is not implemented", "unsupported", "double_backward_unsupported"),
    (r"[Dd]ouble backwards? is not supported", "unsupported", "double_backward_unsupported"),
    (r"not currently support double backward", "unsupported", "double_backward_unsupported"),
    (r"cudnn RNN backward can only be called in train", "unsupported", "cudnn_rnn_eval"),
    (
        r"checkpoint(ing)? is (incompatible|not compatible) with",
        "unsupported",
        "checkpoint_reentrant",
    ),
    (r"finished reduction in the prior iteration", "unsupported", "ddp_unused_parameter"),
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


EVIDENCE = {
    "loss_was_run": "the loss itself has been through a backward: nothing in it is new",
    "repeated": "the line that raised has called backward before, after the freed part was made",
    "made_before_the_loop": "the freed part was made before the loop that raised, or only once",
    "built_after": "some of the loss was made after that backward",
    "same_operations": "what is new are operations that the freed graph had, too",
    "trains": "what is new reaches parameters of its own",
    "made_again": "the line that made the freed part has made such a node again since",
    "passed_on": "the loss reaches the freed part through the node that was made again",
    "in_a_dataset": "a dataset or a data loader holds it",
    "in_a_buffer": "a buffer of a module holds it",
    "a_loss_is_added": "what was freed is a loss, which was added to this one",
    "in_a_container": "a list, tuple, dict, set or deque holds it",
    "refilled": "that container holds newer tensors, too",
    "looped_over": "the loop that raised runs over that container",
    "optimizer_wrote": "an optimizer made the change",
    "a_buffer": "what was changed is a buffer of a module",
    "a_leaf": "what was changed is a parameter or another leaf",
    "backward_between": "a backward lies between the operation and the change",
    "cut_by_detach": "detach(), .data, a new tensor, or numpy and back",
    "cut_by_region": "an operation in torch.no_grad() or torch.inference_mode()",
    "cut_by_first_order": "a gradient that was computed without create_graph=True",
    "cut_by_operation": "an operation that has no derivative",
    "cut_by_once_differentiable": "a gradient through a function marked @once_differentiable",
    "cut_by_checkpoint": "a reentrant checkpoint",
    "on_ctx": "the changed tensor is an attribute of a custom function's ctx",
}

# For each family, in this order: the first rule whose evidence holds.
RULES = {
    "freed": (
        Rule("forward_not_rerun", ("loss_was_run", "not repeated"), CERTAIN),
        Rule("computed_once_outside_loop", ("loss_was_run", "made_before_the_loop"), SEEN),
        Rule("forward_not_rerun", ("loss_was_run",), SEEN),
        Rule("shared_subgraph", ("not built_after",), CERTAIN),
        Rule("forward_not_rerun", ("not repeated", "same_operations", "not trains"), LIKELY),
        Rule("shared_subgraph", ("not repeated",), LIKELY),
        Rule("dataset_tensor_has_graph", ("not made_again", "in_a_dataset"), SEEN, "in_a_dataset"),
        Rule("buffer_has_graph", ("in_a_buffer",), SEEN, "in_a_buffer"),
        Rule("loss_accumulated", ("a_loss_is_added",), SEEN, "holder_or_successor"),
        Rule("hidden_state_carried", ("passed_on",), SEEN, "holder_or_successor"),
        Rule("replay_keeps_graph", ("in_a_container", "made_again"), SEEN, "in_a_container"),
        Rule("replay_keeps_graph", ("in_a_container", "refilled"), SEEN, "in_a_container"),
        Rule("hidden_state_carried", ("made_again",), LIKELY),
        Rule("dataset_tensor_has_graph", ("looped_over",), LIKELY, "in_a_container"),
        Rule("forward_not_rerun", ("not made_before_the_loop",), LIKELY),
        Rule("computed_once_outside_loop", (), SEEN),
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
        Rule("once_differentiable", ("cut_by_once_differentiable",), CERTAIN),
        Rule("checkpoint_reentrant", ("cut_by_checkpoint",), CERTAIN),
        Rule("no_grad_region", ("cut_by_region",), CERTAIN),
        Rule("not_differentiable_op", ("cut_by_operation",), CERTAIN),
        Rule("detach_wrong_place", ("cut_by_detach",), SEEN),
    ),
    "silent": (
        Rule("custom_function_ctx", ("on_ctx",), LIKELY),
        Rule("optimizer_step_between_backwards_silent", ("optimizer_wrote",), LIKELY),
        Rule("data_edit_silent", (), LIKELY),
    ),
}  # fmt: skip

_TABLE = (
    # freed
    Cause(
        "hidden_state_carried",
        "freed",
        "a state from the last iteration is still part of this loss, and that part of the"
        " graph was freed by the backward of the last iteration",
        "detach {it|the state} at the start of each iteration, as in h = h.detach()",
    ),
    Cause(
        "computed_once_outside_loop",
        "freed",
        "something that needs gradients was computed once and is used in every iteration;"
        " the first backward freed its graph",
        "compute {it} anew in each iteration; or detach it, once, if it is not to be trained",
    ),
    Cause(
        "forward_not_rerun",
        "freed",
        "the forward pass was not run again: this loss has already been through backward",
        "run the forward pass again before each backward",
    ),
    Cause(
        "shared_subgraph",
        "freed",
        "two losses share a part of the graph, and the first backward freed it",
        "if both losses are to train all that they reach, add them and call backward once; "
        "if not, detach {it|the shared part} for the loss that is not to train it",
    ),
    Cause(
        "loss_accumulated",
        "freed",
        "this loss contains a loss of an earlier iteration, which has been through backward",
        "keep totals as numbers: total += loss.item()",
    ),
    Cause(
        "replay_keeps_graph",
        "freed",
        "a stored tensor still has the graph of the iteration that made it, which was freed",
        "detach what is stored: buffer.append(x.detach())",
    ),
    Cause(
        "dataset_tensor_has_graph",
        "freed",
        "the dataset holds tensors with a graph; the first batch's backward freed it",
        "detach {it|the tensors} before the dataset gets them, or compute them inside the loop",
    ),
    Cause(
        "buffer_has_graph",
        "freed",
        "a module's buffer holds a tensor with a graph, which an earlier backward freed",
        "detach what is written into {it|the buffer}",
    ),
    # modified
    Cause(
        "optimizer_step_between_backwards",
        "modified",
        "the optimizer changed weights in place after this loss was computed with the old"
        " ones, and its backward needs the old ones",
        "compute this loss anew after the step, by a new forward pass; or let each backward "
        "reach its own parameters only, loss.backward(inputs=list(own.parameters())), and "
        "step after all of them",
    ),
    Cause(
        "inplace_on_saved",
        "modified",
        "a tensor that an operation had saved for backward was changed in place",
        "do not write into {it} after its use: take an out-of-place operation, or write "
        "into a clone",
    ),
    Cause(
        "inplace_on_buffer",
        "modified",
        "a module's buffer that an operation had saved was changed in place",
        "compute with a clone of {it|the buffer}, or update the buffer after backward",
    ),
    Cause(
        "inplace_on_parameter_in_forward",
        "modified",
        "the forward pass itself changed a parameter in place after it had been used",
        "change {it|the parameter} before it is used, or let the earlier use have a clone",
    ),
    # no_graph
    Cause(
        "create_graph_missing",
        "no_graph",
        "a gradient is used as if it could be differentiated, but it was computed without"
        " create_graph=True, so no graph is behind it",
        "compute it with torch.autograd.grad(..., create_graph=True)",
    ),
    Cause(
        "detach_wrong_place",
        "no_graph",
        "the graph was cut by detach() (or .data, or a new torch.tensor) on the way to this loss",
        "detach only what should get no gradient, not the value that leads to the loss",
    ),
    Cause(
        "no_grad_region",
        "no_graph",
        "the forward pass ran where gradients are switched off",
        "run it outside torch.no_grad(), or under torch.enable_grad()",
    ),
    Cause(
        "not_differentiable_op",
        "no_graph",
        "an operation without a derivative lies between the parameters and the loss",
        "replace it by a differentiable one (softmax for argmax, say)",
    ),
    # unsupported
    Cause(
        "double_backward_unsupported",
        "unsupported",
        "an operation in this graph has no second derivative in PyTorch",
        "use an operation that has one (for cuDNN RNNs: "
        "torch.backends.cudnn.flags(enabled=False) around the forward pass)",
    ),
    Cause(
        "checkpoint_reentrant",
        "unsupported",
        "reentrant checkpointing supports loss.backward() only, not autograd.grad or inputs=",
        "checkpoint(..., use_reentrant=False)",
    ),
    Cause(
        "cudnn_rnn_eval",
        "unsupported",
        "the RNN's forward pass ran in eval mode, in which cuDNN keeps nothing for backward",
        "run the forward pass in train() mode, or with torch.backends.cudnn.flags(enabled=False)",
    ),
    Cause(
        "ddp_unused_parameter",
        "unsupported",
        "a parameter took no part in the loss, and DistributedDataParallel waits for its gradient",
        "use every output in the loss, or pass find_unused_parameters=True",
    ),
    Cause(
        "once_differentiable",
        "unsupported",
        "a custom function is marked @once_differentiable, so its backward has no graph",
        "remove the mark and write its backward with differentiable operations",
    ),
    # not_scalar
    Cause(
        "not_scalar",
        "not_scalar",
        "backward was called on a tensor of more than one element without saying in which"
        " direction",
        "reduce it first (.sum() or .mean()), or pass gradient=",
    ),
    # leaf_inplace
    Cause(
        "leaf_inplace",
        "leaf_inplace",
        "a leaf that requires grad was changed in place while gradients were recorded",
        "change it under torch.no_grad(), or work on a clone",
    ),
    # unused_input
    Cause(
        "unused_input",
        "unused_input",
        "a gradient was asked for a tensor that the output was not computed from",
        "use that tensor in the computation, or pass allow_unused=True",
    ),
    # silent
    Cause(
        "optimizer_step_between_backwards_silent",
        "silent",
        "an optimizer changed saved weights without PyTorch noticing (fused optimizers do"
        " not bump the version), so this backward mixes old activations with new weights",
        "compute this loss anew after the step, by a new forward pass; or let each backward "
        "reach its own parameters only, loss.backward(inputs=list(own.parameters())), and "
        "step after all of them; torch.autograd.graph.increment_version(parameter), for each "
        "parameter after the step, brings the error back",
    ),
    Cause(
        "data_edit_silent",
        "silent",
        "a tensor saved for backward was changed past autograd (.data, numpy or dlpack), "
        "so the gradient is silently wrong",
        "edit a clone, or use .detach() instead of .data, which brings the error back",
    ),
    Cause(
        "graph_grows",
        "silent",
        "a graph is kept alive and grows with each iteration",
        "keep numbers instead of tensors (.item()), or detach what is carried over",
    ),
    Cause(
        "custom_function_ctx",
        "silent",
        "a custom function keeps a tensor as an attribute of ctx; it was changed in place"
        " since, and no check notices",
        "use ctx.save_for_backward for tensors",
    ),
    # any
    Cause(
        "unknown",
        None,
        "what led to this cannot be told from what was seen",
        "see every operation from the program's start: with gradtrace.watch(strict=True),"
        " or python -m gradtrace --strict script.py",
    ),
)
CAUSES = {cause.name: cause for cause in _TABLE}
