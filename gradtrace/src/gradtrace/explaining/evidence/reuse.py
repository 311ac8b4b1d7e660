"""How a loss reaches what an earlier backward has run through: what came over, and who holds it."""

from __future__ import annotations

import gc
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from types import FrameType
from typing import Any

import torch

from gradtrace import _torch
from gradtrace.autograd import source
from gradtrace.autograd.frames import Chain, Location, is_users, place_of, reach, user_frame
from gradtrace.autograd.saved import describe
from gradtrace.autograd.tensors import storage_of
from gradtrace.autograd.traversal import leading_to, roots_of, users_of, walk
from gradtrace.explaining.evidence import carriers
from gradtrace.explaining.evidence.base import Evidence, NoEvidence
from gradtrace.explaining.evidence.carriers import Held
from gradtrace.explaining.evidence.training import Training
from gradtrace.watching.record import BackwardCall


class Reuse(Evidence):
    """How a loss reaches what an earlier backward has run through.

    ``earlier`` are the nodes that were in such a backward, each with its call.  Into them lead
    ``entries``: what the new part of the graph, ``new``, was made of.  ``first`` is the entry
    nearest to the loss, and ``freeing`` the call that ran through it.

    A node *made again* is a later one of the same origin: made by the same line, by an operation
    of the same name, on the same parameters; where lines are not known, by the last two.
    """

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        roots = roots_of(self.outputs)
        self.live, self.links = walk(roots)
        self.users = users_of(self.links)
        self.nodes = describe(self.live, self.links).nodes
        self.earlier = self._earlier()
        stopped = self._stopped()
        self.entries = [
            i
            for i in self.earlier
            if (i < len(roots) or any(j not in self.earlier for j in self.users[i]))
            and (i in stopped or not stopped.isdisjoint(self._reached_from([i])))
        ]
        if not self.entries:
            raise NoEvidence
        self.first = self.entries[0]
        self.freeing = self.earlier[self.first]
        self.began_at = self.freeing.location
        self._was_made(self._number(self.first))

    def _earlier(self) -> dict[int, BackwardCall]:
        raise NotImplementedError

    def _stopped(self) -> set[int]:
        """The nodes that are why backward cannot run again."""
        raise NotImplementedError

    @property
    def seen(self) -> bool:
        """Whether a strict watch saw it made; without shapes (2.4) a sum of losses is not known."""
        shown = _torch.result_shapes(self.live[self.first]) is not None
        return shown and self.made_at is not None

    @cached_property
    def names(self) -> Mapping[str, str]:
        if self.function_around is not None:
            return {"it": place_of(self.function_around, "backward")}
        detached = carriers.detached([self.in_a_buffer] if self.in_a_buffer else self.carriers)
        found = {
            "it": self.carrier_name,
            "trained": self._names_of(self._trained_only_there),
            "detached": detached,
            "closure": " inside the closure" if self._in_a_closure else None,
            "as_code": f": {detached}" if detached and "=" in detached else None,
        }
        return {key: name for key, name in found.items() if name is not None}

    # What is new in this graph.

    @cached_property
    def new(self) -> list[int]:
        return [
            i for i, node in enumerate(self.nodes) if i not in self.earlier and node.leaf is None
        ]

    @cached_property
    def loss_was_run(self) -> bool:
        """Whether all that this root reaches and that saves something had been freed before.

        A new root that only scales or adds up the loss refutes it as little as a new name would.
        """
        since = self.freeing.sequence_nr
        return all(self._number(i) >= since and self._is_scaling(i) for i in self.new)

    @cached_property
    def built_after(self) -> list[int]:
        since = self.freeing.sequence_nr
        return [i for i in self.new if self._number(i) >= since]

    @cached_property
    def made_again(self) -> list[int]:
        origins = self._origins
        return [i for i in self.built_after if self._origin(self.live[i]) in origins]

    @cached_property
    def _origins(self) -> set[Any]:
        return {self._origin(self.live[i]) for i in (*self.entries, *self.crossing)}

    @cached_property
    def crossing(self) -> list[int]:
        """What came over: the old nodes that later ones were made of; else the entries.

        Mostly these are the entries.  A state may have been made of them, in the same iteration,
        by an operation that the earlier loss did not need.
        """
        later = set(self.built_after)
        old = (i for i in (*self.entries, *self._above) if i not in later)
        return [i for i in old if not later.isdisjoint(self.users[i])] or self.entries

    @cached_property
    def passed_on(self) -> list[int]:
        return [i for i in self.made_again if i in self._above]

    @cached_property
    def a_loss_is_added(self) -> bool:
        """Whether what came over is the root of an earlier call, and was only added and scaled."""
        losses = [
            i for i, call in self.earlier.items() if call.whole and self._number(i) in call.roots
        ]
        return any(map(self._is_summand, losses))

    @property
    def freed_by_a_gradient(self) -> bool:
        return not self.freeing.whole

    @property
    def written_in_place(self) -> bool:
        """CopySlices is the node of a write to a part of a tensor, or to a view of it."""
        return any(self.nodes[i].name == "CopySlices" for i in (*self.entries, *self._above))

    # When it was made.

    @cached_property
    def repeated(self) -> bool:
        made = self._number(self.first)
        return any(
            earlier.location == self.raised_at and earlier.sequence_nr > made
            for earlier in tuple(self.timeline.calls)
            if earlier is not self.call
        )

    @cached_property
    def used_again(self) -> bool:
        """Whether it was made once, and its consumers were made several times.

        By the chain of calls from the line that uses it out to the function in which it was made.
        Where the chains are not known: by the line that raised, and whether it was made again.
        """
        if self._chain(self.first) is None:
            return self.repeated and (not self.made_again or self._is_constant)
        later = set(self.built_after)
        return any(
            self._used_before(i, chain)
            for i in self.crossing
            for j in later.intersection(self.users[i])
            if (chain := self._chain(j)) is not None
        )

    def _used_before(self, i: int, chain: Chain) -> bool:
        """Whether this chain of calls ran between the making of a node and the freeing."""
        maker = self._chain(i)
        makers = set() if maker is None else {code for code, _ in maker.path}

        def within(chain: Chain) -> tuple[Any, ...]:
            """The calls up to the innermost function that the node was made in, too."""
            ends = (n for n, (code, _) in enumerate(chain.path) if code in makers)
            return chain.path[: next(ends, len(chain.path)) + 1]

        between = self.timeline.lines.between(self._number(i) + 1, self.freeing.sequence_nr)
        return within(chain) in map(within, between)

    @cached_property
    def _is_constant(self) -> bool:
        """Whether variables hold all that came over that were assigned once, or before the loop."""
        held = {
            _torch.grad_fn_of(one.value)
            for one in self.holders
            if not one.owners and _stays(one.frame, one.name)
        }
        return all(self.live[i] in held for i in self.crossing)

    @cached_property
    def other_parameters(self) -> bool:
        """Whether this loss reaches other parameters than the earlier one; False if not known."""
        return bool(self.freeing.leaves) and self._storages != self.freeing.leaves

    # Who holds it.

    @cached_property
    def holders(self) -> list[Held]:
        """The variables that hold what was freed, or what was made of it before it was freed."""
        exact = {self.live[i] for i in self.entries}
        before = self._before
        held = [one for one in self.variables if _torch.grad_fn_of(one.value) in before]
        held.sort(key=lambda one: _torch.grad_fn_of(one.value) not in exact)
        if held:
            return held
        # Or what was freed, looked at anew: nodes made after the freeing that save nothing.
        views = {self.live[i] for i in self._above if not self.nodes[i].saved}
        kept = (one for one in self.variables if one.owners or one.goes_round)
        return [one for one in kept if _torch.grad_fn_of(one.value) in views]

    @cached_property
    def successors(self) -> list[Held]:
        """The variables that held the freed part, and now hold what took its place.

        This loss need not have been computed from that; the next one would be.
        """
        since = self.freeing.sequence_nr
        return [
            one
            for one in self.variables
            if (node := _torch.grad_fn_of(one.value)) is not None
            and not isinstance(node, _torch.LEAF)
            and _torch.sequence_nr(node) >= since
            and one.carries
            and self._origin(node) in self._origins
        ]

    @cached_property
    def carriers(self) -> list[Held]:
        """All that carry it over: those that still hold it, and those that hold its successor."""
        held = [one for one in self.holders if one.carries]
        return held if held and not self.passed_on else [*self.successors, *held]

    @cached_property
    def carrier_name(self) -> str | None:
        """By the variables; else the name in the source."""
        if self.in_a_buffer is not None:
            return carriers.name_of([self.in_a_buffer])
        exact = {self.live[i] for i in self.entries}
        held = [one for one in self.holders if _torch.grad_fn_of(one.value) in exact]
        # What a variable goes on holding is called by its name, wherever else it lies.
        plain = {id(one.value) for one in held if not one.owners and one.carries}
        held = [one for one in held if not one.owners or id(one.value) not in plain]
        carried = self.carriers if self.passed_on or not held else held
        named = carriers.name_of(carried or self.holders)
        return named or self._assigned_and_used

    @cached_property
    def every_entry_is_named(self) -> bool:
        """Whether nothing else came over than what the carriers hold."""
        nodes = [_torch.grad_fn_of(one.value) for one in self.carriers]
        held = {self._origin(node) for node in nodes if node is not None}
        below = {self.live[i] for i in self._below_carriers}
        came = (self.live[i] for i in self.crossing)
        return all(one in nodes or one in below or self._origin(one) in held for one in came)

    @cached_property
    def in_a_dataset(self) -> Held | None:
        if not self.holders:
            return None
        datasets = _dataset_tensors()
        return _first(self.holders, lambda one: one.inside(_DATASETS) or id(one.value) in datasets)

    @cached_property
    def in_a_buffer(self) -> Held | None:
        return _first([*self.holders, *self.successors], lambda one: one.is_buffer)

    @property
    def in_a_module(self) -> bool:
        return any(
            isinstance(owner, torch.nn.Module) for one in self.holders for owner in one.owners[-1:]
        )

    @cached_property
    def in_a_container(self) -> Held | None:
        return _first(self.holders, lambda one: one.inside(_CONTAINERS))

    @cached_property
    def refilled(self) -> bool:
        """Whether its container also holds what was made after the first backward of this line."""
        stored = self._stored
        calls = self.timeline.calls
        began = next((c.sequence_nr for c in calls if c.location == self.raised_at), None)
        return began is not None and any(
            _torch.sequence_nr(node) >= began for node in stored if type(node) is not _torch.LEAF
        )

    @cached_property
    def held_by_a_name_too(self) -> bool:
        """Whether the newest of what the container holds is in a variable besides."""
        since = self.freeing.sequence_nr
        return any(
            not one.inside(_CONTAINERS)
            and one.carries
            and _torch.grad_fn_of(one.value) in self._stored
            and _torch.sequence_nr(_torch.grad_fn_of(one.value)) >= since
            for one in self.variables
        )

    @cached_property
    def in_a_cache(self) -> bool:
        """Whether a dict, and no other container, holds it beside what was made since."""
        if self.in_a_container is None or not self.refilled:
            return False
        around = [one for one in self.in_a_container.owners if isinstance(one, _CONTAINERS)]
        return len(around) == 1 and isinstance(around[0], dict)

    @property
    def looped_over(self) -> bool:
        frame = user_frame(self.frame)
        loop = None if frame is None else source.loop_around(frame)
        stored = self.in_a_container
        return loop is not None and stored is not None and source.runs_over(loop, stored.name)

    # What is trained, and by which optimizer.

    @cached_property
    def training(self) -> Training:
        return Training(self.timeline, self._both_losses)

    @cached_property
    def _both_losses(self) -> frozenset[int]:
        """The storages of the leaves that this loss reaches, or the earlier one, where known."""
        return self.freeing.leaves | self._storages

    @cached_property
    def _all_leaves(self) -> list[torch.Tensor]:
        return self._leaves(range(len(self.live)))

    @cached_property
    def _storages(self) -> frozenset[int]:
        """Those of the leaves that this loss reaches."""
        return frozenset(storage_of(leaf)[0] for leaf in self._all_leaves)

    @property
    def optimizers_are_known(self) -> bool:
        return self.training.known

    @cached_property
    def trains(self) -> bool:
        """Whether the new part reaches parameters of its own."""
        return any(self.nodes[j].leaf is not None for i in self.new for j in self.links[i])

    @cached_property
    def trained_there(self) -> bool:
        return bool(self.training.trained(self._leaves(self._behind)))

    @cached_property
    def trained_only_there(self) -> bool:
        return bool(self._trained_only_there)

    @cached_property
    def _trained_only_there(self) -> list[torch.Tensor]:
        """The parameters that this loss reaches through what was freed, and not otherwise."""
        otherwise = {id(leaf) for leaf in self._leaves(self.new)}
        return [
            leaf
            for leaf in self.training.trained(self._leaves(self._behind))
            if id(leaf) not in otherwise
        ]

    @cached_property
    def trained_through_the_container(self) -> bool:
        """Whether a parameter is reached through what the container holds, new entries too, only.

        Such entries are the loss's own: log-probabilities, losses.
        """
        stored = self._stored
        blocked = {i for i, node in enumerate(self.live) if node in stored}
        reached = self._reached_from([0], blocked) - blocked
        otherwise = {id(leaf) for leaf in self._leaves(reached)}
        every = self.training.trained(self._all_leaves)
        return any(id(leaf) not in otherwise for leaf in every)

    @cached_property
    def several_optimizers(self) -> bool:
        return len(self.training.optimizers) > 1

    @cached_property
    def one_optimizer(self) -> bool:
        """Whether one holds all leaves of both losses, which a plain watch does not know."""
        known = bool(self.freeing.leaves)
        return known and any(self._both_losses <= held for _, held in self.training.optimizers)

    @cached_property
    def others_are_trained(self) -> bool:
        return bool(self.training.trained(self._leaves(self.new)))

    @property
    def stepped_between(self) -> bool:
        return bool(self.training.stepped_since(self.freeing))

    @cached_property
    def weights_changed(self) -> bool:
        """Between the two backwards, by an optimizer's step or by hand."""
        return self.stepped_between or self.training.changed_since(self.freeing, self._all_leaves)

    @cached_property
    def only_others_stepped(self) -> bool:
        """The optimizers that stepped between do not train the shared part, others do."""
        stepped = self.training.stepped_since(self.freeing)
        owners = self._owners(self._behind)
        return bool(stepped and owners) and not any(one in stepped for one in owners)

    @cached_property
    def its_own_stepped(self) -> bool:
        """The optimizers of the shared part stepped between, and the new part has another's."""
        stepped = self.training.stepped_since(self.freeing)
        owners = self._owners(self._behind)
        others = self._owners(self.new)
        return (
            bool(owners)
            and all(one in stepped for one in owners)
            and any(one not in stepped for one in others)
        )

    def _owners(self, nodes: Iterable[int]) -> list[torch.optim.Optimizer]:
        return self.training.owners({storage_of(leaf)[0] for leaf in self._leaves(nodes)})

    def _leaves(self, nodes: Iterable[int]) -> list[torch.Tensor]:
        """The leaves among these nodes and their successors, each once."""
        found = {
            k: self.live[k].variable
            for i in nodes
            for k in (i, *self.links[i])
            if self.nodes[k].leaf is not None
        }
        return [*found.values()]

    @property
    def _in_a_closure(self) -> bool:
        """Whether an optimizer's step calls the function that called backward."""
        caller = None if self.frame is None else self.frame.f_back
        while caller is not None and not is_users(caller.f_code):
            if "optim" in caller.f_code.co_filename:
                return True
            caller = caller.f_back
        return False

    def _names_of(self, leaves: Iterable[torch.Tensor]) -> str | None:
        wanted = {id(leaf) for leaf in leaves}
        return carriers.name_of(one for one in self.variables if id(one.value) in wanted)

    # The graph.

    def _reached_from(self, starts: Iterable[int], but: Iterable[int] = ()) -> set[int]:
        """The nodes that these lead to, themselves among them, not beyond ``but``."""
        seen = {*starts}
        pending, ends = list(seen), {*but}
        for i in pending:
            for j in self.links[i] if i not in ends else ():
                if j not in seen:
                    seen.add(j)
                    pending.append(j)
        return seen

    @cached_property
    def _behind(self) -> set[int]:
        """What the entries lead to."""
        return self._reached_from(self.entries)

    @cached_property
    def _above(self) -> set[int]:
        """The nodes from which a path leads to an entry, and that are none of the earlier ones."""
        return leading_to(self.entries, self.users) - self.earlier.keys()

    @cached_property
    def _before(self) -> set[_torch.LiveNode]:
        """The nodes made before the freeing, with the freed part behind them."""
        since = self.freeing.sequence_nr
        found = (i for i in (*self.entries, *self._above) if self._number(i) < since)
        return {self.live[i] for i in found}

    @cached_property
    def _below_carriers(self) -> set[int]:
        """What lies under the nodes that carriers hold, of those made before the freeing."""
        nodes = {_torch.grad_fn_of(one.value) for one in self.carriers}
        held = [i for i, node in enumerate(self.live) if node in nodes and node in self._before]
        return self._reached_from(held)

    @cached_property
    def _stored(self) -> set[_torch.LiveNode]:
        """The nodes of all that the container holds."""
        if self.in_a_container is None:
            return set()
        container = next(o for o in self.in_a_container.owners if isinstance(o, _CONTAINERS))
        return {
            _torch.grad_fn_of(one.value)
            for one in self.variables
            if any(owner is container for owner in one.owners) and not one.value.is_leaf
        }

    def _number(self, i: int) -> int:
        """When the operation of this node was recorded."""
        return _torch.sequence_nr(self.live[i])

    def _chain(self, i: int) -> Chain | None:
        """The lines that made it; None where they are not known."""
        return self.timeline.lines.find(self._number(i))

    def _line_of(self, i: int) -> Location | None:
        chain = self._chain(i)
        return None if chain is None else chain.location

    def _origin(self, node: _torch.LiveNode) -> Any:
        """What a node has in common with that of another iteration that is its like."""
        leaves: set[_torch.LiveNode] = set()
        pending = [(node, 0)]
        for here, depth in pending:
            if isinstance(here, _torch.LEAF):
                leaves.add(here)
            elif depth < _NEAR:
                further = (n for n, _ in _torch.edges_of(here) if n is not None)
                pending.extend((n, depth + 1) for n in further)
        chain = self.timeline.lines.find(_torch.sequence_nr(node))
        line = None if chain is None else chain.path[0]
        return type(node), line, frozenset(leaves)

    def _is_scalar(self, i: int) -> bool:
        shapes = _torch.result_shapes(self.live[i])
        return shapes is not None and len(shapes) == 1 and math.prod(shapes[0]) == 1

    def _is_scaling(self, i: int) -> bool:
        """Whether it only scales one-element tensors, or adds them up."""
        return bool(_SUMS.match(self.nodes[i].name)) and all(
            self._is_scalar(k) for k in (i, *self.links[i]) if self.nodes[k].leaf is None
        )

    def _is_summand(self, i: int) -> bool:
        """Whether it is a scalar that enters this loss by sums of new nodes alone."""
        between = leading_to([i], self.users) - {i}
        return self._is_scalar(i) and all(
            j not in self.earlier and _SUMS.match(self.nodes[j].name) for j in between
        )

    @cached_property
    def _assigned_and_used(self) -> str | None:
        """The one name that the line of the freed part assigns and the line of its user reads."""
        users = self.users[self.first]
        used_at = self._line_of(users[0]) if users else None
        if self.made_at is None or used_at is None:
            return None
        return source.assigned_and_used(self.made_at, used_at)


_NEAR = 4  # links between an operation and the parameters that tell it from others of its name
_SUMS = re.compile(r"(Add|Sum|Mean|Stack|Cat|Select|Unsqueeze|View|Div|Mul|ToCopy)Backward")
_CONTAINERS = (list, tuple, deque, dict, set)
_DATASETS = (torch.utils.data.Dataset, torch.utils.data.DataLoader)


def _stays(frame: FrameType, name: str) -> bool:
    """Whether the variable keeps its value while iterations follow one another."""
    loop = source.loop_around(frame)
    if loop is not None and not source.assigns_name(loop, name):
        return True
    return source.assigned_once(frame, name)


def _first(found: list[Held], condition: Callable[[Held], bool]) -> Held | None:
    return next((one for one in found if condition(one)), None)


def _dataset_tensors() -> set[int]:
    """The tensors in the datasets of all loaders that exist: a loop may hold the only reference."""
    loaders = (x for x in gc.get_objects() if issubclass(type(x), torch.utils.data.DataLoader))
    return {id(found.value) for x in loaders for found in reach({"": vars(x).get("dataset")})}
