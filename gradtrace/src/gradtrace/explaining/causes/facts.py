"""The facts that rules ask for: what each says where it holds, and where it does not."""

from __future__ import annotations

EVIDENCE = {
    "nested": (
        "this call runs inside the backward of a custom function",
        "this call runs inside no other",
    ),
    "loss_was_run": (
        "every tensor that this loss saved was freed by an earlier backward pass, and nothing in"
        " it is new but factors and sums of losses",
        "something in this loss is new",
    ),
    "used_again": (
        "the freed part was made once, and is used by lines that used it before",
        "the lines that use the freed part had not used it before",
    ),
    "repeated": (
        "the line that raised has called backward before, after the freed part was made",
        "the line that raised has not called backward since the freed part was made",
    ),
    "built_after": (
        "some of the loss was made after that backward",
        "all of the loss had been made when that backward ran",
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
        "this loss is a sum, and one term of it is a loss on which backward() was called before",
        "no term of this loss is one on which backward() was called before",
    ),
    "in_a_module": ("an attribute of a module holds it", "no attribute of a module holds it"),
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
    "in_inference_mode": (
        "inference mode is on where backward was called: nothing is recorded in it, whatever"
        " enable_grad() says",
        "inference mode is off where backward was called",
    ),
    "a_checkpoint_warned": (
        "PyTorch has warned that no input of a reentrant checkpoint requires grad",
        "PyTorch has not warned of a reentrant checkpoint",
    ),
    "computed_in_forward": (
        "the gradient went through a custom function whose backward uses values that its forward"
        " computed, and forward records no graph",
        "no custom function was in the way whose backward uses what forward computed",
    ),
    "others_take_part": (
        "the result was computed from the other inputs",
        "the result was computed from none of the inputs",
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
    "replaced": (
        "an optimizer holds a parameter that no variable reaches any more",
        "the variables reach all that the optimizers hold",
    ),
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
