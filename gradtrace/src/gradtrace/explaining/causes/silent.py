"""Causes of failures that raise nothing: a gradient is wrong, or a graph grows."""

from __future__ import annotations

from gradtrace.explaining.causes.table import LIKELY, Cause, Criterion, Fix

CRITERIA = {
    "silent": (
        Criterion("custom_function_ctx", ("on_ctx",), LIKELY),
        Criterion("optimizer_step_between_backwards_silent", ("optimizer_wrote",), LIKELY),
        Criterion("data_edit_silent", (), LIKELY),
    )
}

CAUSES = (
    Cause(
        "optimizer_step_between_backwards_silent",
        "silent",
        "a fused optimizer changed saved weights without a new version, so that PyTorch raises"
        " nothing: this backward pass mixes old activations with new weights",
        Fix(
            "recompute this loss after the step, by a new forward pass; or let each backward() call"
            " reach its own parameters only, loss.backward(inputs=list(own.parameters())), and step"
            " after all of them. To get PyTorch's error, call"
            " torch.autograd.graph.increment_version(parameter) for each parameter after the step"
        ),
    ),
    Cause(
        "checkpoint_recomputes_anew",
        "silent",
        "a checkpoint recomputes its forward pass in backward, but the weights were changed since:"
        " it computes with the new ones, and no check detects that",
        Fix(
            "recompute this loss after the step, by a new forward pass; or make this backward()"
            " call before the step",
            proof=None,
        ),
    ),
    Cause(
        "data_edit_silent",
        "silent",
        "a tensor saved for backward was changed through .data, numpy or dlpack, which autograd"
        " does not track, so the gradient is silently wrong",
        Fix(
            "recompute this loss after the change, by a new forward pass; or make this backward()"
            " call before it",
            needs=("a_leaf",),
            proof=None,
        ),
        Fix("edit a clone, or use .detach() instead of .data, which brings the error back"),
    ),
    Cause(
        "graph_grows",
        "silent",
        "a graph is kept alive and grows with each iteration",
        Fix(
            "set .grad to None in each iteration, as optimizer.zero_grad() does; or take"
            " torch.autograd.grad(loss, parameters, create_graph=True), which leaves .grad"
            " alone",
            needs=("creates_graph",),
        ),
        Fix("keep numbers instead of tensors (.item()), or detach what is carried over"),
    ),
    Cause(
        "custom_function_ctx",
        "silent",
        "a custom function keeps a tensor as an attribute of ctx; it was changed in place"
        " since, and no check notices",
        Fix("use ctx.save_for_backward for tensors"),
    ),
    Cause(
        "never_trained",
        "silent",
        "an optimizer holds {it|parameters} that never got a gradient: no graph connects them to"
        " the loss",
        Fix(
            "remove the detach() or no_grad() between them and the loss; or, if they are not to be"
            " trained, take them out of the optimizer",
            proof=None,
        ),
    ),
    Cause(
        "optimizer_holds_replaced",
        "silent",
        "an optimizer holds parameters that never got a gradient, and that no variable reaches"
        " any more: they were replaced after it was made",
        Fix("create the optimizer after the model is complete", proof=None),
    ),
    Cause(
        "in_no_optimizer",
        "silent",
        "{it|parameters} get gradients from a loss that an optimizer steps by, but no optimizer"
        " holds them: they keep their first values, and their gradients are never cleared",
        Fix(
            "copy the new values into the old parameter under torch.no_grad(), or make the"
            " optimizer after {it|the parameter} has been replaced",
            needs=("replaced",),
            proof=None,
        ),
        Fix(
            "put the modules into nn.ModuleList or nn.ModuleDict, parameters into"
            " nn.ParameterList: model.parameters() lacks what a plain list or dict holds",
            proof=None,
        ),
    ),
    Cause(
        "gradient_leaks",
        "silent",
        "{it|these parameters} still have a gradient of the other optimizer's loss, and this loss"
        " adds to it: their step follows both",
        Fix(
            "clear these gradients before this loss's backward(), by optimizer.zero_grad(); or"
            " freeze {it|them}, requires_grad_(False), while the other loss is computed",
            proof=None,
        ),
    ),
    Cause(
        "autocast_stale",
        "silent",
        "autocast keeps the casts of weights until its block ends; after an optimizer's step the"
        " forward pass still used the casts of the old weights",
        Fix(
            "enter torch.autocast in each iteration, around the forward pass and the loss only",
            proof=None,
        ),
    ),
    Cause(
        "gradient_changed_in_backward",
        "silent",
        "backward() of {it|a custom function} changes its grad_output in place; other parts of the"
        " graph may still need it",
        Fix(
            "compute with a new tensor there: grad_output * x in place of grad_output.mul_(x)",
            proof=None,
        ),
    ),
    Cause(
        "step_inside_backward",
        "silent",
        "a fused optimizer stepped in a hook during the backward pass, and the rest of that pass"
        " needs the weights that it changed (PyTorch raises nothing)",
        Fix("step after the backward pass has ended", proof=None),
    ),
    Cause(
        "gradient_still_scaled",
        "silent",
        "a gradient of a scaled loss is a part of this loss, and is still scaled",
        Fix(
            "unscale the gradient before it enters the loss: divide it by scaler.get_scale()",
            proof=None,
        ),
    ),
    Cause(
        "intermediate_saved",
        "silent",
        "{it|a custom function} saves a value that its forward() computed, which has no graph: the"
        " second derivative lacks the terms that go through that value",
        Fix(
            "save the inputs, and recompute the value from them in backward(); or return it as one"
            " more output, and save that",
            proof=None,
        ),
    ),
)
