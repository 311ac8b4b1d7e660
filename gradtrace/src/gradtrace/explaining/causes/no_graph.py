"""Causes of errors about a missing graph, or a tensor that the graph does not contain."""

from gradtrace.explaining.causes.table import (
    CERTAIN,
    LIKELY,
    OBSERVED,
    UNKNOWN,
    Cause,
    Criterion,
    Fix,
    Unproven,
)

CRITERIA = {
    "no_graph": (
        Criterion("create_graph_missing", ("cut_by_first_order",), OBSERVED),
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
        Criterion("unknown", (), UNKNOWN),
    ),
    "unused_input": (
        Criterion("input_off", ("asked_of_what_is_off",), CERTAIN),
        Criterion("create_graph_missing", ("differentiated_once",), LIKELY),
        Criterion("unused_input", (), CERTAIN),
    ),
}

_IN_PLACE = Fix(
    "update the parameter in place, under torch.no_grad(), and clear its gradient:"
    " w -= lr * w.grad; w.grad = None. Here, w = w - lr * w.grad makes a new tensor, which is not"
    " a leaf that requires grad",
    needs=("cut_by_update",),
)

_IN_FORWARD = Unproven(
    "compute all up to this call under torch.enable_grad(), because forward() of a custom function"
    " records nothing. If the gradient of an input is requested, first take {asked|x} ="
    " {asked|x}.clone().requires_grad_() there",
    needs=("in_a_functions_forward",),
)

CAUSES = (
    Cause(
        "no_graph",
        "create_graph_missing",
        "a gradient is used as if it could be differentiated, but it was computed without"
        " create_graph=True, so it has no graph",
        Fix("compute the gradient with torch.autograd.grad(..., create_graph=True)"),
    ),
    Cause(
        "no_graph",
        "detach_wrong_place",
        "a tensor between the parameters and this loss was detached from the graph",
        Fix(
            "use PyTorch operations for the whole computation: combine tensors with torch.stack or"
            " torch.cat. torch.tensor, .item(), .tolist() and numpy copy the numbers without their"
            " graph",
            needs=("cut_by_copy",),
            otherwise="if the value is to have no gradient, compute the loss from a tensor that has"
            " one",
        ),
        Fix(
            "remove the detach() or .data if this loss must train through the value; detach only"
            " constants",
            otherwise="if the value itself is to be a constant, compute this loss from another"
            " tensor, too, that depends on the parameters",
        ),
    ),
    Cause(
        "no_graph",
        "no_grad_region",
        "a part of the computation ran where gradients were disabled",
        _IN_PLACE,
        Fix(
            "compute {it|the tensors} under torch.no_grad(), not torch.inference_mode(), because a"
            " tensor created in that mode cannot be saved for backward",
            needs=("made_in_inference_mode",),
        ),
        Fix(
            "run this code outside torch.inference_mode(), because a tensor computed in that mode"
            " has no gradient, even under torch.enable_grad()"
            " (Lightning: Trainer(inference_mode=False))",
            needs=("in_inference_mode",),
        ),
        _IN_FORWARD,
        Fix("run the forward pass outside torch.no_grad(), or under torch.enable_grad()"),
    ),
    Cause(
        None,
        "function_computes_in_forward",
        "backward() of {it|a custom function} uses a value that its forward() computed; forward()"
        " records no graph, so the gradient has no graph",
        Unproven(
            "save the inputs in forward, ctx.save_for_backward(x), and compute the derivative"
            " from them in backward"
        ),
    ),
    Cause(
        "no_graph",
        "frozen_parameters",
        "none of the tensors that this loss was computed from requires grad: its parameters are"
        " frozen",
        Fix(
            "before the forward pass, call requires_grad_(True) on {trained|the parameters that"
            " this loss trains}"
        ),
    ),
    Cause(
        "no_graph",
        "not_differentiable_op",
        "an operation without a derivative lies between the parameters and the loss",
        Fix(
            "compute the loss from the value before that operation, which has a gradient"
            " (for a cross entropy the logits, before softmax and argmax;"
            " for a distribution rsample(), not sample())",
            otherwise="replace that operation by one that has a derivative, if the loss needs its"
            " result",
        ),
    ),
    Cause(
        "not_scalar",
        "not_scalar",
        "backward() was called on a tensor of more than one element, without gradient=",
        Fix(
            "pass grad_outputs=torch.ones_like({it|y}), which gives the gradient of"
            " {it|y}.sum(): that of each element, if it depends on no other element's input",
            needs=("of_inputs",),
        ),
        Fix(
            "average {it|the tensor} first, as PyTorch's losses do: {it|loss}.mean(). Or pass"
            " gradient=, the weight of each element"
        ),
    ),
    Cause(
        "grad_of_result",
        "grad_of_result",
        "{it|the tensor} is an operation's result, and backward() stores .grad for leaves only",
        _IN_PLACE,
        Fix(
            "make {it|the tensor} a leaf before it is used: {it|x} ="
            " {it|x}.detach().requires_grad_()",
            needs=("of_no_variable",),
        ),
        Fix("call {it|x}.retain_grad() before backward()"),
    ),
    Cause(
        "unused_input",
        "unused_input",
        "a gradient was requested for a tensor that the output was not computed from: {it|an"
        " input}",
        Fix(
            "request the gradient of {whole|the whole tensor}, and take the part of that gradient,"
            " because each index, and each loop over a tensor, makes a new view",
            needs=("of_views",),
        ),
        Fix(
            "pass allow_unused=True, and skip the gradients that are None, because this result was"
            " not computed from {it|the input}",
            needs=("others_take_part",),
            otherwise="compute the result from {it|the input}, if its gradient is needed",
        ),
        Fix(
            "compute the result with {it|the inputs}, or parameters computed from {it|them} out of"
            " place (for a module by torch.func.functional_call), not with {copy|a copy}",
            needs=("a_copy_takes_part",),
            otherwise="request the gradients of {copy|the copy} instead, if they are to be trained",
        ),
        Unproven(
            "compute the result from {last|that tensor} itself: this tensor was made after the"
            " forward pass, or another tensor was used in its place"
        ),
    ),
    Cause(
        "unused_input",
        "input_off",
        "a gradient was requested for a tensor that does not require grad: {it|an input}",
        Fix(
            "request only the gradients of parameters that require grad: [p for p in parameters if"
            " p.requires_grad]",
            needs=("frozen",),
        ),
        _IN_FORWARD,
        Unproven(
            "call requires_grad_(True) on {it|the tensor} before the forward pass, or leave"
            " {it|the tensor} out of the inputs"
        ),
    ),
)
