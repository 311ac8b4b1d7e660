"""Causes of errors about computations that PyTorch cannot differentiate in this way."""

from functools import partial

from gradtrace.explaining.causes.table import CERTAIN, LIKELY, Cause, Criterion, Fix, Unproven

_unsupported = partial(Cause, "unsupported")

USE_REENTRANT = "call checkpoint(..., use_reentrant=False)"

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
