"""Causes of errors about computations that PyTorch cannot differentiate in this way."""

from functools import partial

from gradtrace.explaining.causes.table import CERTAIN, LIKELY, Cause, Criterion, Fix, Unproven

_unsupported = partial(Cause, "unsupported")

USE_REENTRANT = "call checkpoint(..., use_reentrant=False)"

CRITERIA = {
    "function": (
        Criterion("once_differentiable", ("leaves_pytorch",), LIKELY),
        Criterion("function_backward_twice", ("ran_before",), LIKELY),
        Criterion("function_keeps_too_little", ("not_kept",), LIKELY),
        Criterion("function_backward_failed", (), CERTAIN),
    )
}

CAUSES = (
    _unsupported(
        "double_backward_unsupported",
        "{operation|an operation in this graph} has no second derivative in PyTorch",
        Fix("{replacement|use operations that have a second derivative in its place}"),
    ),
    _unsupported(
        "double_backward_compiled",
        "the backward pass of a compiled model (torch.compile) cannot be differentiated again",
        Fix(
            "if the gradient is part of the loss, call the original model, not the one that"
            " torch.compile returned. Or exclude the part that is differentiated twice:"
            " torch.compiler.disable(part)"
        ),
    ),
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
        "cudnn_rnn_eval",
        "the RNN's forward pass ran in eval mode, in which cuDNN keeps nothing for backward",
        Fix(
            "run the forward pass in train() mode, or with"
            " torch.backends.cudnn.flags(enabled=False)"
        ),
    ),
    _unsupported(
        "ddp_unused_parameter",
        "a parameter took no part in the loss, and DistributedDataParallel waits for its gradient",
        Fix("use every output in the loss, or pass find_unused_parameters=True"),
    ),
    _unsupported(
        "ddp_ready_twice",
        "DistributedDataParallel averages the gradient of each parameter once for each forward"
        " pass, and a second backward call computed it again",
        Fix(
            "add the losses and call backward() once for each forward pass",
            otherwise="call checkpoint(..., use_reentrant=False), if a checkpoint runs: a"
            " reentrant checkpoint calls backward() inside the backward pass",
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
        "view_detached_inplace",
        "detach_() is forbidden for a view, because the view shares its graph with the tensor from"
        " which it was taken",
        Fix("use the new tensor that detach() returns: {it|x} = {it|x}.detach()"),
    ),
    _unsupported(
        "copied_with_graph",
        "copy.deepcopy copies leaves only, but {it|a tensor of this object} has a graph, because it"
        " was computed from tensors that require grad",
        Fix(
            "keep {it|the tensor} in a local variable, so that the copied object does not hold it",
            otherwise="before the copy: {detached|detach the tensor}, if other code reads it",
        ),
    ),
    _unsupported(
        "donated_buffers",
        "a compiled model (torch.compile) gives up its saved tensors in the first backward pass, so"
        " this graph cannot be retained",
        Fix(
            "add the losses and call backward() once, without retain_graph=True; if the gradient is"
            " part of the loss, call the original model, not the one that torch.compile returned",
            otherwise="compile with torch._functorch.config.donated_buffer = False, which"
            " keeps the saved tensors",
        ),
    ),
    _unsupported(
        "saved_tensor_hooks",
        "saved-tensor hooks (a checkpoint without reentry sets some) do not work inside the"
        " transforms of torch.func",
        Fix(
            "call the function without the checkpoint under torch.func; or use"
            " torch.autograd.functional or torch.autograd.grad instead"
        ),
    ),
    _unsupported(
        "transform_not_scalar",
        "torch.func.grad differentiates a function that returns a single number, but this function"
        " returned a tensor with dimensions",
        Fix(
            "return a scalar from that function, for example loss.mean()",
            otherwise="for the gradient of each sample, let the function return the loss of one"
            " sample, without a dimension, and call torch.func.vmap(torch.func.grad(f), in_dims=…)",
        ),
    ),
    _unsupported(
        "vmap_reads_a_number",
        "torch.func.vmap runs a function once for all samples, so it cannot read the number of one"
        " sample, as .item() or an if on a tensor does",
        Fix(
            "select by torch.where(condition, a, b) instead of an if on a tensor, and use the"
            " tensor itself instead of the number that .item() returns"
        ),
    ),
    _unsupported(
        "integers_require_grad",
        "only tensors of floating-point or complex numbers can require grad, and this one has"
        " another dtype",
        Fix(
            "create that tensor with a floating-point dtype, or convert it first: x.float()",
            otherwise="if it is an argument under torch.func.grad that needs no gradient, choose"
            " the argument to differentiate by argnums",
        ),
    ),
    _unsupported(
        "nan_in_backward",
        "anomaly mode found the first gradient that is not a number",
        Unproven(
            "look at the forward call that the warning above this error shows, for a division by"
            " zero, or sqrt, log, norm or atan2 at zero. Keep its input away from zero"
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
    _unsupported(
        "function_marks_dirty",
        "forward() of a custom function changed an input in place, but did not return that input",
        Unproven(
            "return the changed input itself from forward, or compute a new tensor there, without"
            " ctx.mark_dirty()"
        ),
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
