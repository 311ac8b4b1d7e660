"""Causes of errors about saved tensors that were freed."""

from functools import partial

from gradtrace.explaining.causes.table import CERTAIN, LIKELY, OBSERVED, Cause, Criterion, Fix

_freed = partial(Cause, "freed")

CRITERIA = {
    "freed": (
        Criterion("shared_subgraph", ("nested",), CERTAIN),
        Criterion("forward_not_rerun", ("loss_was_run",), CERTAIN),
        Criterion("shared_subgraph", ("not built_after",), CERTAIN),
        Criterion("buffer_has_graph", ("in_a_buffer",), OBSERVED),
        Criterion("loss_accumulated", ("a_loss_is_added", "repeated"), OBSERVED),
        Criterion("loss_accumulated", ("a_loss_is_added", "weights_changed"), OBSERVED),
        Criterion("shared_subgraph", ("a_loss_is_added", "optimizers_are_known"), OBSERVED),
        Criterion("loss_accumulated", ("a_loss_is_added", "adds_again"), OBSERVED),
        Criterion("shared_subgraph", ("a_loss_is_added",), OBSERVED),
        Criterion("hidden_state_carried", ("passed_on",), OBSERVED),
        Criterion("replay_keeps_graph", ("stored",), OBSERVED),
        Criterion("computed_once_outside_loop", ("used_again", "never_trained"), LIKELY),
        Criterion(
            "shared_subgraph",
            ("used_again", "optimizers_are_known", "not weights_changed", "not in_a_module"),
            OBSERVED,
        ),
        Criterion(
            "shared_subgraph",
            ("used_again", "another_loss", "not trains", "not weights_changed", "not in_a_module"),
            LIKELY,
        ),
        Criterion("hidden_state_carried", ("made_again", "repeated", "not used_again"), LIKELY),
        Criterion("computed_once_outside_loop", ("used_again",), OBSERVED),
        Criterion("shared_subgraph", (), OBSERVED),
    )
}

_RESET = Fix(
    "reset {it|the state} in each iteration to its first value, because this loss reaches"
    " {trained|some parameters} only through the freed graph",
    needs=("trained_only_there",),
    otherwise="if {it|the state} must carry over, then at the end of each iteration:"
    " {detached|detach the state}. After that only the first iteration trains"
    " {trained|the parameters that the state depends on}",
)

CAUSES = (
    _freed(
        "hidden_state_carried",
        "a state from the last iteration is still part of this loss, and the backward call of that"
        " iteration freed its graph",
        _RESET,
        Fix(
            "at the end of each iteration: {detached|detach the state that carries over} (or reset"
            " {it|the state}, if each iteration starts afresh)",
            proof=("every_entry_is_named",),
        ),
    ),
    _freed(
        "computed_once_outside_loop",
        "a tensor that needs gradients was computed once and is used in every iteration; the first"
        " backward call freed its graph",
        Fix(
            "detach {tensor|the tensor} in the loss whose optimizer does not train the parameters"
            " that {tensor|the tensor} depends on, because another loss trains them",
            needs=("trained_by_another_loss",),
            otherwise="recompute {it|the tensor} {often|in each iteration}, before it is used, if"
            " both losses must train them",
        ),
        Fix(
            "recompute {it|the tensor} {often|in each iteration}, before it is used (if detached,"
            " it would no longer train {trained|its parameters})",
            needs=("trained_only_there",),
            proof=("optimizers_are_known", "every_entry_is_named"),
            otherwise="detach {tensor|the tensor}, once, if the parameters that it was computed"
            " from are not to be trained",
        ),
        Fix(
            "recompute {it|the tensor} from its stored inputs in each iteration (a log-probability"
            " from its state and action), because this loss trains the parameters only through"
            " {it|the tensor}",
            needs=("only_the_container_trains",),
            proof=None,
        ),
        Fix(
            "recompute {it|the tensor} in each forward pass, because the module keeps the"
            " tensor of the first pass, which was computed from trained parameters",
            needs=("in_a_module", "trained_there"),
            otherwise="detach {tensor|the tensor}, once, if it enters the loss as a constant",
        ),
        Fix(
            "detach {tensor|the tensor} once, directly after the computation, if the loss uses it"
            " as a constant (old log-probabilities, an advantage, a target)",
            needs=("trained_there",),
            otherwise="recompute {it|the tensor} {often|in each iteration}, before it is used, if"
            " this loss must train through it, too",
        ),
        Fix(
            "detach {tensor|the tensor} once, directly after the computation, because it depends on"
            " no parameter that is trained",
            needs=("others_are_trained",),
            proof=("optimizers_are_known", "every_entry_is_named", "never_stepped"),
            otherwise="recompute {it|the tensor} {often|in each iteration}, if it is to be trained",
        ),
        Fix(
            "recompute {it|the tensor} {often|in each iteration}, before it is used",
            otherwise="detach {tensor|the tensor}, once, if the parameters that it was computed"
            " from are not to be trained",
        ),
    ),
    _freed(
        "forward_not_rerun",
        "the forward pass was not run again: backward() was already called on this loss",
        Fix("run the forward pass again {often|before each backward() call}"),
    ),
    _freed(
        "shared_subgraph",
        "two losses share a part of the graph, and the first backward call freed it",
        Fix(
            "pass retain_graph=True to the call at the line below, because {it|this backward()}"
            " runs again for each loss and needs that graph each time",
            needs=("nested",),
            otherwise="add the losses and call backward() once",
        ),
        Fix(
            "pass create_graph=True to that first call, if this loss contains the gradient that"
            " the call computed: retain_graph=True would leave that term without a graph",
            needs=("freed_by_a_gradient",),
            otherwise="pass retain_graph=True instead, if this loss does not contain that gradient",
        ),
        Fix(
            "call backward() on {second|this loss} alone, because it contains {first|the earlier"
            " loss}, whose gradient would count twice",
            needs=("a_loss_is_added",),
        ),
        Fix(
            "detach {tensor|the shared part} directly after the computation, because no optimizer"
            " trains what it was computed from (as for a target network)",
            needs=("never_trained",),
            proof=("every_entry_is_named",),
            otherwise="add the losses and call backward() once, if both are to train what"
            " {tensor|the shared part} was computed from",
        ),
        Fix(
            "detach {tensor|the shared part} where {first|the first loss} reads it{at|},"
            " {because|because the optimizer of that loss does not train it}",
            needs=("first_trains_others", "not other_ways"),
            otherwise="add the losses and call backward() once, if both losses must train"
            " {tensor|the shared part}",
        ),
        Fix(
            "detach {tensor|the shared part} where {second|the second loss} reads it{at|},"
            " {because|because the optimizer of that loss does not train it}",
            needs=("second_trains_others",),
            otherwise="recompute {it|the shared part} for {second|the second loss}, if that"
            " must train it, too",
        ),
        Fix(
            "add the losses and call backward() once, before all steps, if both are to train what"
            " {tensor|the shared part} was computed from: {sum|(first + second).backward()}",
            needs=("neither_trains_it",),
            otherwise="detach {tensor|the shared part} where both losses read it, if neither is to"
            " train that",
        ),
        Fix(
            "if each loss is to train its own network only, as in a GAN, call"
            " loss.backward(inputs=list(own.parameters())) on each before all steps, and on all but"
            " the last with retain_graph=True, too",
            needs=("two_optimizers",),
            otherwise="if both losses must train all that they reach, add them and call backward()"
            " once, before all steps",
        ),
        Fix(
            "recompute {it|the shared part} for {second|the second loss}, after the weights"
            " have changed",
            needs=("weights_changed",),
            otherwise="add the losses, call backward() once, and change the weights afterwards",
        ),
        Fix(
            "add the losses and call backward() once: {sum|(first + second).backward()}",
            needs=("one_optimizer",),
        ),
        Fix(
            "if both losses are to train all that they reach, add them and call backward() once:"
            " {sum|(first + second).backward()}",
            otherwise="if only one loss is to train {tensor|the shared part}, detach it where the"
            " other loss reads it",
        ),
    ),
    _freed(
        "loss_accumulated",
        "this loss contains a loss on which backward() was called before",
        Fix(
            "call backward() on the loss of this iteration alone, and keep the total as a number:"
            " total += loss.item()"
        ),
    ),
    _freed(
        "replay_keeps_graph",
        "a stored tensor still has the graph of the iteration that made it, which was freed",
        Fix(
            "detach every tensor in {it|the container} at the end of each iteration, because the"
            " program reads older entries, too",
            needs=("reads_older_entries",),
            otherwise="empty {emptied|the container} at the end of each iteration, if each update"
            " is to start with empty lists",
        ),
        Fix(
            "empty {emptied|the container} at the end of each iteration, and the lists filled"
            " beside it, if each update is to start with empty lists",
            needs=("trained_through_the_container",),
            otherwise="detach every tensor in {it|the container} at the end of each iteration, if"
            " the old entries are to stay as numbers",
        ),
        Fix(
            "detach each tensor that is put into {it|the container}: x.detach()",
            proof=("every_entry_is_named",),
            otherwise="detach every tensor in {it|the container} at the end of each iteration",
        ),
    ),
    _freed(
        "buffer_has_graph",
        "a module's buffer holds a tensor with a graph, which an earlier backward call freed",
        Fix(
            "if each forward pass is to start from the same values, write into a clone of"
            " {it|the buffer}, so that the buffer itself keeps no graph",
            needs=("written_in_place",),
            otherwise="if the written values are to stay (a queue), detach {it|the buffer} after"
            " each backward call",
        ),
        _RESET,
        Fix(
            "at the end of each iteration: {detached|self.buffer = self.buffer.detach()}",
            proof=("every_entry_is_named",),
        ),
    ),
)
