"""The kinds of repair: the rank of each, and the condition under which it is right."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Repair:
    """A kind of repair, and when it is right."""

    name: str  # its identifier in the JSON output
    rank: int  # textbook idioms first, then forward passes, then arguments that keep the graph
    when: str  # completes the sentence "it is right if …"
    cuts: bool = False  # whether it removes gradients
    keeps: bool = True  # whether every loss keeps its value, including the failing call's
    compared: bool = True  # whether a proof needs the loss of a failing line before backward()


CREATE_GRAPH = Repair("create_graph", 10, "the gradient is to be differentiated")
USE_REENTRANT = Repair("use_reentrant", 10, "checkpointing is to stay")
REPEAT_DRAWS = Repair("repeat_draws", 10, "both runs are to draw the same random numbers")
NUMBER = Repair("number", 11, "the value is only reported, not trained on")
# A step fails, after backward().
CLEAR_GRADIENTS = Repair("clear_gradients", 11, "each step follows its own loss", compared=False)
REGISTER = Repair("register", 11, "the modules are to be trained")
RETURN_NONE = Repair("return_none", 11, "the other inputs of the function have no gradient")
NEW_PARAMETER = Repair("new_parameter", 11, "the optimizer gets the new parameter")
RETURN_ORDER = Repair("return_order", 11, "these gradients belong to these inputs")
RESHAPE = Repair("reshape", 12, "the elements of the gradient are in the right order")
RETAIN_GRADIENT = Repair("retain_gradient", 12, "the result's gradient is wanted", compared=False)
REQUIRE_GRADIENT = Repair("require_gradient", 12, "the gradient of that tensor is wanted")
LEAF = Repair("leaf", 12, "the values themselves are to be trained", cuts=True)
AVERAGE = Repair("average", 12, "the loss is the mean of its elements", keeps=False, compared=False)
IN_TORCH = Repair("in_torch", 12, "the loss is to train through the result", compared=False)
OF_COPY = Repair("of_copy", 12, "the gradient at these equal values is wanted", compared=False)
PART = Repair("part", 12, "the gradient of that part is wanted")
UPDATE_SCALER = Repair("update_scaler", 12, "its step is skipped on purpose", compared=False)
PASS_ARGUMENT = Repair("pass_argument", 12, "both calls are to use the same value", keeps=False)
BATCHED = Repair("batched", 12, "the values differ between samples", compared=False)
OUT_OF_PLACE = Repair("out_of_place", 12, "the backward pass needs the old value")
CLONE_USED = Repair("clone_used", 13, "the backward pass needs the earlier value")
OWN_BUFFERS = Repair("own_buffers", 13, "its statistics need not be stored", compared=False)
CLONE_WRITTEN = Repair("clone_written", 14, "the value is for this iteration only", keeps=False)
DETACH = Repair("detach", 14, "the loss uses the tensor as a constant", cuts=True)
DETACH_STATE = Repair("detach_state", 15, "the state carries over, but not its graph", cuts=True)
ADD_LOSSES = Repair("add_losses", 17, "each loss is to train all parameters that it reaches")
DETACH_SHARED = Repair("detach_shared", 18, "each loss is to train its own parameters", cuts=True)
NEW_SUM = Repair("new_sum", 16, "each sum is to have its own terms only", keeps=False)
TOTAL_ALONE = Repair("total_alone", 17, "the total is the whole objective")
ADD_ROUNDS = Repair("add_rounds", 19, "all iterations of the loop belong to one step")
CLEAR = Repair("clear", 20, "each iteration begins with an empty list", keeps=False)
COMPUTE_AGAIN = Repair("compute_again", 21, "the value depends on trained parameters", keeps=False)
NO_CACHE = Repair("no_cache", 22, "each forward pass is to cast the weights again", keeps=False)
RESET_STATE = Repair("reset_state", 23, "each iteration begins with a new state", keeps=False)
KEEP_GRADIENT = Repair("keep_gradient", 25, "the value is to be trained")
MOVE_DETACH = Repair("move_detach", 26, "only that tensor is not to be trained", cuts=True)
NARROW_REGION = Repair("narrow_region", 26, "the rest of the block is not to be trained")
NO_GRAD = Repair("no_grad", 27, "the change itself is not to be differentiated")
SWITCH_ON = Repair("switch_on", 27, "these parameters are to be trained")
ASK_LESS = Repair("ask_less", 27, "the other parameters are frozen on purpose")
OPTIMIZER_LATER = Repair("optimizer_later", 27, "the optimizer is to train the new parameters")
OPTIMIZER_AGAIN = Repair("optimizer_again", 28, "its momentum and other state are to begin again")
SWITCH = Repair("switch", 30, "what is switched off is not needed")
FORWARD_AGAIN = Repair("forward_again", 40, "this loss belongs to the updated weights", keeps=False)
OWN_INPUTS = Repair("own_inputs", 41, "both losses belong to the weights before the steps")
STEP_LATER = Repair("step_later", 42, "the later loss is to train these parameters, too")
NO_CHECKPOINT = Repair("no_checkpoint", 80, "its intermediate results fit in memory")
RETAIN_GRAPH = Repair("retain_graph", 90, "both backward calls are to run over the same graph")
