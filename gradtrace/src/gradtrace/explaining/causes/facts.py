"""The facts that entail a cause or that a fix needs, each as a sentence.

``not name`` is the sentence for a fact that must not hold.
"""

FACTS = {
    "nested": "this backward call runs inside a custom function's backward()",
    "loss_was_run": "an earlier backward call on the same loss freed every tensor that this loss"
    " saved, and only factors and sums of losses are new",
    "used_again": "the freed part was computed once, and is used by lines that used it before",
    "another_loss": "this is not the earlier loss, computed again by the same lines",
    "not used_again": "the lines that use the freed part had not used it before",
    "repeated": "the same calls have led to backward() before, after the freed part was computed",
    "not built_after": "the whole loss had been computed when the earlier backward call ran",
    "not trains": "the new part of this loss reaches no parameters of its own",
    "made_again": "the line that computed the freed part has run again since",
    "passed_on": "this loss reaches the freed part through a later result of the same line",
    "in_a_buffer": "a buffer of a module holds the tensor",
    "written_in_place": "a part of the tensor, or a view of it, was written to",
    "a_loss_is_added": "this loss is a sum, and backward() was called before on one of its terms",
    "in_a_module": "an attribute of a module holds the tensor",
    "not in_a_module": "no attribute of a module holds the tensor",
    "stored": "a list, tuple, dict, set or deque holds the tensor beside newer ones",
    "carried_over": "the changed tensor belongs to an iteration whose graph was retained, and"
    " a variable carries the result of that line into the next iteration",
    "freed_by_a_gradient": "a call with some inputs only (autograd.grad, or inputs=) freed it",
    "value_has_graph": "the written value is computed from tensors that require grad",
    "trained_there": "the freed part was computed from parameters that are trained",
    "trained_only_there": "this loss reaches trained parameters only through the freed part",
    "trained_through_the_container": "this loss reaches trained parameters only through that"
    " container",
    "every_entry_is_named": "this loss reaches the freed part only through the named variables",
    "optimizers_are_known": "an optimizer trains some of these parameters",
    "several_optimizers": "several optimizers train the parameters that these losses reach",
    "one_optimizer": "one optimizer trains all parameters that are reached",
    "others_are_trained": "the new part of this loss reaches parameters that are trained",
    "weights_changed": "the weights were changed, or their gradients cleared, between the two"
    " backward calls",
    "not weights_changed": "no change of the weights between the two backward calls was recorded",
    "first_trains_others": "the optimizer of the earlier loss does not train the shared part",
    "second_trains_others": "the optimizer of the shared part does not train the new part",
    "trained_by_another_loss": "another loss, or another optimizer than that of this loss, trains"
    " the parameters of the freed part",
    "optimizer_wrote": "an optimizer made the change",
    "by_a_layer": "code of PyTorch made the change, as inplace=True or max_norm requests",
    "through_a_view": "the change was made through a view of the tensor",
    "differentiable_step": "the gradient of that step was computed with create_graph=True",
    "written_once": "the tensor was changed once",
    "a_leaf": "the changed tensor is a parameter or another leaf",
    "backward_between": "a backward call lies between the operation and the change",
    "cut_by_detach": "detach() or .data removed the tensor from the graph",
    "cut_by_copy": "the tensor's numbers were copied out of PyTorch and into a new tensor",
    "cut_by_line": "this line computes a tensor without a graph from tensors that have one",
    "gradients_are_off": "an operation or this backward call ran in torch.no_grad() or"
    " torch.inference_mode()",
    "cut_by_update": "a parameter was updated by a new tensor, in torch.no_grad()",
    "cut_by_first_order": "a gradient was computed without create_graph=True",
    "cut_by_operation": "an operation between the parameters and the loss has no derivative",
    "cut_by_function": "the gradient went through a custom function whose backward() records no"
    " graph",
    "in_a_checkpoint": "a reentrant checkpoint ran the forward pass without gradients, or PyTorch"
    " has warned that none of the checkpoint's inputs requires grad",
    "frozen": "requires_grad is False for the parameters that the tensor was computed from",
    "in_inference_mode": "inference mode was enabled where backward() was called, so nothing was"
    " recorded, even under enable_grad()",
    "made_in_inference_mode": "a needed tensor was created in torch.inference_mode()",
    "computed_in_forward": "the gradient went through a custom function whose backward uses values"
    " that its forward computed, and forward records no graph",
    "others_take_part": "the result was computed from the other inputs",
    "a_copy_takes_part": "the result was computed from other leaves of the same shapes",
    "asked_of_what_is_off": "a tensor whose gradient was requested does not require grad",
    "ran_before": "an earlier backward call has run the function's backward()",
    "changes_state": "the checkpointed function changes a value that outlives its call",
    "not_kept": "backward() reads more from ctx than forward() kept there",
    "wrong_shape": "the gradient and the input have different shapes",
    "creates_graph": "each backward call has create_graph=True, so that .grad has a graph",
    "to_integers": "an operation returned indices or a mask, such as topk, argmax or a comparison",
    "set_data": "a value that was computed from the parameters was written into a leaf",
    "copied": "deepcopy() or state_dict() made parameters that take the place of the optimizer's",
    "larger": "each backward call of this line runs over a larger graph than the last one",
    "together": "both losses called backward() before the step",
    "replaced": "an optimizer holds a parameter that no variable reaches any more",
    "on_ctx": "the changed tensor is an attribute of a custom function's ctx",
}
