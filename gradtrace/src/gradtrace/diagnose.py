"""From a failed backward to its cause, the line where it began, and the fix to prefer.

The error's text gives the family.  The cause within the family follows from the graph as it stands
when backward has just failed: which nodes an earlier call had freed (:mod:`gradtrace.watcher`
remembers), when they were made compared with that call (PyTorch numbers its operations), and which
variables still hold them.  Where the evidence does not decide, the cause is ``"unknown"``.
"""

from __future__ import annotations

import ast
import bisect
import gc
import hashlib
import linecache
import math
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch

from gradtrace.frames import Found, Location, is_users, namespace, reach, user_frame
from gradtrace.graph import ALIVE, FREED, MODIFIED, Graph, describe, roots_of, storage_of, walk

if TYPE_CHECKING:
    from gradtrace.watcher import BackwardCall, Export, Recorder, Sum

SCHEMA = 1
ROOT_TAG = "gradtrace.root"  # on node.metadata: the number of the backward call that began there
CHAIN_TAG = "gradtrace.chain"  # on node.metadata: the sum (watch.Sum) that it adds to

CERTAIN, LIKELY, UNKNOWN = "certain", "likely", "unknown"

# Texts differ between versions of PyTorch: match what they have had in common since 0.4.
_FAMILIES = [
    (r"backward through the graph (a )?second time", "freed", None),
    (r"saved (intermediate|tensors|variables).* freed", "freed", None),
    (r"modified by an inplace operation", "modified", None),
    (r"detached in-place", "modified", None),
    (r"does not require grad and does not have a grad_fn", "no_graph", None),
    (r"[Ii]nference tensors? cannot be saved for backward", "no_graph", "no_grad_region"),
    (r"implicitly created only for scalar", "not_scalar", "not_scalar"),
    (r"leaf Variable that requires grad", "leaf_inplace", "leaf_inplace"),
    (r"not have been used in the graph", "unused_input", "unused_input"),
    (r"marked with @once_differentiable", "unsupported", "once_differentiable"),
    (r"derivative for .* is not implemented", "unsupported", "double_backward_unsupported"),
    (r"[Dd]ouble backwards? is not supported", "unsupported", "double_backward_unsupported"),
    (r"not currently support double backward", "unsupported", "double_backward_unsupported"),
    (r"cudnn RNN backward can only be called in train", "unsupported", "cudnn_rnn_eval"),
    (r"checkpoint(ing)? is (incompatible|not compatible) with", "unsupported",
     "checkpoint_reentrant"),
    (r"finished reduction in the prior iteration", "unsupported", "ddp_unused_parameter"),
]  # fmt: skip

# What each cause means, and the fix to prefer.  {it} is the variable that carried it, if known,
# else "it", or what follows the bar.
_TEXTS = {
    "hidden_state_carried": (
        "a state from the last iteration is still part of this loss, and that part of the graph "
        "was freed by the backward of the last iteration",
        "detach {it|the state} at the start of each iteration, as in h = h.detach()",
    ),
    "computed_once_outside_loop": (
        "something that needs gradients was computed once and is used in every iteration; the "
        "first backward freed its graph",
        "compute {it} anew in each iteration; or detach it, once, if it is not to be trained",
    ),
    "forward_not_rerun": (
        "the forward pass was not run again: this loss has already been through backward",
        "run the forward pass again before each backward",
    ),
    "shared_subgraph": (
        "two losses share a part of the graph, and the first backward freed it",
        "add the losses and call backward once; or detach {it|the shared part} for the loss that "
        "is not to train it",
    ),
    "loss_accumulated": (
        "this loss contains a loss of an earlier iteration, which has been through backward",
        "keep totals as numbers: total += loss.item()",
    ),
    "replay_keeps_graph": (
        "a stored tensor still has the graph of the iteration that made it, which was freed",
        "detach what is stored: buffer.append(x.detach())",
    ),
    "dataset_tensor_has_graph": (
        "the dataset holds tensors with a graph; the first batch's backward freed it",
        "detach {it|the tensors} before the dataset gets them, or compute them inside the loop",
    ),
    "buffer_has_graph": (
        "a module's buffer holds a tensor with a graph, which an earlier backward freed",
        "detach what is written into {it|the buffer}",
    ),
    "optimizer_step_between_backwards": (
        "the optimizer changed weights in place after this loss was computed with the old ones, "
        "and its backward needs the old ones",
        "call every backward first and step afterwards, or compute this loss after the step",
    ),
    "inplace_on_saved": (
        "a tensor that an operation had saved for backward was changed in place",
        "do not write into {it} after its use: take an out-of-place operation, or write into a "
        "clone",
    ),
    "inplace_on_buffer": (
        "a module's buffer that an operation had saved was changed in place",
        "compute with a clone of {it|the buffer}, or update the buffer after backward",
    ),
    "inplace_on_parameter_in_forward": (
        "the forward pass itself changed a parameter in place after it had been used",
        "change {it|the parameter} before it is used, or let the earlier use have a clone",
    ),
    "create_graph_missing": (
        "a gradient is used as if it could be differentiated, but it was computed without "
        "create_graph=True, so no graph is behind it",
        "compute it with torch.autograd.grad(..., create_graph=True)",
    ),
    "detach_wrong_place": (
        "the graph was cut by detach() (or .data, or a new torch.tensor) on the way to this loss",
        "detach only what should get no gradient, not the value that leads to the loss",
    ),
    "no_grad_region": (
        "the forward pass ran where gradients are switched off",
        "run it outside torch.no_grad(), or under torch.enable_grad()",
    ),
    "not_differentiable_op": (
        "an operation without a derivative lies between the parameters and the loss",
        "replace it by a differentiable one (softmax for argmax, say)",
    ),
    "double_backward_unsupported": (
        "an operation in this graph has no second derivative in PyTorch",
        "use an operation that has one (for cuDNN RNNs: torch.backends.cudnn.flags(enabled=False) "
        "around the forward pass)",
    ),
    "checkpoint_reentrant": (
        "reentrant checkpointing supports loss.backward() only, not autograd.grad or inputs=",
        "checkpoint(..., use_reentrant=False)",
    ),
    "cudnn_rnn_eval": (
        "the RNN's forward pass ran in eval mode, in which cuDNN keeps nothing for backward",
        "run the forward pass in train() mode, or with torch.backends.cudnn.flags(enabled=False)",
    ),
    "ddp_unused_parameter": (
        "a parameter took no part in the loss, and DistributedDataParallel waits for its gradient",
        "use every output in the loss, or pass find_unused_parameters=True",
    ),
    "once_differentiable": (
        "a custom function is marked @once_differentiable, so its backward has no graph",
        "remove the mark and write its backward with differentiable operations",
    ),
    "not_scalar": (
        "backward was called on a tensor of more than one element without saying in which "
        "direction",
        "reduce it first (.sum() or .mean()), or pass gradient=",
    ),
    "leaf_inplace": (
        "a leaf that requires grad was changed in place while gradients were recorded",
        "change it under torch.no_grad(), or work on a clone",
    ),
    "unused_input": (
        "a gradient was asked for a tensor that the output was not computed from",
        "use that tensor in the computation, or pass allow_unused=True",
    ),
    "optimizer_step_between_backwards_silent": (
        "an optimizer changed saved weights without PyTorch noticing (fused optimizers do not "
        "bump the version), so this backward mixes old activations with new weights",
        "call every backward first and step afterwards; torch.autograd.graph.increment_version "
        "brings the error back",
    ),
    "data_edit_silent": (
        "a tensor saved for backward was changed past autograd (.data, numpy or dlpack), so the "
        "gradient is silently wrong",
        "edit a clone, or use .detach() instead of .data, which brings the error back",
    ),
    "graph_grows": (
        "a graph is kept alive and grows with each iteration",
        "keep numbers instead of tensors (.item()), or detach what is carried over",
    ),
    "custom_function_ctx": (
        "a custom function keeps a tensor as an attribute of ctx; it was changed in place since, "
        "and no check notices",
        "use ctx.save_for_backward for tensors",
    ),
    "unknown": (
        "what led to this cannot be told from what was seen",
        "see every operation from the program's start: with gradtrace.watch(strict=True), or "
        "python -m gradtrace --strict script.py",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Diagnosis:
    """An error explained: see the names of families and causes in the documentation.

    ``raised_at`` is the line of the user's code that raised, ``began_at`` the line where it began
    (the backward that freed, the write, the cut), ``made_at`` the line that made what both need,
    ``carried_by`` the variable or attribute that carried it there.  None is what is not known.
    """

    family: str
    cause: str
    confidence: str
    raised_at: Location | None
    began_at: Location | None = None
    made_at: Location | None = None
    carried_by: str | None = None
    error: str | None = None
    detail: str | None = None

    @property
    def explanation(self) -> str:
        text = _TEXTS[self.cause][0]
        return text if self.detail is None else f"{text}; {self.detail}"

    @property
    def fix(self) -> str:
        return re.sub(
            r"\{it\|?(.*?)\}", lambda it: self.carried_by or it[1] or "it", _TEXTS[self.cause][1]
        )

    def text(self) -> str:
        """For a person: a few lines that begin with ``gradtrace:``."""
        hedge = "" if self.confidence == CERTAIN else f" ({self.confidence})"
        lines = [f"gradtrace: {self.explanation}.{hedge if self.cause != 'unknown' else ''}"]
        for name, place in (("began", self.began_at), ("made", self.made_at)):
            if place is not None:
                source = linecache.getline(*place).strip()
                lines.append(f"  {name + ':':<9}{place}  {source}".rstrip())
        if self.carried_by is not None:
            lines.append(f"  carried: {self.carried_by}")
        lines.append(f"  fix:     {self.fix}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract of ``python -m gradtrace --json``."""
        data = asdict(self)
        del data["detail"]  # it is part of the explanation
        for key in ("raised_at", "began_at", "made_at"):
            place = data[key]
            data[key] = None if place is None else {"file": place[0], "line": place[1]}
        return {
            "schema": SCHEMA,
            "torch": torch.__version__,
            **data,
            "explanation": self.explanation,
            "fix": self.fix,
        }


def family_of(message: str) -> tuple[str | None, str | None]:
    """Family of an error's text, and its cause where the text decides it."""
    for pattern, family, cause in _FAMILIES:
        if re.search(pattern, message):
            return family, cause
    return None, None


def failure(
    recorder: Recorder, error: Exception, outputs: Any, call: BackwardCall | None
) -> Diagnosis | None:
    """Explain ``error``; None when it is not one of autograd's.

    ``outputs`` are what backward was called on and ``call`` is that call; both are None for an
    error that came from elsewhere.
    """
    family, cause = family_of(str(error))
    if family is None:
        return None
    raised_at, frame = _where_raised(error)
    text = f"{type(error).__name__}: {error}"
    if frame is None or call is not None:
        frame = user_frame(sys._getframe(1))
        raised_at = Location(frame.f_code.co_filename, frame.f_lineno) if frame else raised_at
    case = _Case(recorder, family, raised_at, text, frame)
    if cause is not None:
        return case.diagnosis(cause, CERTAIN)
    if outputs is None:
        return case.diagnosis("unknown", UNKNOWN)
    outputs = (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)
    if family == "freed":
        return case.freed(outputs, call)
    if family == "modified":
        return case.modified(outputs, call, str(error))
    return case.no_graph(outputs)


def _where_raised(error: BaseException) -> tuple[Location | None, FrameType | None]:
    """The innermost line of the user's code in the traceback."""
    found, traceback = (None, None), error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if is_users(frame.f_code):
            found = Location(frame.f_code.co_filename, traceback.tb_lineno), frame
        traceback = traceback.tb_next
    return found


class _Case:
    """One error, and the evidence around it."""

    def __init__(self, recorder, family, raised_at, error, frame):
        self.recorder = recorder
        self.family = family
        self.raised_at = raised_at
        self.error = error
        self.frame = frame

    def diagnosis(self, cause: str, confidence: str, **known: Any) -> Diagnosis:
        return Diagnosis(self.family, cause, confidence, self.raised_at, error=self.error, **known)

    def variables(self) -> Iterator[Found]:
        """What the variables reach, from the innermost frame of the user's outward."""
        frame = self.frame
        while frame is not None:
            if is_users(frame.f_code):
                yield from reach(namespace(frame))
            frame = frame.f_back

    # The graph was freed.

    def freed(self, outputs: tuple, call: BackwardCall | None) -> Diagnosis:
        graph = _Freed(self.recorder, outputs)
        if graph.first is None:
            return self.diagnosis("unknown", UNKNOWN)
        holders = self.holders(graph)
        cause, confidence, found = self.why_freed(graph, call, holders)
        name = graph.assigned_and_used()
        if found is not None and (found in holders or _is_buffer(found) or name is None):
            name = found.name
        return self.diagnosis(
            cause,
            confidence,
            began_at=graph.freeing.location,
            made_at=graph.made_at,
            carried_by=name,
        )

    def why_freed(self, graph: _Freed, call, holders: list[Found]):
        """The cause, how sure it is, and the variable that carried it."""
        found = holders[0] if holders else None
        exact = CERTAIN if graph.made_at is not None else LIKELY
        in_a_loop = any(
            earlier.location == self.raised_at and earlier.sequence_nr > graph.sequence_nr
            for earlier in tuple(self.recorder.calls)
            if earlier is not call
        )
        if not graph.new:  # the loss itself has been through backward
            if not in_a_loop:
                return "forward_not_rerun", CERTAIN, found
            once = self.made_before_the_loop(graph, found)
            return ("computed_once_outside_loop" if once else "forward_not_rerun"), exact, found
        if not graph.built_after:
            return "shared_subgraph", CERTAIN, found
        if not in_a_loop:
            # Built after the graph had been freed: the same loss on an old output, or another one?
            same = graph.names(graph.new) <= set(graph.freeing.operations)
            if not graph.trains and same:
                return "forward_not_rerun", LIKELY, found
            return "shared_subgraph", LIKELY, found
        if holders and not graph.again:
            datasets = _dataset_tensors()
            stored = _first(holders, lambda f: f.inside(_DATASETS) or id(f.value) in datasets)
            if stored is not None:
                return "dataset_tensor_has_graph", exact, stored
        carrier = self.carrier(graph)
        for held in (*holders, carrier):
            if held is not None and _is_buffer(held):
                return "buffer_has_graph", exact, held
        if graph.root_again or (graph.again and graph.is_a_summand()):
            return "loss_accumulated", exact, found or carrier
        if graph.again_through:
            return "hidden_state_carried", exact, found or carrier
        stored = _first(holders, lambda f: f.inside(_CONTAINERS))
        if graph.again or (stored is not None and self.refilled(stored)):
            if stored is not None:
                return "replay_keeps_graph", exact, stored
            return "hidden_state_carried", LIKELY, found
        if stored is not None and self.iterated(stored):
            return "dataset_tensor_has_graph", LIKELY, stored
        if not self.made_before_the_loop(graph, found):
            return "forward_not_rerun", LIKELY, found
        return "computed_once_outside_loop", exact, found

    def made_before_the_loop(self, graph: _Freed, found: Found | None) -> bool:
        """Whether the freed part was made before the loop that raised, or in its first iteration.

        Without the lines of a strict watch: whether the loop assigns the variable that holds it.
        """
        if graph.made_at is None:
            loop = next((tree for *_, tree in self.loops()), None)
            if loop is None or found is None:
                return graph.trains
            return not {found.name, _root(found.name)} & _names(loop, ast.Store)
        made = graph.origin(graph.first)
        for code, line, loop in self.loops():
            lines = [where for what, where in made if what is code]
            if not lines or not loop.lineno <= lines[-1] <= loop.end_lineno:
                return True
            if lines[-1] != line:  # has the line of the loop that made it run again?
                return any((code, lines[-1]) in graph.origin(i) for i in graph.built_after)
        return False

    def loops(self) -> Iterator[tuple[CodeType, int, ast.stmt]]:
        """For each frame of the user's its code and line, and the innermost loop around that."""
        frame = user_frame(self.frame)
        while frame is not None:
            loop = _loop_around(frame)
            if loop is not None:
                yield frame.f_code, frame.f_lineno, loop
            frame = user_frame(frame.f_back)

    def refilled(self, stored: Found) -> bool:
        """Whether its container also holds what was made after the first backward of this line."""
        container = next(owner for owner in stored.owners if isinstance(owner, _CONTAINERS))
        calls = self.recorder.calls
        began = next(call.sequence_nr for call in calls if call.location == self.raised_at)
        return any(
            any(owner is container for owner in found.owners)
            and found.value.grad_fn is not None
            and not hasattr(found.value.grad_fn, "variable")
            and found.value.grad_fn._sequence_nr() >= began
            for found in self.variables()
        )

    def iterated(self, found: Found) -> bool:
        """Whether the loop that raised runs over the container of this variable."""
        frame = user_frame(self.frame)
        loop = None if frame is None else _loop_around(frame)
        return isinstance(loop, ast.For) and _root(found.name) in _names(loop.iter, ast.Load)

    def holders(self, graph: _Freed) -> list[Found]:
        """The variables that hold what was freed, or what was made of it before it was freed."""
        variables = list(self.variables())
        exact = graph.live[graph.first]
        held = [f for f in variables if f.value.grad_fn in graph.before]
        held.sort(key=lambda f: f.value.grad_fn is not exact)
        return held or [f for f in variables if f.owners and f.value.grad_fn in graph.views]

    def carrier(self, graph: _Freed) -> Found | None:
        """The variable that held the freed part and now holds its successor."""
        later = {graph.live[i] for i in graph.again_through}
        return next((f for f in self.variables() if f.value.grad_fn in later), None)

    # A saved tensor was changed.

    def modified(self, outputs: tuple, failed: BackwardCall | None, message: str) -> Diagnosis:
        live, links = walk(roots_of(outputs))
        nodes = describe(live, links).nodes
        wanted = re.search(r"is at version (\d+)", message)
        changed = [
            (node, saved)
            for node in nodes
            for saved in node.saved
            if saved.state == MODIFIED
            and (wanted is None or saved.version in (None, int(wanted[1])))
        ]
        # PyTorch 2.4 does not show whose memory was saved once it has changed.
        if not changed or all(saved.storage is None for _, saved in changed):
            return self.diagnosis("unknown", UNKNOWN)
        node, saved = max(changed, key=lambda pair: pair[0].sequence_nr)
        made_at = self.recorder.line_of(node.sequence_nr)
        carried = self.owner_of(saved.storage)
        known = {"made_at": made_at, "carried_by": carried.name if carried else None}
        edits = self.recorder.edits.get(saved.storage, ())
        edits = [edit for edit in edits if edit.sequence_nr > node.sequence_nr]
        edit = edits[0] if edits else None
        step = self.step_after(node.sequence_nr, saved.storage)
        if edit is not None:  # an optimizer's writes are seen, then its step
            stepped = any(e.by_optimizer and e.location == edit.location for e in edits)
        else:
            stepped = step is not None
        if stepped:
            return self.diagnosis(
                "optimizer_step_between_backwards",
                CERTAIN if edit is not None else LIKELY,
                began_at=edit.location if edit is not None else step,
                **known,
            )
        began_at = edit.location if edit is not None else None
        if carried is not None and carried.owners:
            owner = carried.owners[-1]
            if isinstance(owner, torch.nn.Module) and any(
                carried.value is buffer for buffer in owner._buffers.values()
            ):
                return self.diagnosis("inplace_on_buffer", CERTAIN, began_at=began_at, **known)
        if saved.role == "leaf":
            between = any(
                call.sequence_nr > node.sequence_nr
                and (edit is None or call.number <= edit.last_call)
                for call in tuple(self.recorder.calls)
                if call is not failed
            )
            cause = (
                "optimizer_step_between_backwards" if between else "inplace_on_parameter_in_forward"
            )
            return self.diagnosis(cause, LIKELY, began_at=began_at, **known)
        confidence = CERTAIN if edit is not None else LIKELY
        return self.diagnosis("inplace_on_saved", confidence, began_at=began_at, **known)

    def step_after(self, sequence_nr: int, storage: int) -> Location | None:
        """The first optimizer step after an operation that changed the storage it saved."""
        for reference, location, when in tuple(self.recorder.steps):
            optimizer = reference()
            if when > sequence_nr and optimizer is not None:
                for group in optimizer.param_groups:
                    for parameter in group["params"]:
                        if storage_of(parameter)[0] == storage:
                            return location
        return None

    def owner_of(self, storage: int) -> Found | None:
        for found in self.variables():
            if storage_of(found.value)[0] == storage:
                return found
        return None

    # There is no graph.

    def no_graph(self, outputs: tuple) -> Diagnosis:
        without = (o for o in outputs if isinstance(o, torch.Tensor) and not o.requires_grad)
        output = next(without, None)
        reason = None if output is None else self.recorder.reasons.get(output)
        if reason is None:
            return self.diagnosis("unknown", UNKNOWN)
        if reason.kind in ("once_differentiable", "checkpoint_reentrant"):
            self.family = "unsupported"
        confidence = CERTAIN if reason.shape is None else LIKELY
        return self.diagnosis(reason.kind, confidence, began_at=reason.location)


class _Freed:
    """The graph of a backward that failed because an earlier one had freed a part of it.

    ``first`` is where the new part enters the freed part.  A node *made again* is a new one of the
    same origin: made by the same line, in the same calls, or, where lines are not known, by an
    operation of the same name on the same parameters.
    """

    def __init__(self, recorder: Recorder, outputs: tuple):
        self.recorder = recorder
        roots = roots_of(outputs)
        self.live, self.links = walk(roots)
        self.nodes = describe(self.live, self.links).nodes
        calls = [recorder.call_of(node) for node in self.live]
        earlier = {
            i
            for i, node in enumerate(self.nodes)
            if calls[i] is not None and (node.state == FREED or not node.saved)
        }
        self.users: dict[int, list[int]] = {}
        for i, successors in enumerate(self.links):
            for j in successors:
                self.users.setdefault(j, []).append(i)
        self.first = next(
            (
                i
                for i in sorted(earlier)
                if (i < len(roots) or any(j not in earlier for j in self.users.get(i, ())))
                and self.leads_to_freed(i, earlier)
            ),
            None,
        )
        if self.first is None:
            return
        self.freeing = calls[self.first]
        self.sequence_nr = self.nodes[self.first].sequence_nr
        self.made_at = recorder.line_of(self.sequence_nr)
        self.new = [
            i for i, node in enumerate(self.nodes) if i not in earlier and node.leaf is None
        ]
        since = self.freeing.sequence_nr
        self.built_after = [i for i in self.new if self.nodes[i].sequence_nr >= since]
        self.trains = any(self.nodes[j].leaf is not None for i in self.new for j in self.links[i])
        marks = self.live[self.first].metadata
        self.root_again = marks.get(ROOT_TAG) == self.freeing.number
        origin = self.origin(self.first)
        self.again = [i for i in self.built_after if self.origin(i) == origin]
        self.above = self.reaching(self.first)
        self.again_through = [i for i in self.again if i in self.above]

    def leads_to_freed(self, start: int, within: set[int]) -> bool:
        pending, seen = [start], {start}
        for i in pending:
            if self.nodes[i].state == FREED:
                return True
            for j in self.links[i]:
                if j in within and j not in seen:
                    seen.add(j)
                    pending.append(j)
        return False

    def reaching(self, target: int) -> set[int]:
        """The nodes from which a path leads to ``target``."""
        pending, seen = [target], set()
        for i in pending:
            for user in self.users.get(i, ()):
                if user not in seen:
                    seen.add(user)
                    pending.append(user)
        return seen

    def origin(self, i: int) -> Any:
        chain = self.recorder.chain_of(self.nodes[i].sequence_nr)
        if chain is not None:
            return chain
        leaves, pending = set(), [(i, 0)]
        for j, depth in pending:
            if self.nodes[j].leaf is not None:
                leaves.add(j)
            elif depth < _NEAR:
                pending.extend((k, depth + 1) for k in self.links[j])
        return self.nodes[i].name, frozenset(leaves)

    def names(self, which: list[int]) -> set[str]:
        return {self.nodes[i].name for i in which}

    @cached_property
    def before(self) -> set:
        """The nodes made before the freeing, with the freed part behind them."""
        since = self.freeing.sequence_nr
        return {
            self.live[i] for i in (self.first, *self.above) if self.nodes[i].sequence_nr < since
        }

    @cached_property
    def views(self) -> set:
        """Such nodes made after the freeing that save nothing: what was freed, looked at anew."""
        return {self.live[i] for i in self.above if not self.nodes[i].saved}

    def is_a_summand(self) -> bool:
        """Whether what was freed is a scalar that entered this loss by additions alone."""
        # Private to PyTorch, and not in 2.4: without it no sum is recognised.
        made = getattr(self.live[self.first], "_input_metadata", ())
        if len(made) != 1 or math.prod(made[0].shape) != 1:
            return False
        new = set(self.new)
        return all(_SUMS.match(self.nodes[i].name) for i in self.above if i in new)

    def assigned_and_used(self) -> str | None:
        """The one name that the line of the freed part assigns and the line of its user reads."""
        users = self.users.get(self.first, ())
        used_at = self.recorder.line_of(self.nodes[users[0]].sequence_nr) if users else None
        if self.made_at is None or used_at is None:
            return None
        assigned = _statement_names(self.made_at, ast.Store) & _statement_names(used_at, ast.Load)
        return assigned.pop() if len(assigned) == 1 else None


_NEAR = 4  # links between an operation and the parameters that tell it from others of its name
_SUMS = re.compile(r"(Add|Sum|Mean|Stack|Cat|Select|Unsqueeze|View|Div|Mul|ToCopy)Backward")
_CONTAINERS = (list, tuple, deque, dict, set)
_DATASETS = (torch.utils.data.Dataset, torch.utils.data.DataLoader)


def _first(found: list[Found], condition: Callable[[Found], bool]) -> Found | None:
    return next((one for one in found if condition(one)), None)


def _is_buffer(found: Found) -> bool:
    owner = found.owners[-1] if found.owners else None
    return isinstance(owner, torch.nn.Module) and any(
        found.value is buffer for buffer in owner._buffers.values()
    )


def _dataset_tensors() -> set[int]:
    """The tensors in the datasets of all loaders that exist: a loop may hold the only reference."""
    loaders = (x for x in gc.get_objects() if issubclass(type(x), torch.utils.data.DataLoader))
    return {id(found.value) for x in loaders for found in reach({"": vars(x).get("dataset")})}


def _loop_around(frame: FrameType) -> ast.For | ast.While | None:
    """The innermost loop of the frame's code around the line that runs."""
    code, line = frame.f_code, frame.f_lineno
    scope = _tree(code.co_filename)
    if scope is None:
        return None
    if code.co_name != "<module>":
        scopes = (ast.FunctionDef, ast.AsyncFunctionDef)
        inside = [
            node
            for node in ast.walk(scope)
            if isinstance(node, scopes)
            and node.name == code.co_name
            and node.lineno <= line <= node.end_lineno
        ]
        if not inside:
            return None
        scope = max(inside, key=lambda node: node.lineno)
    loops = [
        node
        for node in ast.walk(scope)
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While))
        and node.lineno <= line <= node.end_lineno
    ]
    return max(loops, key=lambda node: node.lineno, default=None)


def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:  # a notebook cell with magics
        return None
    except SystemError:  # Python 3.11 cannot parse in two threads at once
        return None


def _statement_names(place: Location, context: type) -> set[str]:
    """The names in the statement that covers a line."""
    tree = _tree(place.file)
    statements = [
        node
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.stmt)
        and not hasattr(node, "body")
        and node.lineno <= place.line <= node.end_lineno
    ]
    return {name for statement in statements for name in _names(statement, context)}


def _names(tree: ast.AST, context: type) -> set[str]:
    """Names, and attributes as ``self.mem``, that the code loads or stores."""
    return {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, context)
    }


def _root(name: str) -> str:
    """The variable at the start of ``model.layers[0]``."""
    return re.split(r"[.\[]", name)[0]


# Failures that raise nothing.


def silent(cause: str, raised_at: Location | None, began_at: Location | None, **known: Any):
    """A finding of the family ``silent``."""
    return Diagnosis("silent", cause, LIKELY, raised_at, began_at=began_at, **known)


def silent_failures(
    recorder: Recorder, graph: Graph, location: Location | None
) -> Iterator[Diagnosis]:
    """What this backward will get wrong: saved tensors changed without a change of version."""
    if not recorder.edits and not recorder.exports:
        return
    for node in graph.nodes:
        for saved in node.saved:
            if saved.state != ALIVE:
                continue
            edits = recorder.edits.get(saved.storage, ())
            edit = next((e for e in edits if e.sequence_nr > node.sequence_nr), None)
            if edit is not None:
                if saved.name.startswith("ctx."):
                    cause = "custom_function_ctx"
                elif edit.by_optimizer:
                    cause = "optimizer_step_between_backwards_silent"
                else:
                    cause = "data_edit_silent"
                began_at = edit.location
            elif (export := _changed_export(recorder, saved.storage, node.sequence_nr)) is None:
                continue
            else:
                cause = "data_edit_silent"
                began_at = _write_to(recorder, export, node.sequence_nr) or export.location
            made_at = recorder.line_of(node.sequence_nr)
            yield silent(cause, location, began_at, made_at=made_at)


def _changed_export(recorder: Recorder, storage: int, sequence_nr: int) -> Export | None:
    """Memory shared with numpy that is not what it was when the operation saved it."""
    exports = recorder.exports.get(storage, ())
    before = [export for export in exports if export.sequence_nr <= sequence_nr]
    export = before[-1] if before else next(iter(exports), None)
    if export is None or checksum(export.tensor) == export.checksum:
        return None
    return export


def _write_to(recorder: Recorder, export: Export, sequence_nr: int) -> Location | None:
    """The line that wrote to this memory: by another tensor, or through an array of that name."""
    pointer = export.tensor.data_ptr()
    for edits in tuple(recorder.edits.values()):
        for edit in edits:
            if edit.pointer == pointer and edit.sequence_nr > sequence_nr:
                return edit.location
    frame = user_frame(sys._getframe(1))
    while frame is not None:
        for name, value in namespace(frame).items():
            interface = getattr(type(value), "__array_interface__", None) and (
                value.__array_interface__
            )
            if interface and interface["data"][0] == pointer:
                lines = _writes(frame, name)
                if lines:
                    return Location(frame.f_code.co_filename, lines[-1])
        frame = user_frame(frame.f_back)
    return None


def _writes(frame: FrameType, name: str) -> list[int]:
    """The lines up to the one that runs now that write into the array of this name."""
    lines = []
    for node in ast.walk(_tree(frame.f_code.co_filename) or ast.Module([], [])):
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        for target in targets if isinstance(node, (ast.Assign, ast.AugAssign)) else ():
            written = target.value if isinstance(target, ast.Subscript) else target
            in_place = isinstance(node, ast.AugAssign) or written is not target
            if in_place and isinstance(written, ast.Name) and written.id == name:
                lines.append(node.lineno)
    return sorted(line for line in lines if line <= frame.f_lineno)


def leaks(recorder: Recorder, variables: Mapping[str, Any]) -> Iterator[Diagnosis]:
    """Sums and lists that keep the graphs of many iterations alive."""
    sums = {
        total.sequence_nr: total
        for reference in recorder.sums.values()
        if (total := reference()) is not None
    }
    stored: dict[tuple[int, Location], list[Found]] = {}
    for found in reach(variables):
        node = found.value.grad_fn
        if node is None:
            continue
        total = next((sums[n] for n in _sequence_numbers(node, _NEAR) if n in sums), None)
        if total is not None and recorder.call_of(node) is None:
            yield silent("graph_grows", total.location, total.location, carried_by=found.name)
        elif found.owners and isinstance(found.owners[-1], (list, deque, dict)):
            made_at = recorder.line_of(node._sequence_nr())
            if made_at is not None:
                stored.setdefault((id(found.owners[-1]), made_at), []).append(found)
    for (_, made_at), entries in stored.items():
        if len(entries) >= MANY and _of_many_iterations(recorder, entries):
            carried = entries[0].name.rpartition("[")[0]
            yield silent("graph_grows", made_at, made_at, carried_by=carried)


MANY = 10


def _of_many_iterations(recorder: Recorder, entries: list[Found]) -> bool:
    """Whether backwards lie between the entries; or none had any, and each has its own graph."""
    nodes = [found.value.grad_fn for found in entries]
    began = sorted(call.sequence_nr for call in tuple(recorder.calls))
    if len({bisect.bisect_right(began, node._sequence_nr()) for node in nodes}) >= MANY:
        return True
    if any(recorder.call_of(node) is not None for node in nodes):
        return False
    first, second = (set(walk([node])[0]) for node in nodes[:2])
    return bool(first & second) and all(hasattr(node, "variable") for node in first & second)


def adds_the_same(node, total: Sum) -> bool:
    """Whether what was added comes from the same parameters each time: an iteration's loss does."""
    leaves, additions = set(), 0
    pending = [node]
    for adding in pending:
        for successor, _ in adding.next_functions:
            if successor is None:
                continue
            if successor.metadata.get(CHAIN_TAG) is total:
                pending.append(successor)
                continue
            additions += 1
            while following := next((n for n, _ in successor.next_functions if n), None):
                successor = following
            leaves.add(successor)
    return len(leaves) <= additions // 2


def is_once_differentiable(node) -> bool:
    """Whether it belongs to a custom function whose backward is marked so."""
    backward = getattr(getattr(type(node), "_forward_cls", None), "backward", None)
    code = getattr(backward, "__code__", None)
    return code is not None and code.co_filename == _FUNCTIONS and code.co_name == "wrapper"


_FUNCTIONS = torch.autograd.function.__file__


def _sequence_numbers(node, depth: int) -> list[int]:
    """The sequence numbers of a node and of those that few links lead to."""
    found, pending = [], [(node, 0)]
    for here, distance in pending:
        found.append(here._sequence_nr())
        if distance < depth and len(found) < MANY:
            pending.extend((n, distance + 1) for n, _ in here.next_functions if n is not None)
    return found


def checksum(tensor: torch.Tensor) -> str:
    """A hash of the tensor's values."""
    values = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    return hashlib.sha1(values.numpy().tobytes()).hexdigest()
