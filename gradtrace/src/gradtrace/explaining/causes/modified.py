"""Causes of errors about a saved tensor or a leaf that was changed in place."""

from gradtrace.explaining.causes.table import LIKELY, OBSERVED, Cause, Criterion, Fix, Unproven

CRITERIA = {
    "modified": (
        Criterion("optimizer_step_between_backwards", ("optimizer_wrote",), OBSERVED),
        Criterion("optimizer_step_between_backwards", ("a_leaf", "backward_between"), LIKELY),
        Criterion("inplace_on_parameter_in_forward", ("a_leaf",), LIKELY),
        Criterion("inplace_on_saved", (), OBSERVED),
    )
}

CAUSES = (
    Cause(
        "modified",
        "optimizer_step_between_backwards",
        "the optimizer changed weights in place after {older|this loss} was computed with the old"
        " ones, and its backward pass needs the old ones",
        Fix(
            "leave retain_graph=True out, and at the end of each iteration: {detached|h ="
            " h.detach()}",
            needs=("carried_over",),
            proof=("every_entry_is_named",),
        ),
        Fix(
            "take the step as a new tensor: fast = w - lr * gradient, with the gradient from"
            " torch.autograd.grad(loss, w, create_graph=True). Compute this loss with fast"
            " (torch.func.functional_call)",
            needs=("differentiable_step",),
            otherwise="leave create_graph=True out, and recompute this loss after the step,"
            " if the step itself is not to be differentiated",
        ),
        Unproven(
            "recompute {it|the older part} with the new weights after the step, if this loss is to"
            " train through {it|that part}; else detach {it|that part}",
            needs=("a_part_is_older",),
        ),
        Fix(
            "recompute this loss after the step, by a new forward pass",
            needs=("one_optimizer",),
            otherwise="make all backward() calls before the step",
        ),
        Fix(
            "recompute this loss after the step, by a new forward pass. Or let each backward() call"
            " reach its own parameters only, loss.backward(inputs=list(own.parameters())), and step"
            " after all these calls",
            otherwise="if this loss is to train the stepped network, too, make all backward()"
            " calls before all steps without inputs=",
        ),
    ),
    Cause(
        "modified",
        "inplace_on_saved",
        "a tensor that an operation had saved for backward was changed in place",
        Fix(
            "set inplace=False in the layer that changes {it|the tensor}",
            needs=("by_a_layer",),
            otherwise="pass that layer a clone of {it|the tensor}",
        ),
        Fix(
            "collect the new parts in a list and combine them (torch.stack, torch.cat) instead of"
            " writing into {it|the tensor}, or read clones of its parts: x[i].clone()",
            needs=("written_part_by_part",),
            proof=("written_once",),
        ),
        Fix(
            "build a new tensor from the changed and the unchanged parts (torch.cat, torch.stack,"
            " torch.where), instead of writing through a view of {it|the tensor}",
            needs=("through_a_view",),
            otherwise="write into a clone of {it|the tensor}, and use the original in all"
            " operations before the change",
        ),
        Fix(
            "build a list of new tensors, xs = [x + y for x in xs], instead of changing {it|the"
            " tensor} in the loop. There, x = x + y would leave the list unchanged",
            needs=("of_an_element",),
            proof=("written_once",),
        ),
        Fix(
            "do not write into {it|the tensor} after a use: use an out-of-place operation,"
            " x = x + y in place of x += y, or write into a clone",
            proof=("written_once",),
        ),
    ),
    Cause(
        "modified",
        "inplace_on_parameter_in_forward",
        "a parameter was changed in place after the forward pass had used it, and before backward()"
        " read it",
        Fix(
            "let the earlier operation use a clone of {it|the parameter}, because the layer changes"
            " this parameter each time it runs, as max_norm requests",
            needs=("by_a_layer",),
        ),
        Fix(
            "change {it|the parameter} after backward(), because this loss was computed with the"
            " parameters before the change",
            needs=("over_parameters",),
            otherwise="compute this loss after the change, by a new forward pass",
        ),
        Fix(
            "change {it|the parameter} before it is used, or let the earlier operation use a clone"
        ),
    ),
    Cause(
        "leaf_inplace",
        "leaf_inplace",
        "a leaf that requires grad was changed in place while gradients were recorded",
        Fix("set inplace=False in the layer that changes {it|the leaf}", needs=("by_a_layer",)),
        Fix(
            "change {it|the leaf} under torch.no_grad(), because this statement updates a parameter"
            " outside of every forward pass",
            needs=("value_has_graph", "updates_a_parameter"),
            otherwise="compute new weights out of place, and the loss with them"
            " (torch.func.functional_call), if the loss must train through the written value",
        ),
        Fix(
            "write into {it|the leaf}.clone() in the forward pass, and use that clone in place of"
            " {it|the leaf}, because the written value has a graph that no_grad() would remove",
            needs=("value_has_graph",),
            otherwise="change {it|the leaf} under torch.no_grad(), if that value is a constant",
        ),
        Fix(
            "change {it|the leaf} under torch.no_grad(). If the loss must depend on the change,"
            " compute a new tensor instead"
        ),
    ),
)
