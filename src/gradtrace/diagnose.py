"""From a failed backward to its cause, the line where it began, and the fix to prefer.

The error's text gives the family.  The cause within the family follows from the graph as it stands
when backward has just failed: which nodes an earlier call had freed (:mod:`gradtrace.watch` marks
them), when they were made compared with that call (PyTorch numbers its operations), and which
variables still hold them.  Where the evidence does not decide, the cause is ``"unknown"``.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
import re
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from gradtrace.frames import Found, Location, is_users, namespace, reach, user_frame
from gradtrace.graph import ALIVE, FREED, MODIFIED, Graph, describe, roots_of, walk

if TYPE_CHECKING:
    from gradtrace.watch import BackwardCall, Recorder

SCHEMA = 1
CALL_TAG = "gradtrace.call"  # on node.metadata: the number of the backward call that freed it
ROOT_TAG = "gradtrace.root"  # likewise, on the nodes at which that call began
CHAIN_TAG = "gradtrace.chain"  # on node.metadata: how often which line has added to this sum

CERTAIN, LIKELY, UNKNOWN = "certain", "likely", "unknown"

# Texts differ between versions of PyTorch: match what they have had in common since 0.4.
_FAMILIES = [
    (r"backward through the graph (a )?second time", "freed", None),
    (r"saved (intermediate|tensors|variables).* freed", "freed", None),
    (r"modified by an inplace operation", "modified", None),
    (r"detached in-place", "modified", None),
    (r"does not require grad and does not have a grad_fn", "no_graph", None),
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

# What each cause means, and the fix to prefer.  {it} is the variable that carried it, if known.
_TEXTS = {
    "hidden_state_carried": (
        "a state from the last iteration is still part of this loss, and that part of the graph "
        "was freed by the backward of the last iteration",
        "cut the state off at the start of each iteration: {it} = {it}.detach()",
    ),
    "computed_once_outside_loop": (
        "something that needs gradients was computed once and is used in every iteration; the "
        "first backward freed its graph",
        "compute {it} anew in each iteration; detach it, once, if it should not be trained",
    ),
    "forward_not_rerun": (
        "the forward pass was not run again: this loss has already been through backward",
        "run the forward pass again before each backward",
    ),
    "shared_subgraph": (
        "two losses share a part of the graph, and the first backward freed it",
        "add the losses and call backward once; or detach {it} where one loss should not train "
        "the shared part",
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
        "store {it}.detach() in the dataset, or compute it inside the loop",
    ),
    "buffer_has_graph": (
        "a module's buffer holds a tensor with a graph, which an earlier backward freed",
        "detach what is written into the buffer {it}",
    ),
    "optimizer_step_between_backwards": (
        "the optimizer changed weights in place after this loss was computed with the old ones, "
        "and its backward needs the old ones",
        "call every backward first and step afterwards, or compute this loss after the step",
    ),
    "inplace_on_saved": (
        "a tensor that an operation had saved for backward was changed in place",
        "do not write into {it}: use an out-of-place operation, or write into {it}.clone()",
    ),
    "inplace_on_buffer": (
        "a module's buffer that an operation had saved was changed in place",
        "use {it}.clone() in the computation, or update the buffer after backward",
    ),
    "inplace_on_parameter_in_forward": (
        "the forward pass itself changed a parameter in place after it had been used",
        "use {it}.clone() for the other use, or change the parameter before it is used",
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
        "watch the program from its start: python -m gradtrace --strict script.py",
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

    @property
    def explanation(self) -> str:
        return _TEXTS[self.cause][0]

    @property
    def fix(self) -> str:
        return _TEXTS[self.cause][1].replace("{it}", self.carried_by or "it")

    def text(self) -> str:
        """For a person: a few lines that begin with ``gradtrace:``."""
        hedge = "" if self.confidence == CERTAIN else f" ({self.confidence})"
        lines = [f"gradtrace: {self.explanation}.{hedge if self.cause != 'unknown' else ''}"]
        for name, place in (("began", self.began_at), ("made", self.made_at)):
            if place is not None:
                source = linecache.getline(*place).strip()
                lines.append(f"  {name + ':':<9}{place.file}:{place.line}  {source}".rstrip())
        if self.carried_by is not None:
            lines.append(f"  carried: {self.carried_by}")
        lines.append(f"  fix:     {self.fix}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract of ``python -m gradtrace --json``."""
        data = asdict(self)
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
    if frame is None or outputs is not None:
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
        return case.modified(outputs, str(error))
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
        roots = roots_of(outputs)
        live, links = walk(roots)
        nodes = describe(live, links).nodes
        earlier = {
            i
            for i, node in enumerate(live)
            if self.recorder.call_of(node) is not None
            and (nodes[i].state == FREED or not nodes[i].saved)
        }
        users: dict[int, list[int]] = {}
        for i, successors in enumerate(links):
            for j in successors:
                users.setdefault(j, []).append(i)
        first = next(
            (
                i
                for i in sorted(earlier)
                if (i < len(roots) or any(j not in earlier for j in users.get(i, ())))
                and _leads_to_freed(i, links, nodes, earlier)
            ),
            None,
        )
        if first is None:
            return self.diagnosis("unknown", UNKNOWN)
        freeing = self.recorder.call_of(live[first])
        found = self.holder(live, first)
        made_at = self.recorder.line_of(nodes[first].sequence_nr)
        users_line = next(
            (self.recorder.line_of(nodes[j].sequence_nr) for j in users.get(first, ())), None
        )
        new = [i for i in range(len(live)) if i not in earlier and nodes[i].leaf is None]
        cause, confidence = self.why_freed(live, nodes, links, first, new, freeing, found, made_at)
        carried = found.name if found is not None else _assigned_and_used(made_at, users_line)
        return self.diagnosis(
            cause,
            confidence,
            began_at=freeing.location,
            made_at=made_at,
            carried_by=carried,
        )

    def why_freed(self, live, nodes, links, first, new, freeing, found, made_at):
        in_a_loop = freeing.location == self.raised_at
        if not new:  # the loss itself has been through backward
            return ("computed_once_outside_loop" if in_a_loop else "forward_not_rerun"), CERTAIN
        if found is not None:
            owner = found.owners[-1] if found.owners else None
            if any(isinstance(o, torch.utils.data.Dataset) for o in found.owners):
                return "dataset_tensor_has_graph", CERTAIN
            if isinstance(owner, torch.nn.Module) and any(
                found.value is buffer for buffer in owner._buffers.values()
            ):
                return "buffer_has_graph", CERTAIN
            if isinstance(owner, (list, deque, dict)) and in_a_loop:
                return "replay_keeps_graph", LIKELY
        if live[first].metadata.get(ROOT_TAG) == freeing.number and in_a_loop:
            return "loss_accumulated", CERTAIN
        if in_a_loop:
            after = [i for i in new if nodes[i].sequence_nr >= freeing.sequence_nr]
            if made_at is not None:
                lines = {self.recorder.line_of(nodes[i].sequence_nr) for i in after}
                again = made_at in lines
            else:
                again = nodes[first].name in {nodes[i].name for i in after}
            confidence = CERTAIN if made_at is not None else LIKELY
            return ("hidden_state_carried" if again else "computed_once_outside_loop"), confidence
        if all(nodes[i].sequence_nr >= freeing.sequence_nr for i in new):
            # Built after the graph had been freed: the same loss on an old output, or another one?
            trains = any(nodes[j].leaf is not None for i in new for j in links[i])
            same = {nodes[i].name for i in new} <= set(freeing.operations)
            if not trains and same:
                return "forward_not_rerun", LIKELY
            return "shared_subgraph", LIKELY
        return "shared_subgraph", CERTAIN

    def holder(self, live, first: int) -> Found | None:
        """The variable that holds a tensor made by the first freed node."""
        for found in self.variables():
            if found.value.grad_fn is live[first]:
                return found
        return None

    # A saved tensor was changed.

    def modified(self, outputs: tuple, message: str) -> Diagnosis:
        live, links = walk(roots_of(outputs))
        nodes = describe(live, links).nodes
        wanted = re.search(r"is at version (\d+)", message)
        changed = [
            (node, saved)
            for node in nodes
            for saved in node.saved
            if saved.state == MODIFIED and (wanted is None or saved.version == int(wanted[1]))
        ]
        if not changed:
            return self.diagnosis("unknown", UNKNOWN)
        node, saved = max(changed, key=lambda pair: pair[0].sequence_nr)
        made_at = self.recorder.line_of(node.sequence_nr)
        step = self.step_after(node.sequence_nr, saved.storage)
        carried = self.owner_of(saved.storage)
        known = {"made_at": made_at, "carried_by": carried.name if carried else None}
        if step is not None:
            return self.diagnosis(
                "optimizer_step_between_backwards", CERTAIN, began_at=step, **known
            )
        edits = self.recorder.edits.get(saved.storage, ())
        edit = next((e for e in edits if e.sequence_nr > node.sequence_nr), None)
        began_at = edit.location if edit is not None else None
        if carried is not None and carried.owners:
            owner = carried.owners[-1]
            if isinstance(owner, torch.nn.Module) and any(
                carried.value is buffer for buffer in owner._buffers.values()
            ):
                return self.diagnosis("inplace_on_buffer", CERTAIN, began_at=began_at, **known)
        if saved.role == "leaf":
            leaf = carried.value if carried is not None else None
            by_hand = leaf is not None and leaf.grad is not None
            cause = (
                "optimizer_step_between_backwards" if by_hand else "inplace_on_parameter_in_forward"
            )
            return self.diagnosis(cause, LIKELY, began_at=began_at, **known)
        confidence = CERTAIN if edit is not None else LIKELY
        return self.diagnosis("inplace_on_saved", confidence, began_at=began_at, **known)

    def step_after(self, sequence_nr: int, storage: int) -> Location | None:
        """The first optimizer step after an operation that changed the storage it saved."""
        for reference, location, when in self.recorder.steps:
            optimizer = reference()
            if when > sequence_nr and optimizer is not None:
                for group in optimizer.param_groups:
                    for parameter in group["params"]:
                        if _same_storage(parameter, storage):
                            return location
        return None

    def owner_of(self, storage: int) -> Found | None:
        for found in self.variables():
            if _same_storage(found.value, storage):
                return found
        return None

    # There is no graph.

    def no_graph(self, outputs: tuple) -> Diagnosis:
        without = (o for o in outputs if isinstance(o, torch.Tensor) and not o.requires_grad)
        output = next(without, None)
        reason = None if output is None else self.recorder.reasons.get(output)
        if reason is None:
            return self.diagnosis("unknown", UNKNOWN)
        return self.diagnosis(reason.kind, CERTAIN, began_at=reason.location)


def _leads_to_freed(start: int, links, nodes, within: set[int]) -> bool:
    pending, seen = [start], {start}
    for i in pending:
        if nodes[i].state == FREED:
            return True
        for j in links[i]:
            if j in within and j not in seen:
                seen.add(j)
                pending.append(j)
    return False


def _same_storage(tensor: torch.Tensor, storage: int) -> bool:
    try:
        return tensor.untyped_storage()._cdata == storage
    except (NotImplementedError, RuntimeError):
        return False


def _assigned_and_used(made_at: Location | None, used_at: Location | None) -> str | None:
    """The one name that the line ``made_at`` assigns and the line ``used_at`` reads."""
    if made_at is None or used_at is None:
        return None
    assigned = _names(made_at, ast.Store) & _names(used_at, ast.Load)
    return assigned.pop() if len(assigned) == 1 else None


def _names(place: Location, context: type) -> set[str]:
    """Names, and attributes as ``self.mem``, in the statement that covers a line."""
    try:
        tree = ast.parse("".join(linecache.getlines(place.file)))
    except SyntaxError:  # a notebook cell with magics
        return set()
    statements = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt)
        and not hasattr(node, "body")
        and node.lineno <= place.line <= node.end_lineno
    ]
    return {
        ast.unparse(node)
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, context)
    }


# Failures that raise nothing.


def silent(cause: str, raised_at: Location | None, began_at: Location | None, **known: Any):
    """A finding of the family ``silent``."""
    return Diagnosis("silent", cause, LIKELY, raised_at, began_at=began_at, **known)


def silent_failures(
    recorder: Recorder, live: list, graph: Graph, location: Location | None
) -> Iterator[Diagnosis]:
    """What this backward will get wrong: saved tensors changed without a change of version."""
    for node in graph.nodes:
        for saved in node.saved:
            if saved.state != ALIVE:
                continue
            made_at = recorder.line_of(node.sequence_nr)
            for edit in recorder.edits.get(saved.storage, ()):
                if edit.sequence_nr > node.sequence_nr:
                    if saved.name.startswith("ctx."):
                        cause = "custom_function_ctx"
                    elif edit.by_optimizer:
                        cause = "optimizer_step_between_backwards_silent"
                    else:
                        cause = "data_edit_silent"
                    yield silent(cause, location, edit.location, made_at=made_at)
                    break
            export = recorder.exports.get(saved.storage)
            if export is not None and export[0].sequence_nr > node.sequence_nr:
                edit, before, tensor = export
                if checksum(tensor) != before:
                    yield silent("data_edit_silent", location, edit.location, made_at=made_at)


def leaks(recorder: Recorder, variables: Mapping[str, Any]) -> Iterator[Diagnosis]:
    """Sums and lists that keep the graphs of many iterations alive."""
    stored: dict[tuple[int, Location], list[str]] = {}
    for found in reach(variables):
        node = found.value.grad_fn
        if node is None:
            continue
        count, location = node.metadata.get(CHAIN_TAG, (0, None))
        if count >= _MANY and recorder.call_of(node) is None:
            yield silent("graph_grows", location, location, carried_by=found.name)
        elif found.owners and isinstance(found.owners[-1], (list, deque, dict)):
            made_at = recorder.line_of(node._sequence_nr())
            if made_at is not None:
                stored.setdefault((id(found.owners[-1]), made_at), []).append(found.name)
    for (_, made_at), names in stored.items():
        if len(names) >= _MANY:
            carried = names[0].rpartition("[")[0]
            yield silent("graph_grows", made_at, made_at, carried_by=carried)


_MANY = 10


def checksum(tensor: torch.Tensor) -> str:
    """A hash of the tensor's values."""
    values = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    return hashlib.sha1(values.numpy().tobytes()).hexdigest()
