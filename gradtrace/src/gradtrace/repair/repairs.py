"""The kinds of repair: which are better, when each is right, and for which cause it comes first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Repair:
    """A kind of repair.

    ``rank`` puts better ones first; ``when`` completes "it is right if …".  One that ``cuts`` takes
    gradients away from something.  One that ``keeps`` the mathematics leaves every loss as it was,
    that of the failing backward, too.  ``first_for`` gives, for each diagnosed cause for which this
    kind is tried before all others, its position among those that are.
    """

    name: str
    rank: int
    when: str
    cuts: bool = False
    keeps: bool = True
    first_for: Mapping[str, int] = field(default_factory=dict, hash=False)


CREATE_GRAPH = Repair("create_graph", 10, "the gradient is to be differentiated")
USE_REENTRANT = Repair("use_reentrant", 10, "checkpointing is to stay")
NUMBER = Repair(
    "number",
    11,
    "the sum is only to be looked at",
    first_for={"loss_accumulated": 0, "graph_grows": 0},
)
OUT_OF_PLACE = Repair(
    "out_of_place", 12, "the old value is needed by backward", first_for={"inplace_on_saved": 0}
)
CLONE_WRITTEN = Repair(
    "clone_written",
    13,
    "what is written there is for this iteration only",
    keeps=False,
    first_for={"buffer_has_graph": 0, "inplace_on_saved": 1},
)
CLONE_USED = Repair(
    "clone_used",
    14,
    "backward needs the value as it was then",
    first_for={"inplace_on_parameter_in_forward": 0},
)
DETACH_STATE = Repair(
    "detach_state",
    15,
    "the state goes on, and no gradient goes back",
    cuts=True,
    first_for={"hidden_state_carried": 0, "loss_accumulated": 1, "graph_grows": 1},
)
DETACH_STORED = Repair(
    "detach_stored",
    16,
    "the state goes on, and no gradient goes back",
    cuts=True,
    first_for={"hidden_state_carried": 1, "replay_keeps_graph": 0, "buffer_has_graph": 1},
)
CLEAR = Repair(
    "clear",
    17,
    "each iteration begins with an empty list",
    keeps=False,
    first_for={"replay_keeps_graph": 1},
)
COMPUTE_AGAIN = Repair(
    "compute_again",
    18,
    "it depends on what is trained",
    keeps=False,
    first_for={"computed_once_outside_loop": 0, "dataset_tensor_has_graph": 1},
)
BEGIN_SUM = Repair(
    "begin_sum",
    19,
    "each pass has a loss of its own",
    keeps=False,
    first_for={"loss_accumulated": 0, "shared_subgraph": 0},
)
FORWARD_AGAIN = Repair(
    "forward_again",
    20,
    "this loss is to see the weights as they are now",
    keeps=False,
    first_for={"forward_not_rerun": 0, "shared_subgraph": 5, "optimizer_step_between_backwards": 1},
)
RESET_STATE = Repair(
    "reset_state",
    21,
    "each iteration begins with a new state",
    keeps=False,
    first_for={"hidden_state_carried": 2},
)
OWN_INPUTS = Repair(
    "own_inputs",
    22,
    "both losses are those of the weights before the steps",
    first_for={"shared_subgraph": 4, "optimizer_step_between_backwards": 2},
)
DETACH_SHARED = Repair(
    "detach_shared",
    23,
    "each loss is to train its own parameters",
    cuts=True,
    first_for={
        "shared_subgraph": 1,
        "computed_once_outside_loop": 2,
        "optimizer_step_between_backwards": 0,
    },
)
ADD_LOSSES = Repair(
    "add_losses", 24, "each loss is to train all that it reaches", first_for={"shared_subgraph": 0}
)
ADD_ROUNDS = Repair(
    "add_rounds", 24, "all rounds are to be one step", first_for={"shared_subgraph": 2}
)
MOVE_DETACH = Repair(
    "move_detach",
    25,
    "that is what is not to be trained",
    cuts=True,
    first_for={"detach_wrong_place": 0},
)
KEEP_GRADIENT = Repair(
    "keep_gradient",
    26,
    "it is to be trained",
    first_for={"detach_wrong_place": 1, "never_trained": 0},
)
NO_GRAD = Repair("no_grad", 27, "the change itself is not to be differentiated")
SWITCH_ON = Repair("switch_on", 27, "it is to be trained")
ASK_LESS = Repair("ask_less", 27, "the others are meant to be off")
DIFFERENTIABLE = Repair(
    "differentiable", 27, "the loss is meant to be that of this value", keeps=False
)
OPTIMIZER_LATER = Repair("optimizer_later", 27, "the optimizer is to hold what is trained")
TRAIN_MODE = Repair("train_mode", 28, "the forward pass is one of training", keeps=False)
SWITCH = Repair("switch", 30, "the option is not needed")
REDUCE = Repair("reduce", 31, "this is the loss that is meant", keeps=False)
STEP_LATER = Repair("step_later", 40, "the later loss is to train these parameters, too")
DETACH = Repair(
    "detach",
    50,
    "it is not to be trained",
    cuts=True,
    first_for={"computed_once_outside_loop": 1, "dataset_tensor_has_graph": 0},
)
RETAIN_GRAPH = Repair("retain_graph", 90, "both backward calls are to run over the same graph")
