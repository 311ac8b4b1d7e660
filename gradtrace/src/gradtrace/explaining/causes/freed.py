"""A part of the graph had been freed."""

from __future__ import annotations

from gradtrace.explaining.causes.table import CERTAIN, LIKELY, SEEN, Cause, Fix, Rule

RULES = {
    "freed": (
        Rule("shared_subgraph", ("nested",), CERTAIN),
        Rule("forward_not_rerun", ("loss_was_run",), CERTAIN),
        Rule("shared_subgraph", ("not built_after",), CERTAIN),
        Rule("buffer_has_graph", ("in_a_buffer",), SEEN),
        Rule("loss_accumulated", ("a_loss_is_added",), SEEN),
        Rule("replay_keeps_graph", ("in_a_cache", "not passed_on"), SEEN),
        Rule("hidden_state_carried", ("passed_on",), SEEN),
        Rule("replay_keeps_graph", ("in_a_container", "made_again"), SEEN),
        Rule("replay_keeps_graph", ("in_a_container", "refilled"), SEEN),
        Rule("dataset_tensor_has_graph", ("in_a_dataset",), SEEN),
        Rule("shared_subgraph", ("looped_over", "not trains", "not weights_changed"), LIKELY),
        Rule("dataset_tensor_has_graph", ("looped_over",), LIKELY),
        Rule("shared_subgraph", ("used_again", "other_parameters", "not weights_changed"), SEEN),
        Rule("hidden_state_carried", ("made_again", "repeated", "not used_again"), LIKELY),
        Rule("computed_once_outside_loop", ("used_again",), SEEN),
        Rule("shared_subgraph", (), SEEN),
    ),
}

CAUSES = (
    Cause(
        "hidden_state_carried",
        "freed",
        "a state from the last iteration is still part of this loss, and that part of the graph"
        " was freed by the backward of the last iteration",
        (
            Fix(
                "reset {it|the state} in each iteration, to what it was before the first: this"
                " loss reaches {trained|some parameters} through the freed part only",
                needs=("trained_only_there",),
                proof=None,
                otherwise="where the state is to go on, detach it at the end of each iteration,"
                " {detached|detach what goes on into the next one}; the first"
                " iteration alone then trains {trained|what it began with}",
            ),
            Fix(
                "at the end of each iteration: {detached|detach what goes on into the next"
                " one}, if it is a state",
                needs=("in_a_cache",),
                proof=None,
                otherwise="empty {it|it} after each step of the optimizer, if it is a cache of"
                " what is computed from parameters: detached they would get no"
                " gradient through it",
            ),
            Fix(
                "at the end of each iteration: {detached|detach what goes on into the next one}"
                " (or reset it, where each iteration starts afresh)",
                proof=("every_entry_is_named",),
                otherwise="detach all that goes from one iteration into the next",
            ),
        ),
    ),
    Cause(
        "computed_once_outside_loop",
        "freed",
        "something that needs gradients was computed once and is used in every iteration; the"
        " first backward freed its graph",
        (
            Fix(
                "detach {it|it} where this loss reads it: the optimizer that steps in this loop"
                " does not train what is behind it",
                needs=("only_others_stepped",),
                proof=None,
                otherwise="recompute {it|it} in each iteration, before it is used, if this"
                " loss is to train through it, too",
            ),
            Fix(
                "recompute {it|it} in each iteration, before it is used (to detach it would"
                " end the training of {trained|the parameters behind it})",
                needs=("optimizers_are_known", "trained_only_there"),
                proof=("every_entry_is_named",),
                otherwise="detach {it|it}, once, if what it was computed from is not to be trained",
            ),
            Fix(
                "recompute {it|it} in each forward pass: the module keeps it from the first one,"
                " and parameters that are trained lie behind it",
                needs=("in_a_module", "trained_there"),
                proof=None,
                otherwise="detach {it|it}, once, if it is to enter as numbers",
            ),
            Fix(
                "detach {it|it}, once, where it is made, if it is to enter as numbers (old"
                " log-probabilities, an advantage, a target)",
                needs=("optimizers_are_known", "trained_there"),
                proof=None,
                otherwise="recompute {it|it} in each iteration, before it is used, if this"
                " loss is to train through it, too",
            ),
            Fix(
                "detach {it|it}, once, where it is made: no optimizer trains what it was"
                " computed from",
                needs=("optimizers_are_known",),
                proof=("every_entry_is_named",),
                otherwise="recompute {it|it} in each iteration",
            ),
            Fix(
                "detach {it|it}, once, where it is made: what it was computed from was never"
                " changed, other leaves were",
                needs=("not trained_there", "others_are_trained"),
                proof=None,
                otherwise="recompute {it|it} in each iteration, if it is to be trained",
            ),
            Fix(
                "recompute {it|it} in each iteration, before it is used",
                proof=None,
                otherwise="detach {it|it}, once, if what it was computed from is not to be trained",
            ),
        ),
    ),
    Cause(
        "forward_not_rerun",
        "freed",
        "the forward pass was not run again: this loss has already been through backward",
        (
            Fix(
                "run the forward pass again before each backward(){closure|}",
                needs=("weights_changed",),
            ),
            Fix(
                "run the forward pass again before each backward(){closure|}; or leave the second"
                " backward() out, where nothing has changed since the first",
            ),
        ),
    ),
    Cause(
        "shared_subgraph",
        "freed",
        "two losses share a part of the graph, and the first backward freed it",
        (
            Fix(
                "give the call at the line below retain_graph=True: {it|this backward} runs again"
                " for each loss, and needs that graph each time",
                needs=("nested",),
                proof=None,
                otherwise="add the losses and call backward() once",
            ),
            Fix(
                "give that first call retain_graph=True, since this loss needs the graph, too;"
                " or create_graph=True, if this loss is made of the gradient that it computed",
                needs=("freed_by_a_gradient",),
                proof=None,
            ),
            Fix(
                "detach {it|the shared part}, once, where it is made: no optimizer trains what"
                " is behind it",
                needs=("optimizers_are_known", "not trained_there"),
            ),
            Fix(
                "detach {it|the shared part} where the loss of the first backward reads it: the"
                " optimizer that stepped after that does not train what is behind it",
                needs=("only_others_stepped",),
                proof=None,
                otherwise="add the losses and call backward once, if both are to train it",
            ),
            Fix(
                "detach {it|the shared part} where the loss of the second backward reads it:"
                " its optimizer has stepped after the first",
                needs=("its_own_stepped",),
                proof=None,
                otherwise="if the second loss is to train it, too, recompute it after the step",
            ),
            Fix(
                "recompute {it|the shared part} for the second loss, after the weights have"
                " changed",
                needs=("weights_changed",),
                proof=None,
                otherwise="add the losses, call backward once, and change the weights after it",
            ),
            Fix(
                "let each loss train its own network only:"
                " loss.backward(inputs=list(own.parameters())), the first with"
                " retain_graph=True, too",
                needs=("several_optimizers",),
                proof=None,
                otherwise="if both losses are to train all that they reach, add them and call"
                " backward once",
            ),
            Fix(
                "add the losses and call backward once: (first + second).backward()",
                needs=("one_optimizer",),
            ),
            Fix(
                "if both losses are to train all that they reach, add them and call backward once",
                proof=None,
                otherwise="if only one of them is to train {it|the shared part}, detach it"
                " where the other reads it",
            ),
        ),
    ),
    Cause(
        "loss_accumulated",
        "freed",
        "this loss contains a loss on which backward() was called before",
        (
            Fix(
                "call backward on the loss of this iteration alone, and keep the total as a"
                " number: total += loss.item()",
            ),
        ),
    ),
    Cause(
        "replay_keeps_graph",
        "freed",
        "a stored tensor still has the graph of the iteration that made it, which was freed",
        (
            Fix(
                "empty {it|the cache} after each step of the optimizer, so that its entries are"
                " recomputed: detached, they would end the training of the parameters that they"
                " were computed from",
                needs=("in_a_cache", "trained_there"),
                proof=("every_entry_is_named", "optimizers_are_known"),
                otherwise="detach what is put into {it|the cache}, if it is to enter as numbers",
            ),
            Fix(
                "empty {it|the container} at the end of each iteration, and the lists filled"
                " beside it, if each update is to start with empty ones",
                needs=("trained_through_the_container", "not held_by_a_name_too"),
                proof=None,
                otherwise="detach all that it holds at the end of each iteration, if the old"
                " entries are to stay as numbers",
            ),
            Fix(
                "at the end of each iteration, detach all that {it|the container}"
                " holds{as_code|}, if the old entries are to stay as numbers; detached before,"
                " they would train nothing",
                needs=("trained_through_the_container",),
                proof=None,
                otherwise="empty it, if each update is to start with an empty one",
            ),
            Fix(
                "detach what is put into {it|the container}: x.detach()",
                proof=("every_entry_is_named",),
                otherwise="detach all that it holds at the end of each iteration",
            ),
        ),
    ),
    Cause(
        "dataset_tensor_has_graph",
        "freed",
        "the dataset holds tensors with a graph; the first batch's backward freed it",
        (
            Fix(
                "compute {it|the tensors} inside the loop (to detach them would end the"
                " training of {trained|the parameters behind them})",
                needs=("trained_only_there",),
                proof=None,
                otherwise="detach {it|them} before the dataset gets them, if they are not to be",
            ),
            Fix(
                "detach {it|the tensors} before the dataset gets them",
                needs=("not trained_there",),
                proof=("optimizers_are_known", "every_entry_is_named"),
                otherwise="compute them inside the loop, if they are to be trained",
            ),
            Fix(
                "detach {it|the tensors} before the dataset gets them, or compute them inside"
                " the loop",
                proof=None,
            ),
        ),
    ),
    Cause(
        "buffer_has_graph",
        "freed",
        "a module's buffer holds a tensor with a graph, which an earlier backward freed",
        (
            Fix(
                "work on a copy: take {it|the buffer}.clone() in the forward pass and write"
                " into that, so that the buffer itself keeps no graph",
                needs=("written_in_place",),
                proof=None,
                otherwise="if the buffer is to keep what is written, detach {it|it} after each"
                " backward",
            ),
            Fix(
                "recompute {it|the buffer} in each forward pass: parameters are trained"
                " through it only",
                needs=("not made_again", "trained_only_there"),
                proof=None,
            ),
            Fix(
                "at the end of each iteration: {detached|self.buffer = self.buffer.detach()};"
                " or detach what is written into it",
                proof=("every_entry_is_named",),
            ),
        ),
    ),
)
