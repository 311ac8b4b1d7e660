"""Causes of failures that raise nothing: wrong gradients, growing graphs, untrained parameters."""

from functools import partial

from gradtrace.explaining.causes.table import LIKELY, Cause, Criterion, Fix, Unproven
from gradtrace.explaining.causes.unsupported import USE_REENTRANT

_IN_PYTORCH = (
    "use PyTorch operations in place of .item(), torch.tensor and numpy: combine tensors with"
    " torch.stack or torch.cat. Leave out requires_grad = True on the result"
)
_silent = partial(Cause, "silent")

CRITERIA = {
    "silent": (
        Criterion("custom_function_ctx", ("on_ctx",), LIKELY),
        Criterion("statistics_updated_silent", ("of_statistics",), LIKELY),
        Criterion("optimizer_step_between_backwards_silent", ("optimizer_wrote",), LIKELY),
        Criterion("data_edit_silent", (), LIKELY),
    )
}

CAUSES = (
    _silent(
        "optimizer_step_between_backwards_silent",
        "a fused optimizer changed saved weights without a new version, so that PyTorch raises"
        " nothing: this backward pass mixes old activations with new weights",
        Fix(
            "recompute this loss after the step, by a new forward pass. Or let each backward() call"
            " reach its own parameters only, loss.backward(inputs=list(own.parameters())), and step"
            " after all these calls. To get PyTorch's error, call"
            " torch.autograd.graph.increment_version(parameter) for each parameter after the step"
        ),
    ),
    _silent(
        "statistics_updated_silent",
        "a BatchNorm layer in train() mode updated its running statistics without a new version;"
        " an earlier forward pass in eval() mode needs the old ones for backward",
        Unproven(
            "call backward() on the loss of the eval() pass before the forward pass in train()"
            " mode. Gradients of both calls add up",
            otherwise="run the forward pass in train() mode first",
        ),
    ),
    _silent(
        "checkpoint_recomputes_anew",
        "a checkpoint recomputes its forward pass in backward, but the weights have changed since,"
        " so it uses the new weights, and no check of PyTorch detects that",
        Fix(
            "recompute this loss after the step, by a new forward pass",
            otherwise="make this backward() call before the step",
        ),
    ),
    _silent(
        "data_edit_silent",
        "a tensor saved for backward was changed through .data, numpy or dlpack, which autograd"
        " does not track, so the gradient is silently wrong",
        Fix(
            "recompute this loss after the change, by a new forward pass",
            needs=("a_leaf",),
            otherwise="make this backward() call before the change",
        ),
        Fix(
            "compute with {it|the tensor}.clone(), because others write into its memory",
            needs=("shares_memory",),
        ),
        Unproven(
            "compute the new values as a new tensor, so that the change is a part of the graph:"
            " x = x * s in place of x.data *= s",
            needs=("updated_and_used",),
            otherwise="edit a clone, if the loss is to use the old values",
        ),
        Fix("edit a clone. To get PyTorch's error, use .detach() instead of .data"),
    ),
    _silent(
        "graph_grows",
        "a graph is kept alive and grows with each iteration",
        Fix(
            "set .grad to None in each iteration, as optimizer.zero_grad() does. Or take"
            " torch.autograd.grad(loss, parameters, create_graph=True), which leaves .grad"
            " alone",
            needs=("creates_graph",),
        ),
        Fix("detach {it|each carried tensor} at the end of each iteration", needs=("larger",)),
        Fix("detach each tensor that carries over, or keep its number: .item()"),
    ),
    _silent(
        "custom_function_ctx",
        "a custom function keeps a tensor as an attribute of ctx; the tensor has been changed in"
        " place since, and no check of PyTorch detects that",
        Fix("save the tensor by ctx.save_for_backward()"),
    ),
    _silent(
        "never_trained",
        "no graph connects the loss to {it|some parameters} of an optimizer, so no gradient has"
        " ever arrived there",
        Unproven(
            "multiply what these indices or this mask select by the values that they were computed"
            " from, or interpolate, because integers have no gradient",
            needs=("to_integers",),
        ),
        Unproven(
            "compute the loss from the new tensors, as torch.func.functional_call(model, tensors,"
            " inputs) does, because writing them into parameters drops their graph",
            needs=("set_data",),
        ),
        Fix(
            _IN_PYTORCH,
            needs=("cut_by_copy",),
            otherwise="take {it|these parameters} out of the optimizer, if no training is intended",
        ),
        Fix(
            USE_REENTRANT,
            needs=("in_a_checkpoint",),
            otherwise="call requires_grad_(True) on an input of the checkpoint (in transformers:"
            " model.enable_input_require_grads())",
        ),
        Unproven(
            "compute the loss from {it|these parameters}, because deepcopy() and state_dict() make"
            " other parameters. Updated weights keep their graph in"
            " torch.func.functional_call(model, updated, inputs)",
            needs=("copied",),
        ),
        Unproven(
            "compute the loss that is to train {it|these parameters} from the value before this"
            " line, because x + (y - x).detach() passes its gradient to x only",
            needs=("straight_through",),
        ),
        Fix(
            "remove what detaches these parameters from the loss: detach(), no_grad(), .item()",
            otherwise="take {it|these parameters} out of the optimizer, if no training is intended",
        ),
    ),
    _silent(
        "optimizer_holds_replaced",
        "an optimizer holds parameters that no variable reaches any more, and that get no gradient:"
        " they were replaced after the optimizer was created",
        Unproven("create the optimizer after the model is complete"),
    ),
    _silent(
        "in_no_optimizer",
        "no optimizer holds {it|some parameters}, whose gradients are computed by a loss that"
        " trains other parameters: the values never change, and the gradients are never cleared",
        Unproven(
            "create the optimizer after {it|the parameter} has been replaced", needs=("reshaped",)
        ),
        Fix(
            "copy the new values into the old parameter under torch.no_grad()",
            needs=("replaced",),
            otherwise="create the optimizer after {it|the parameter} has been replaced",
        ),
        Unproven(
            "add {it|the parameters} to the optimizer when they are unfrozen, by"
            " optimizer.add_param_group()",
            needs=("unfrozen",),
            otherwise="create the optimizer from all parameters: it skips those without a gradient",
        ),
        Unproven(
            "put the modules into nn.ModuleList or nn.ModuleDict, and parameters into"
            " nn.ParameterList, because model.parameters() does not search a plain list or dict"
        ),
    ),
    _silent(
        "constant_term",
        "a term of this loss was detached, or read as a number, before it was added, so it trains"
        " nothing",
        Unproven(_IN_PYTORCH, needs=("new_leaf",)),
        Fix(
            "add the term itself, without detach(), .data, .item() or numpy, if it is to be"
            " trained",
            otherwise="leave this loss as it is, if the term is a constant on purpose, such as a"
            " baseline",
        ),
    ),
    _silent(
        "made_in_forward",
        "each forward pass creates {it|parameters} again, with new values that no optimizer"
        " has changed, so the gradients are discarded",
        Unproven(
            "create {it|the parameters}, or the layer that holds them, once, in __init__(), before"
            " the optimizer is created",
            otherwise="switch off their gradients, by requires_grad_(False), if new random values"
            " are meant",
        ),
    ),
    _silent(
        "gradient_leaks",
        "two losses have added gradients to {it|some parameters}, and one of them trains another"
        " optimizer's parameters, so the step follows both losses",
        Unproven(
            "limit this backward() call to its own parameters, by"
            " backward(inputs=list({own|own}.parameters()))",
            needs=("together",),
        ),
        Fix(
            "freeze {it|these parameters}, by requires_grad_(False), while the other loss is"
            " computed",
            needs=("adds_up",),
            otherwise="limit the other loss's backward() to its own parameters, by"
            " backward(inputs=list(...))",
        ),
        Fix(
            "clear these gradients before this loss's backward(), by optimizer.zero_grad()",
            otherwise="freeze {it|these parameters}, by requires_grad_(False), while the other loss"
            " is computed",
        ),
    ),
    _silent(
        "zero_derivative",
        "{it|some trained parameters} reach this loss only where its derivative is zero, as in"
        " round(x) or x + (y - x), so their gradient is zero",
        Unproven(
            "detach the difference, x + (y - x).detach(), because the two gradients of x cancel",
            needs=("cancels",),
        ),
        Unproven(
            "pass the gradient on as if the operation were the identity: replace x.round() by"
            " x + (x.round() - x).detach()"
        ),
    ),
    _silent(
        "gradient_nan",
        "an optimizer stepped with a gradient of {it|a parameter} that is NaN, although the loss is"
        " finite",
        Unproven(
            "keep the input of sqrt(), log() or a division away from 0, where its derivative is"
            " infinite. In torch.where(c, f(x), y) use f(torch.where(c, x, 1)), because the branch"
            " that is not used gets a gradient, too. torch.autograd.detect_anomaly() names the"
            " operation"
        ),
    ),
    _silent(
        "gradients_not_cleared",
        "no gradient of {it|the parameters} was cleared between the last updates, so each update"
        " used the sum of all gradients since then",
        Unproven("set .grad of {it|each leaf} to None after each update", needs=("by_hand",)),
        Unproven("call optimizer.zero_grad() in each iteration, before backward()"),
    ),
    _silent(
        "gradients_cleared_early",
        "the gradients of each backward() call were cleared before the optimizer's step, so that"
        " the steps had none and changed nothing",
        Unproven("call optimizer.zero_grad() before backward(), or after optimizer.step()"),
    ),
    _silent(
        "autocast_stale",
        "autocast keeps the casts of weights until its block ends; after an optimizer's step the"
        " forward pass still used the casts of the old weights",
        Unproven(
            "enter torch.autocast in each iteration, around the forward pass and the loss only"
        ),
    ),
    _silent(
        "gradient_changed_in_backward",
        "backward() of {it|a custom function} changes its grad_output in place; other parts of the"
        " graph may still need it",
        Unproven(
            "compute a new tensor in backward(): grad_output * x in place of grad_output.mul_(x)"
        ),
    ),
    _silent(
        "step_inside_backward",
        "a fused optimizer stepped in a hook during the backward pass, and the rest of that pass"
        " needs the old weights (PyTorch raises nothing)",
        Unproven("step after the backward pass has ended"),
    ),
    _silent(
        "gradient_still_scaled",
        "a gradient of a scaled loss is a part of this loss, and is still scaled",
        Unproven("unscale the gradient before it enters the loss: divide it by scaler.get_scale()"),
    ),
    _silent(
        "intermediate_saved",
        "{it|a custom function} saves a value that its forward() computed, which has no graph: the"
        " second derivative lacks the terms that go through that value",
        Fix(
            "save the inputs, and recompute the value from them in backward()",
            otherwise="return the value as one more output of forward(), and save that output",
        ),
    ),
)
