"""Evidence about a backward call that failed because a tensor it needs was changed in place."""

import ast
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import chain
from operator import attrgetter, itemgetter
from traceback import walk_stack, walk_tb
from typing import Any

import torch

from gradtrace import _torch
from gradtrace.autograd import lost_graph, source, syntax
from gradtrace.autograd.frames import Location, is_users, module_of
from gradtrace.autograd.nodes import MODIFIED
from gradtrace.autograd.saved import describe
from gradtrace.autograd.syntax import written_values
from gradtrace.autograd.tensors import storage_of, storages_in
from gradtrace.autograd.traversal import leading_to, leaves_of, roots_of, upstream, users_of, walk
from gradtrace.explaining.evidence import carriers
from gradtrace.explaining.evidence.base import Evidence, NoEvidence, TextEvidence
from gradtrace.explaining.evidence.carriers import Holder
from gradtrace.explaining.evidence.optimizers import Training
from gradtrace.explaining.evidence.reuse import ReuseEvidence
from gradtrace.watching.record import BackwardCall, parameters_of

_MAX_CANDIDATES = 3  # names
_VIEW = r"(\.(T|data|(detach|flatten|permute|squeeze|t|transpose|unsqueeze|view)\(.*\))|\[.*\])*"
_INIT = re.compile(r"((torch\.)?nn\.)?init\.")
_HOOKED = "the inputs and outputs of a module that has a full backward hook, because they are views"


class ModifiedEvidence(Evidence):
    """Evidence about a tensor that operation number ``saved_by`` saved, and its later ``edits``."""

    def __post_init__(self) -> None:
        self._live, self._links = walk(roots_of(self.outputs))
        for node in self._live:
            _torch.show_changed(node)
        version = re.search(r"is at version (\d+)", self.error)
        changed = [
            (_torch.sequence_nr(self._live[i]), saved)
            for i, node in enumerate(describe(self._live, self._links))
            for saved in node.saved
            if saved.state == MODIFIED
            and saved.storage is not None  # one of a list is not shown by PyTorch 2.4
        ]
        versions = (None, None if version is None else int(version[1]))
        reported = [pair for pair in changed if version is None or pair[1].version in versions]
        if not reported:
            raise NoEvidence
        self.saved_by, saved = max(reported, key=itemgetter(0))
        assert saved.storage is not None
        self.storage = saved.storage
        self.a_leaf = saved.role == "leaf"
        self._is_result = saved.name.startswith("result")
        of_storage = [tensor for _, tensor in changed if tensor.storage == saved.storage]
        self._is_part = all((t.nbytes or 0) < (t.storage_nbytes or 0) for t in of_storage)
        # The others would be reported next.
        self._saved: dict[Any, int] = {self.storage: self.saved_by}
        for number, tensor in changed if not self.a_leaf else ():
            if tensor.role != "leaf":
                self._saved.setdefault(tensor.storage, number)
        self._changed_at = {number for number, _ in changed}
        self._leaves = storages_in(leaves_of(self._live))
        self.edits = list(self.timeline.edits_since(self.saved_by, self.storage))
        self.edit = self.edits[0] if self.edits else None
        if self.edit is not None:
            self._begin_at(self.edit)
        names = {name for *_, name in self._candidates}
        if self.began_at is None and names and (self.holder is None or len(names) == 1):
            self.began_at = self._candidates[0][0]
        if self.began_at is None and self.by_a_layer:
            layers = [name for name, _ in self._layers_named or self._layers]
            self.began_at = self._only_call(self._rescaling_layers or layers)
        self._locate(self.saved_by)
        self.stored_at = self._filled_at(self._storing)

    @cached_property
    def _candidates(self) -> list[tuple[Location, str]]:
        """The lines that may have made an unrecorded change in place, and the names written to."""
        stepped = any(step.sequence_nr > self.saved_by for step in self.timeline.steps)
        if self.timeline.observed or stepped or self._layers_named:
            return []
        last = self.holder and self.holder.name.rpartition(".")[2]
        writes = self._possible_writes
        if self._rescaling_layers:  # which write in each forward pass, unlike an initialization
            writes = [write for write in writes if not _INIT.match(ast.unparse(write.node))]
        named = [write for write in writes if write.name.rpartition(".")[2] == last]
        named = named or [write for write in writes if self._is_viewed(write.name, last or "")]
        others = [write for write in writes if write.over_parameters] if self.a_leaf else writes
        possible = [(write.place, write.name) for write in named or others]
        return possible if len({name for *_, name in possible}) <= _MAX_CANDIDATES else []

    def _is_viewed(self, name: str, holder: str) -> bool:
        """Whether the program assigns a view of the tensor ``name`` to the ``holder``."""
        values = (v for file in self.files for v in source.values_of(file, holder))
        return any(re.fullmatch(re.escape(name) + _VIEW, ast.unparse(value)) for value in values)

    @cached_property
    def _all_writes(self) -> list[source.Write]:
        writes = chain.from_iterable(map(source.in_place_writes, self.files))
        # Of x.data no version counter shows a change, nor of a number or a container.
        kinds = ast.Constant | ast.List | ast.Dict | ast.ListComp | ast.DictComp
        tensors = (w for w in writes if not any(isinstance(value, kinds) for value in w.values))
        return [write for write in tensors if ".data" not in write.name]

    @cached_property
    def _operation(self) -> str:
        """The operation that the error names: it made the result, or last changed an input."""
        operation = re.search(r"output \d+ of (?:\w+::)*(\w+)", self.error)
        return re.sub(r"Backwards?\d*$", "", operation[1]).lower() if operation else " "

    def _is_named(self, write: source.Write) -> bool:
        return syntax.operation_of(write.node) == self._operation

    @cached_property
    def _possible_writes(self) -> list[source.Write]:
        """The lines that may have changed the tensor, as the error's operation and versions say."""
        writes = self._all_writes
        results = [w for w in writes if any(_calls(v, self._operation) for v in w.values)]
        named = results or ([] if self._is_result else [*filter(self._is_named, writes)])
        # Writes into new tensors come last.
        computed = [w for w in writes if not _is_new(w)]
        return self._last_of(named or computed or writes)

    def _last_of(self, writes: list[source.Write]) -> list[source.Write]:
        """Return the last writes into each tensor, as many as its version has grown by."""
        versions = re.search(r"is at version (\d+); expected version (\d+)", self.error)
        if versions is None:
            return writes
        now, expected = map(int, versions.groups())
        grouped: dict[tuple[Any, ...], list[source.Write]] = {}
        for write in sorted(writes, key=attrgetter("place.line")):
            # Each assignment to the name gives it another tensor.
            assigned = [v.lineno for v in write.values if v.lineno < write.place.line]
            tensor = (write.place.file, write.function, write.name, max(assigned, default=0))
            grouped.setdefault(tensor, []).append(write)
        # A new tensor has as many versions as writes, except in a loop.
        possible = [
            into
            for into in grouped.values()
            if len(into) >= now or any(w.loops or not _is_new(w) for w in into)
        ]
        # First those into which one run of the function writes as often as the versions say.
        often = range(now - expected, now + 1)
        fitting = [into for into in possible if len(into) in often or any(w.loops for w in into)]
        return [write for into in fitting or possible for write in into[expected - now :]]

    @property
    def observed(self) -> bool:
        """Whether the change was recorded; a plain watch records only optimizer steps."""
        return self.timeline.observed and self.edit is not None

    @property
    def optimizer_wrote(self) -> bool:
        return any(edit.by_optimizer and edit.location == self.began_at for edit in self.edits)

    @cached_property
    def _holders(self) -> list[Holder]:
        """The innermost variable of each changed tensor, that of the reported one first."""
        innermost: dict[int | None, Holder] = {}
        for variable in self.variables:
            innermost.setdefault(storage_of(variable.value)[0], variable)
        return [innermost[storage] for storage in self._saved if storage in innermost]

    @property
    def holder(self) -> Holder | None:
        """The innermost variable that holds the changed tensor."""
        holders = (v for v in self._holders if storage_of(v.value)[0] == self.storage)
        return next(holders, None)

    @property
    def by_a_layer(self) -> bool:
        """Whether PyTorch's code made the change, as ``inplace=True`` and ``max_norm`` request."""
        if self.edit is not None or self.timeline.observed:
            return self.edit is not None and self.edit.by_library
        if self._rescaling_layers:
            return not self._candidates
        # Either such a layer ran the operation that the error names, or no line writes in place.
        return bool(self._layers_named or (self._layers and not self._possible_writes))

    @cached_property
    def _rescaling_layers(self) -> list[str]:
        """The names of the embeddings with ``max_norm`` that hold the changed parameter."""
        holders = [v for v in self.variables if v.owners and self.a_leaf]
        rescaled = [v for v in holders if getattr(v.owners[-1], "max_norm", None) is not None]
        names = [v.name.split(".")[-2:] for v in rescaled if storage_of(v.value)[0] == self.storage]
        return [*dict.fromkeys(name for name, *_ in names)]

    @cached_property
    def _layers(self) -> list[tuple[str, str]]:
        """The names of the layers that have ``inplace=True``, and of their classes."""
        layers = dict.fromkeys(pair for module in self.modules for pair in module.named_children())
        in_place = [pair for pair in layers if getattr(pair[1], "inplace", False) is True]
        return [(name, type(layer).__name__) for name, layer in in_place]

    def _only_call(self, layers: list[str]) -> Location | None:
        """Return the only line that calls one of these layers, if each is called by its name."""
        calls = [source.calls_of(self.files, [name]) for name in layers]
        places = {*chain.from_iterable(calls)}
        return places.pop() if len(places) == 1 and all(calls) else None

    @cached_property
    def _layers_named(self) -> list[tuple[str, str]]:
        """The layers whose operation wrote last into a saved input, as the error says."""
        if self.a_leaf or self._is_result or any(map(self._is_named, self._all_writes)):
            return []
        return [layer for layer in self._layers if layer[1].lower() == self._operation]

    @cached_property
    def _writes(self) -> list[source.Write]:
        """The writes at the line that made the change."""
        return [] if self.began_at is None else source.writes_at(self.began_at)

    @property
    def over_parameters(self) -> bool:
        """Whether a loop over a module's parameters made the change."""
        return any(write.over_parameters for write in self._writes)

    @property
    def of_an_element(self) -> bool:
        """Whether the line changes a loop's variable only to change an element of a container."""
        return not self.a_leaf and any(write.of_an_element for write in self._writes)

    @property
    def through_a_view(self) -> bool:
        """Whether a view of a part of the tensor was changed, but not by ``x[0] = …``."""
        edit, holder = self.edit, self.holder
        if edit is None or not edit.of_a_view or edit.memory is None or holder is None:
            return False
        return len(edit.memory.span) < holder.value.untyped_storage().nbytes()

    @property
    def written_part_by_part(self) -> bool:
        """Whether the operation had saved a part of a tensor, and ``x[i] = …`` changed that one."""
        return self._is_part and any(write.of_a_part for write in self._writes)

    @property
    def written_once(self) -> bool:
        return len(self.edits) == len(self._saved) == 1

    @property
    def backward_between(self) -> bool:
        later = (c.number for c in self.earlier_calls if c.sequence_nr > self.saved_by)
        return any(self.edit is None or number <= self.edit.last_call for number in later)

    @cached_property
    def one_optimizer(self) -> bool:
        """Whether one optimizer holds all leaves that this loss depends on, except inputs."""
        leaves = leaves_of(self._live)
        held = Training(self.timeline, self._leaves).held(leaves)
        parameters = (leaf for leaf in leaves if isinstance(leaf, torch.nn.Parameter))
        return Training(self.timeline, storages_in([*held, *parameters])).one_holds_all

    @cached_property
    def _own(self) -> list[torch.Tensor]:
        """The parameters of the only optimizer of this loss that has not stepped since."""
        stepped = {s.optimizer() for s in self.timeline.steps if s.sequence_nr > self.saved_by}
        optimizers = Training(self.timeline, self._leaves).optimizers
        own = [parameters_of(optimizer) for optimizer, _ in optimizers if optimizer not in stepped]
        return own[0] if len(own) == 1 else []

    @property
    def own_parameters_come_last(self) -> bool:
        """Whether operations on these parameters use results of others, and never the reverse."""
        own = {*roots_of(self._own)}
        owners = {i: {n in own} for i, n in enumerate(self._live) if isinstance(n, _torch.LEAF)}
        pairs = upstream(owners, self._links)
        return (False, True) in pairs and (True, False) not in pairs

    @cached_property
    def _older_inputs(self) -> list[Any]:
        """The nodes older than the step through which a newer loss reaches the changed weights."""
        step = self.edit.sequence_nr if self.edit is not None and self.optimizer_wrote else 0
        numbers = [_torch.sequence_nr(node) for node in self._live]
        users = users_of(self._links)
        targets = [i for i, number in enumerate(numbers) if number in self._changed_at]
        used = (i for i in {*targets} | leading_to(targets, users) if numbers[i] < step)
        return [self._live[i] for i in used if any(numbers[j] >= step for j in users[i])]

    @property
    def _trains_what_changed(self) -> bool:
        """Whether the step after an earlier call on this loss, made here, made the change."""
        steps = [*self.timeline.steps]
        same = (c for c in self.earlier_calls if c.leaves == self._leaves)
        calls = filter(self._is_made_here, same)
        later = (next((s for s in steps if s.last_call >= call.number), None) for call in calls)
        return any(step is not None and step.changed(self.storage) for step in later)

    @property
    def a_part_is_older(self) -> bool:
        # With several optimizers, this loss may also be meant for another one than the part.
        is_meant = self.one_optimizer or self._trains_what_changed
        return is_meant and bool(self._older_inputs)

    @property
    def differentiable_step(self) -> bool:
        """Whether an optimizer step made the change, whose gradient had a graph."""
        if self.edit is None or not self.optimizer_wrote:
            return False
        before = [c for c in self.timeline.calls if c.number <= self.edit.last_call]
        # What autograd.grad returns gets into .grad only if the program assigns it.
        gradients = (leaf.grad for leaf in leaves_of(self._live))
        is_assigned = any(gradient is not None and gradient.requires_grad for gradient in gradients)
        added = [call for call in before if call.whole or is_assigned]
        return any(call.creates_graph for call in added[-1:])

    @cached_property
    def retained(self) -> "Retained | None":
        try:
            facts = self.timeline, self.outputs, self.inputs, self.call, self.raised_at
            return Retained(self.saved_by, *facts, self.frame, self.exception)
        except NoEvidence:
            return None

    @property
    def carried_over(self) -> bool:
        part = self.retained
        if part is None or part.successors:
            return part is not None
        # This loss may not contain the last value of a state. A condition fills a cache only once.
        is_cached = part.stored_at is not None and source.is_conditional(part.stored_at)
        return bool(part.passed_on) and not is_cached

    @property
    def every_entry_is_named(self) -> bool:
        return self.retained is not None and self.retained.every_entry_is_named

    @property
    def _storing(self) -> list[Holder]:
        """The variables that hold what this loss must not reuse; none if that is a parameter."""
        if self.carried_over and self.retained is not None:
            return [*self.retained.naming, *self.retained.carriers]
        if self.a_part_is_older:
            return [v for v in self.variables if v.node in self._older_inputs]
        return [] if self.a_leaf and self.began_at else self._holders

    @property
    def names(self) -> Mapping[str, str | None]:
        if self.carried_over and self.retained is not None:
            return self.retained.names
        if self.a_part_is_older:
            return {"it": carriers.name_of(self._storing), "older": "a part of this loss"}
        edits = (e for s, n in self._saved.items() for e in self.timeline.edits_since(n, s))
        written = names_written(edit.location for edit in edits)
        written = written or ", ".join(dict.fromkeys(name for *_, name in self._candidates)) or None
        holder = None if self.of_an_element else self.holder
        known = holder is not None and (written is None or self._is_known_there(holder))
        name = carriers.name_of(self._holders) if known else written
        own = module_of(self._own, {*leaves_of(self._live)} - {*self._own})
        return {"it": name, "own": own}

    def _is_known_there(self, holder: Holder) -> bool:
        """Whether the function that made the change knows this variable, or may know its owner."""
        code, place = holder.frame.f_code, self.began_at
        lines = {line for *_, line in code.co_lines()}
        is_there = place is not None and place.file == code.co_filename and place.line in lines
        return is_there or bool(holder.owners)


def names_written(locations: Iterable[Location | None]) -> str | None:
    """Return the names into which the statements at these locations write in place."""
    places = dict.fromkeys(filter(None, locations))
    names = dict.fromkeys(write.name for place in places for write in source.writes_at(place))
    # In x.view(-1).add_(1), the tensor that is written has no name.
    return ", ".join(name for name in names if "(" not in name) or None


def _calls(value: ast.expr, operation: str) -> bool:
    """Whether the expression calls a function of this name, perhaps written with ``_``."""
    return re.search(rf"\b{operation}\(", ast.unparse(value).lower().replace("_", "")) is not None


def _is_new(write: source.Write) -> bool:
    """Whether all values of the name are new tensors, which nothing has saved before the write."""
    texts = map(ast.unparse, write.values)
    return bool(write.values) and all(
        re.search(r"\b(zeros|ones|empty|full|new_\w+)(_like)?\(", text) for text in texts
    )


class LeafEvidence(TextEvidence):
    """Evidence about a leaf or view that was changed or detached in place."""

    def __post_init__(self) -> None:
        *_, (frame, _) = walk_tb(self.exception.__traceback__)
        place = self.raised_at
        writes = [] if place is None else source.writes_at(place)
        new = syntax.new_assignment(place and source.simple_statement(*place))
        self.by_a_layer = new is None and frame.f_code.co_filename.startswith(_torch.LAYERS)
        detached = source.receiver_at(self.raised_at, "detach_")
        written = names_written([self.raised_at]) or carriers.without_index(detached or "")
        value = lost_graph.value_of(self.frame, written)
        ids = {*map(id, frame.f_locals.values())} if self.by_a_layer else {id(value)}
        holders = [v for v in self.variables if id(v.value) in ids]
        by_layer = carriers.name_of(holders) if self.by_a_layer else None
        is_hooked = "BackwardHookFunction" in f"{self.error} {[v.node for v in holders]}"
        views = _HOOKED if is_hooked else None
        if holders and any(write.of_a_part for write in writes):
            new = f"{written} = {written}.clone(), before this line"
        self.names = {"it": by_layer or written or None, "views": views, "new": new}
        self.made_at = self._filled_at(sorted(holders, key=lambda v: v.name != written))
        self.began_at = self.raised_at if writes else None
        if self.by_a_layer:
            self._find_functional_call()
        loops = [loop for write in writes for loop in write.loops]
        self.in_a_loop_over_views = any(written in syntax.targets_of(loop) for loop in loops)
        if holders and not self.by_a_layer:
            values = [value for write in writes for value in written_values(write.node)]
            read = lost_graph.tensors_read(self.frame, values)
            self._judge(value, [tensor for tensor in read if tensor is not value], writes)

    def _find_functional_call(self) -> None:
        """Find the call that a change of buffers comes from, and the tensors it is to be given."""
        for frame, line in walk_tb(self.exception.__traceback__):
            place = Location(frame.f_code.co_filename, line)
            statement = source.simple_statement(*place) if is_users(frame.f_code) else None
            nodes = ast.walk(statement or ast.Pass())
            calls = (node for node in nodes if isinstance(node, ast.Call))
            for tensors in filter(None, map(syntax.with_own_buffers, calls)):
                self.began_at, self.names = place, {**self.names, "own": tensors}

    def _judge(self, leaf: Any, read: list[Any], writes: Iterable[source.Write]) -> None:
        """Find out whether the change updates a parameter of a module, and from what.

        Such an update runs outside of every forward pass, and no loss is to train what it reads
        through it: backward calls have reached that before, it is a parameter that is copied, or
        the change adds to a parameter that each of its optimizers trains, too.
        """
        self.value_has_graph = bool(read)
        codes = {frame.f_code for frame, _ in walk_stack(self.frame)}
        differentiable = any(call.creates_graph for call in self.timeline.calls)
        is_parameter = isinstance(leaf, torch.nn.Parameter)
        if not is_parameter or _torch.MODULE_CALL in codes or differentiable:
            return
        leaves = leaves_of(walk(roots_of(read))[0])
        training = Training(self.timeline, storages_in(leaves))
        holds = [storage_of(leaf)[0] in storages for _, storages in training.optimizers]
        adds = any(isinstance(write.node, ast.AugAssign) for write in writes)
        self.updates_a_parameter = (
            all(source.grad is not None for source in leaves)
            or (adds and all(holds))
            or all(isinstance(t, torch.nn.Parameter) and t.shape == leaf.shape for t in read)
        )


class ReshapedEvidence(TextEvidence):
    """Names of the leaves that have the shape of the gradient which autograd refuses."""

    def __post_init__(self) -> None:
        leaves = leaves_of(walk(roots_of(self.outputs))[0])
        reshaped = (leaf for leaf in leaves if f"got {[*leaf.shape]} but" in self.error)
        self.names = {"it": self.names_of(reshaped)}


class Retained(ReuseEvidence):
    """The part of the graph that an earlier backward call retained, and how a loss reaches it."""

    def __init__(self, saved_by: int, *arguments: Any):
        self._saved_by = saved_by
        super().__init__(*arguments)

    def _earlier(self) -> dict[int, BackwardCall]:
        call = self._kept_since(self._saved_by)
        if call is None:
            return {}
        older = (i for i in range(len(self.live)) if self._number(i) < call.sequence_nr)
        return {i: call for i in older if self.nodes[i].leaf is None}

    def _blocking(self) -> set[int]:
        return {i for i in self.earlier if self._number(i) == self._saved_by}
