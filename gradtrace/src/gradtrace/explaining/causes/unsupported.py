"""Causes of errors about computations that PyTorch cannot differentiate in this way."""

from functools import partial

from gradtrace.explaining.causes.table import CERTAIN, LIKELY, Cause, Criterion, Fix, Unproven

_unsupported = partial(Cause, "unsupported")

USE_REENTRANT = "call checkpoint(..., use_reentrant=False)"
_TORCH = "use PyTorch's operations in place of numpy's"

CRITERIA = {
    "function": (
        Criterion("function_backward_twice", ("ran_before",), LIKELY),
        Criterion("function_keeps_too_little", ("not_kept",), LIKELY),
        Criterion("function_backward_failed", (), CERTAIN),
    )
}

CAUSES = (
    _unsupported(
        "checkpoint_reentrant",
        "reentrant checkpointing runs its forward pass without gradients: it needs an input"
        " that requires grad, and supports loss.backward() only, not autograd.grad or inputs=",
        Fix(USE_REENTRANT),
    ),
    _unsupported(
        "checkpoint_differs",
        "a checkpoint runs its forward pass again in backward, and the second run of {it|the"
        " function} did not save the same tensors as the first",
        Fix(
            "do not change {state|its state} in {it|the function}: pass the old value as an"
            " argument (a dict or list as a copy), return the new one, and store that after"
            " checkpoint()",
            needs=("changes_state",),
            otherwise="call {it|the function} without a checkpoint",
        ),
        Fix(
            "let {it|the checkpointed function} compute the same twice: do not change"
            " {state|a cache, a counter or another state} in it or between the runs",
            otherwise="call {it|the function} without a checkpoint",
        ),
    ),
    _unsupported(
        "once_differentiable",
        "backward() of {it|a custom function} records no graph, so its gradients cannot be"
        " differentiated again",
        Fix(
            "write that backward() with operations that have a derivative: without detach(),"
            " .data, numpy or no_grad(), with create_graph=True in a gradient that it computes,"
            " and without the decorator @once_differentiable",
            otherwise="use an ordinary function in its place, if second derivatives are needed",
        ),
    ),
    _unsupported(
        "numpy_of_graph",
        "numpy records no graph, so PyTorch does not convert a tensor that requires grad",
        Fix(
            f"{_TORCH}, without detach() or .data, because an array has no graph to train through",
            needs=("is_differentiated",),
            otherwise="{it|x}.detach().cpu().numpy(), if the array is only for a log or a plot",
        ),
        Fix(
            "{it|x}.detach().cpu().numpy()",
            proof=("graph_was_used",),
            otherwise=f"if a loss is computed from the array, {_TORCH}",
        ),
    ),
    _unsupported(
        "view_changed_inplace",
        "{it|a view} was changed in place, which PyTorch forbids for one of several views (of"
        " unbind, split or chunk) and for a view that a custom function returned",
        Fix(
            "collect new tensors in the loop (x * s in place of x *= s), combine them with"
            " torch.stack(), and use this result in place of the old tensor",
            needs=("in_a_loop_over_views",),
        ),
        Fix("set inplace=False in the layer that changes {it|the view}", needs=("by_a_layer",)),
        Fix("make a new tensor and use it from there on: x = x * s in place of x *= s"),
    ),
    _unsupported(
        "function_backward_twice",
        "backward() of {it|a custom function} raised this when it ran for the second time, because"
        " it had deleted values that it needs",
        Fix(
            "keep what backward needs by ctx.save_for_backward, and do not delete anything from ctx"
            " in backward",
            otherwise="add the losses, so that one backward() call runs through {it|the function}"
            " only once",
        ),
    ),
    _unsupported(
        "function_backward_failed",
        "the program's own backward() of {it|a custom function} raised this",
        Unproven(
            "correct that method: it receives one gradient for each output of forward, and returns"
            " one for each input, or None"
        ),
    ),
    _unsupported(
        "function_keeps_too_little",
        "backward() of {it|a custom function} reads {missing|values}, which forward() did not keep",
        Unproven(
            "keep {missing|these values} in forward: inputs and outputs by"
            " ctx.save_for_backward(...), other values as attributes of ctx"
        ),
    ),
    _unsupported(
        "function_returns_wrong_gradients",
        "backward() of {it|a custom function} returned {returned|values that do not fit the inputs"
        " of forward}",
        Unproven(
            "give the gradient the shape of {input|that input}: reshape or transpose it",
            needs=("same_size",),
        ),
        Unproven(
            "give the gradient the shape of {input|that input}: sum it over the dimensions in which"
            " forward() broadcast {input|it}, and add zeros for elements that it does not use",
            needs=("other_size",),
        ),
        Unproven("return a tensor or None for each input of forward, in that order{example|}"),
    ),
    Cause(
        None,
        "unknown",
        "the observed operations do not determine the cause",
        Fix(
            "print(x.requires_grad, x.grad_fn) for each tensor that the loss is computed from:"
            " the graph ends where grad_fn is None and requires_grad is False"
        ),
    ),
)
