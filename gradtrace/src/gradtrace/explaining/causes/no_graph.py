"""Causes of an error that says that there is no graph, or that a tensor took no part in it."""

from __future__ import annotations

from gradtrace.explaining.causes.table import CERTAIN, LIKELY, OBSERVED, Cause, Criterion, Fix

CRITERIA = {
    "no_graph": (
        Criterion("create_graph_missing", ("cut_by_first_order",), CERTAIN),
        Criterion("function_computes_in_forward", ("computed_in_forward",), LIKELY),
        Criterion("once_differentiable", ("cut_by_function",), CERTAIN),
        Criterion("no_grad_region", ("in_inference_mode",), LIKELY),
        Criterion("no_grad_region", ("cut_by_update",), CERTAIN),
        Criterion("no_grad_region", ("gradients_are_off",), OBSERVED),
        Criterion("checkpoint_reentrant", ("in_a_checkpoint",), OBSERVED),
        Criterion("frozen_parameters", ("frozen",), OBSERVED),
        Criterion("not_differentiable_op", ("cut_by_operation",), OBSERVED),
        Criterion("detach_wrong_place", ("cut_by_copy",), OBSERVED),
        Criterion("detach_wrong_place", ("cut_by_detach",), OBSERVED),
    ),
    "unused_input": (
        Criterion("input_off", ("asked_of_what_is_off",), CERTAIN),
        Criterion("unused_input", (), CERTAIN),
    ),
}

CAUSES = (
    Cause(
        "create_graph_missing",
        "no_graph",
        "a gradient is used as if it could be differentiated, but it was computed without"
        " create_graph=True, so it has no graph",
        Fix("compute it with torch.autograd.grad(..., create_graph=True)"),
    ),
    Cause(
        "detach_wrong_place",
        "no_graph",
        "the graph was cut on the way to this loss",
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
    Cause(
        "no_grad_region",
        "no_graph",
        "the forward pass ran where gradients are switched off",
        Fix(
            "update the parameter in place, under torch.no_grad(): w -= lr * w.grad, not w"
            " = w - lr * w.grad, which makes a tensor that does not require grad",
            needs=("cut_by_update",),
        ),
        Fix(
            "run this code outside torch.inference_mode(): what is computed in that mode can"
            " have no gradient, under torch.enable_grad() either (Lightning:"
            " Trainer(inference_mode=False))",
            needs=("in_inference_mode",),
        ),
        Fix("run the forward pass outside torch.no_grad(), or under torch.enable_grad()"),
    ),
    Cause(
        "function_computes_in_forward",
        None,
        "the backward of {it|a custom function} uses a value that its forward computed; forward"
        " records no graph, so the gradient has none",
        Fix(
            "save the inputs in forward, ctx.save_for_backward(x), and compute the derivative"
            " from them in backward",
            proof=None,
        ),
    ),
    Cause(
        "frozen_parameters",
        "no_graph",
        "what this was computed from does not require grad: its parameters were switched off",
        Fix("switch on what this loss is to train, requires_grad_(True), before the forward pass"),
    ),
    Cause(
        "not_differentiable_op",
        "no_graph",
        "an operation without a derivative lies between the parameters and the loss",
        Fix(
            "compute the loss from the value before that operation, which has a gradient"
            " (for a cross entropy the logits, before softmax and argmax;"
            " of a distribution rsample(), not sample())",
            proof=None,
            otherwise="replace the operation by one that has a derivative, where the loss"
            " needs its result",
        ),
    ),
    Cause(
        "not_scalar",
        "not_scalar",
        "backward was called on a tensor of more than one element without saying in which"
        " direction",
        Fix("reduce it first (.sum() or .mean()), or pass gradient="),
    ),
    Cause(
        "unused_input",
        "unused_input",
        "a gradient was asked for something that the output was not computed from: {it|an input}",
        Fix(
            "pass allow_unused=True, and skip the gradients that are None: {it|the input} takes"
            " no part in this result",
            needs=("others_take_part",),
            proof=None,
            otherwise="compute the result from {it|that input}, if it is to take part",
        ),
        Fix(
            "compute the result from {it|that tensor} itself: it was made after the forward"
            " pass, or another tensor was used in its place",
            proof=None,
        ),
    ),
    Cause(
        "input_off",
        "unused_input",
        "a gradient was asked for something that does not require grad: {it|an input}",
        Fix(
            "ask only for the gradients of what requires grad: [p for p in parameters if"
            " p.requires_grad]",
            needs=("frozen",),
        ),
        Fix(
            "switch it on before the forward pass, requires_grad_(True), or leave it out of"
            " the inputs",
            proof=None,
        ),
    ),
)
