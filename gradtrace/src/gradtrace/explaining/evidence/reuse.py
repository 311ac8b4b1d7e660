"""The part of an earlier graph that a loss reaches, and the variables that hold that part."""

import ast
import math
import re
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Any

import torch

from gradtrace import _torch
from gradtrace.autograd import source, traversal
from gradtrace.autograd.frames import Chain, place_of, user_frames
from gradtrace.autograd.nodes import FREED, HIDDEN
from gradtrace.autograd.saved import describe
from gradtrace.autograd.syntax import reads, writes
from gradtrace.autograd.tensors import storages_in
from gradtrace.autograd.traversal import leading_to, leaves_of, reachable, roots_of, users_of, walk
from gradtrace.explaining.evidence import carriers
from gradtrace.explaining.evidence.base import Evidence, NoEvidence
from gradtrace.explaining.evidence.carriers import Holder
from gradtrace.explaining.evidence.optimizers import Training, is_cleared
from gradtrace.watching.record import BackwardCall, freed_by


class ReuseEvidence(Evidence):
    """Evidence about the nodes of earlier backward calls that a loss reaches.

    ``earlier`` maps each of these nodes to its call. The ``entries`` among them are the inputs of
    the new part of the graph, ``new``. ``first`` is the entry nearest to the loss, and ``freeing``
    the call that used it. Nodes are named by their index in ``live``.

    A node is *made again* if a later node has the same origin: the same line, operation and
    parameters. If lines are not known, operation and parameters decide.
    """

    def __post_init__(self) -> None:
        roots = roots_of(self.outputs)
        self.live, self.links = walk(roots)
        self.users = users_of(self.links)
        self.nodes = describe(self.live, self.links)
        self.earlier = self._earlier()
        blocking = self._blocking()
        self.entries = [
            i
            for i in self.earlier
            if (i < len(roots) or any(j not in self.earlier for j in self.users[i]))
            and (i in blocking or not blocking.isdisjoint(reachable(self.links, [i])))
        ]
        if not self.entries:
            raise NoEvidence
        self.first = self.entries[0]
        self.freeing = self.earlier[self.first]
        self._begin_at(self.freeing)
        self._locate(self._number(self.first))
        self.variables.extend(carriers.of_generators())
        self.stored_at = self._filled_at([*self.naming, *self.carriers])

    def _earlier(self) -> dict[int, BackwardCall]:
        """Return the nodes that an earlier backward call used, each with that call."""
        calls = ((i, freed_by(live)) for i, live in enumerate(self.live))
        return {i: call for i, call in calls if call is not None}

    def _blocking(self) -> set[int]:
        """Return the nodes that prevent another backward pass."""
        return {i for i in self.earlier if self.nodes[i].state in (FREED, HIDDEN)}

    @property
    def observed(self) -> bool:
        """Whether the first freed node has a known line and shapes; PyTorch 2.4 reports none."""
        return bool(_torch.outputs_of(self.live[self.first]) and self._chain(self.first))

    @cached_property
    def names(self) -> Mapping[str, str | None]:
        if self.nested is not None:
            return {"it": place_of(self.nested, "backward")}
        # One line may call backward() on several losses, also on others than these two.
        several = self.began_at == self.raised_at
        losses = self._roots_of(self.freeing), {*roots_of(self.outputs)}
        functions = [None, *self.freeing.path]  # the innermost last
        in_one = self.frame is not None and self.frame.f_code is functions[-1] and not several
        places = (self.began_at, self.raised_at) if in_one else (None, None)
        first, second = (
            next((v.name for v in self.variables[::-1] if v.node in loss and not v.owners), None)
            or next((v.name for v in self.variables if v.node in loss), None)
            or source.receiver_at(place, "backward")
            for loss, place in zip(losses, places, strict=True)
        )
        if first == second or (several and not (first and second)):
            first = second = None
        around = source.outer_loop_around(self.frame)
        loop = None if around is None else f" of the loop at line {around.lineno}"
        often = None if loop is None else f"in each iteration{loop}"
        return {
            "it": carriers.name_of(self.naming),
            "tensor": self.tensor,
            "at": self.read_at(self.naming, not self.first_trains_others, self._made_before),
            "emptied": carriers.emptied(self.naming),
            "trained": self.names_of(self.trained_only_there),
            "detached": carriers.detached(self.carriers, self._as_leaves),
            "loop": loop,
            "often": "inside the closure" if self.closure else often,
            "first": first,
            "second": second,
            # Without a step, one optimizer may be meant for both losses.
            "because": None if self._stepped else "if only the other loss is to train it",
            "sum": f"({first} + {second}).backward()" if first and second and not several else None,
        }

    # The new part of this graph.

    @cached_property
    def new(self) -> list[int]:
        """The nodes that no earlier backward call used, without leaves."""
        nodes = enumerate(self.nodes)
        return [i for i, node in nodes if i not in self.earlier and node.leaf is None]

    @cached_property
    def loss_was_run(self) -> bool:
        """Whether an earlier backward call on this same loss freed all of its saved tensors."""
        # Another output of the same operation is another loss, and so is a term of that loss. A new
        # root that only scales the loss or adds losses is not.
        if not self.new:
            output_nrs = {output.output_nr for output in self.outputs}
            numbers = {_torch.sequence_nr(root) for root in roots_of(self.outputs)}
            return output_nrs <= self.freeing.output_nrs and numbers <= {*self.freeing.roots}
        since = self.freeing.sequence_nr
        return all(self._number(i) >= since and self._is_scaling(i) for i in self.new)

    @cached_property
    def built_after(self) -> list[int]:
        """The nodes that were created after the freeing call."""
        return [i for i in self.new if self._number(i) >= self.freeing.sequence_nr]

    @property
    def _made_before(self) -> list[Chain | None]:
        """The lines that created the other new nodes."""
        return [self._chain(i) for i in self.new if self._number(i) < self.freeing.sequence_nr]

    @cached_property
    def made_again(self) -> list[int]:
        """The nodes created after the freeing call that have the same origin as a freed node."""
        return [i for i in self.built_after if self._origin(self.live[i]) in self._origins]

    @cached_property
    def _origins(self) -> set[Any]:
        constants = {v.node for v in self.holders if v.is_constant}
        nodes = {self.live[i] for i in (*self.entries, *self.crossing)}
        return {self._origin(node) for node in nodes - constants}

    @cached_property
    def crossing(self) -> list[int]:
        """The older inputs of nodes created after the freeing call, or else the freed entries."""
        # Mostly these are the entries. A state may have been computed from them in the same
        # iteration, by an operation that the earlier loss did not need.
        later = set(self.built_after)
        old = (i for i in (*self.entries, *self._above) if i not in later)
        return [i for i in old if not later.isdisjoint(self.users[i])] or self.entries

    @cached_property
    def passed_on(self) -> list[int]:
        """The nodes of :attr:`made_again` that depend on an entry which the freeing call freed."""
        freed = (i for i in self.entries if self.earlier[i] is self.freeing)
        later = leading_to(freed, self.users)
        return [i for i in self.made_again if i in self._above and i in later]

    @cached_property
    def adds_again(self) -> bool:
        """Whether a line that made an entry has run again, with that entry among its inputs."""
        origins = {self._origin(self.live[i]) for i in self.entries}
        later = leading_to(self.entries, self.users).intersection(self.built_after)
        return any(self._origin(self.live[i]) in origins for i in later)

    @cached_property
    def a_loss_is_added(self) -> bool:
        """Whether the root of an earlier call enters this loss through sums and factors only."""
        scalar = [(i, c) for i, c in self.earlier.items() if c.whole and c.of_scalars]
        losses = [i for i, call in scalar if self._number(i) in call.roots]
        return any(map(self._is_summand, losses))

    freed_by_a_gradient = property(lambda self: not self.freeing.whole)

    @property
    def written_in_place(self) -> bool:
        """Whether a part of a tensor, or a view of it, was written to (node CopySlices)."""
        return any(self.nodes[i].name == "CopySlices" for i in (*self.entries, *self._above))

    # When it was created and used.

    @cached_property
    def repeated(self) -> bool:
        """Whether the line that raised called backward before, since the first entry was made."""
        created = self._number(self.first)
        later = (call for call in self.earlier_calls if call.sequence_nr > created)
        return any(map(self._is_made_here, later))

    @property
    def repeated_in_a_closure(self) -> bool:
        """Whether this call, in an earlier run of the closure in this step, freed the graph."""
        loops = any(map(source.loop_around, self.closure))
        is_again = bool(self.closure) and not loops and self._is_made_here(self.freeing)
        return is_again and not self._stepped

    @cached_property
    def used_again(self) -> bool:
        """Whether the freed part was created once, but used by operations that ran repeatedly."""
        # If the chains of calls that led to these operations are not known, the line that raised
        # must have called backward before, and nothing may have been made again since.
        if self._chain(self.first) is None:
            return self.repeated and not self.made_again
        later = set(self.built_after)
        return any(
            self._used_before(i, chain)
            for i in self.crossing
            for j in later.intersection(self.users[i])
            if (chain := self._chain(j)) is not None
        )

    def _used_before(self, i: int, chain: Chain) -> bool:
        """Whether a chain's innermost calls ran between a node's creation and the freeing call."""
        creator = self._chain(i)
        creators = set() if creator is None else {code for code, _ in creator.path}

        def shared_calls(chain: Chain) -> tuple[Any, ...]:
            """Return the innermost calls, up to the first function in the node's own chain."""
            ends = (n for n, (code, _) in enumerate(chain.path) if code in creators)
            return chain.path[: next(ends, len(chain.path)) + 1]

        between = self.timeline.lines.between(self._number(i) + 1, self.freeing.sequence_nr)
        return shared_calls(chain) in map(shared_calls, between)

    # The variables that hold it.

    @cached_property
    def holders(self) -> list[Holder]:
        """The variables that hold a freed node, or one computed from it before the freeing call.

        If there are none, the lasting variables that hold the oldest node computed from it later,
        provided that an earlier iteration called backward.
        """
        exact, old = {self.live[i] for i in self.entries}, self._computed_before
        holders = [v for v in self.variables if v.node in old]
        if holders or not self.repeated:
            return sorted(holders, key=lambda v: v.node not in exact)
        later = {self.live[i]: self._number(i) for i in self._above if self.users[i]}
        holders = [v for v in self.variables if v.node in later and v.lasts]
        oldest = min((later[v.node] for v in holders), default=None)
        return [v for v in holders if later[v.node] == oldest]

    @cached_property
    def successors(self) -> list[Holder]:
        """The variables that carry over a node made again since the freeing call."""
        since, holders = self.freeing.sequence_nr, (v for v in self.variables if v.node is not None)
        newer = (v for v in holders if _torch.sequence_nr(v.node) >= since and v.carries)
        return [v for v in newer if self._origin(v.node) in self._origins]

    @cached_property
    def _following(self) -> list[Holder]:
        """The variables that carry over a tensor computed from the freed part, beside this loss."""
        if not self.made_again:
            return []
        freed, live = {self.live[i] for i in self.crossing}, {None, *self.live}
        later = (v for v in self.variables if v.carries and v.node not in live)
        return [v for v in later if not freed.isdisjoint(walk([v.node])[0])]

    @cached_property
    def carriers(self) -> list[Holder]:
        """The variables that carry the freed part, or its successor, into the next iteration."""
        if self.in_a_buffer:
            return self.in_a_buffer
        carrying = [variable for variable in self.holders if variable.carries]
        if not carrying or self.passed_on:
            carrying = [*self.successors, *carrying]
        return carrying or self._following

    @property
    def _as_leaves(self) -> bool:
        """Whether autograd.grad, or inputs=, was called for tensors that carry the freed part."""
        inputs = frozenset[int]().union(*(call.input_nrs for call in self.timeline.calls))
        return any(self._number(i) in inputs for i in self.crossing)

    @cached_property
    def naming(self) -> list[Holder]:
        """The variables that name the freed part in texts."""
        exact = {self.live[i] for i in self.entries}
        several = len({id(self.earlier[i]) for i in self.entries}) > 1 and not self.passed_on
        candidates = self.variables if several and not self.stored else self.holders
        holding = [v for v in candidates if v.node in exact]
        # A plain variable that carries the tensor names it, even if a container holds it, too.
        plain = {id(v.value) for v in holding if not v.owners and v.carries}
        holding = [v for v in holding if not v.owners or id(v.value) not in plain]
        lasting = self.in_a_buffer or self.passed_on or not holding
        return (self.carriers if lasting else holding) or self.holders

    @property
    def tensor(self) -> str | None:
        """An expression for the tensors that connect this loss with the freed part, for texts."""
        made = self._chain(self.first)
        chains = (self._chain(j) for j in self.users[self.first] if j not in self.earlier)
        read = {source.expression_read(made, chain) for chain in chains if made and chain} - {None}
        naming = self.naming
        if self.first_trains_others:  # that loss reads only what no other entry was computed from
            naming = [v for v in naming if v.node not in self._inner] or naming
        named = carriers.tensors_of(naming, read.pop() if len(read) == 1 else None)
        leaves = {id(leaf) for leaf in self._leaves(self._inputs)}
        return named or carriers.output_of(leaves, self.variables)

    @cached_property
    def every_entry_is_named(self) -> bool:
        """Whether carriers hold or use each node of :attr:`crossing`, or one of the same origin."""
        nodes = {variable.node for variable in self.carriers} - {None}
        older = nodes & self._computed_before
        used = reachable(self.links, (i for i, node in enumerate(self.live) if node in older))
        unused = (self.live[i] for i in self.crossing if i not in used)
        origins = {self._origin(node) for node in nodes}
        return all(node in nodes or self._origin(node) in origins for node in unused)

    in_a_cached_property = property(lambda self: any(map(carriers.cached_by, self.holders)))
    reads_older_entries = property(lambda self: any(map(carriers.reads_older, self.naming)))

    @cached_property
    def in_a_buffer(self) -> list[Holder]:
        return [variable for variable in (*self.holders, *self.successors) if variable.is_buffer]

    @property
    def in_a_module(self) -> bool:
        return any(isinstance(v.owners[-1], torch.nn.Module) for v in self.holders if v.owners)

    @cached_property
    def container(self) -> Any:
        """The outermost container that holds the freed part, but not as the state of an object."""
        entries = (v for v in self.holders if not carriers.is_set_again(v))
        owners = (owner for variable in entries for owner in variable.owners)
        return next((owner for owner in owners if isinstance(owner, carriers.CONTAINERS)), None)

    @cached_property
    def _stored_nodes(self) -> set[_torch.LiveNode]:
        """The nodes of all tensors that the container holds."""
        return {
            v.node
            for v in self.variables
            if any(owner is self.container for owner in v.owners) and not v.value.is_leaf
        }

    @cached_property
    def stored(self) -> bool:
        """Whether a container holds the freed part and, if that was not made again, newer nodes."""
        # A container whose newest entry was computed from the freed part does not count.
        numbers = {self._number(i): i for i, n in enumerate(self.live) if n in self._stored_nodes}
        if self.container is None or (len(numbers) > 1 and numbers[max(numbers)] in self._above):
            return False
        # Newer nodes are those made since the first call of the line that raised.
        calls = filter(self._is_made_here, self.timeline.calls)
        began = next((call.sequence_nr for call in calls), math.inf)
        return bool(self.made_again) or max(map(_torch.sequence_nr, self._stored_nodes)) >= began

    # The trained parameters and their optimizers.

    @cached_property
    def training(self) -> Training:
        own = storages_in(leaves_of(self.live))
        return Training(self.timeline, own | self._leaves_of(self.freeing))

    optimizers_are_known = property(lambda self: bool(self.training.optimizers))
    _stepped = property(lambda self: self.training.stepped_since(self.freeing))

    @cached_property
    def trains(self) -> bool:
        """Whether a leaf is a direct input of any new node."""
        return bool(self._leaves(self.new))

    @cached_property
    def another_loss(self) -> bool:
        """Whether the failing line is not :attr:`repeated`, or is in a loop over the freed part."""
        loops = map(source.loop_around, user_frames(self.frame))
        heads = [(loop.target, loop.iter) for loop in loops if isinstance(loop, ast.For)]
        visited = set().union(*(writes(target) | reads(items) for target, items in heads))
        return not self.repeated or any(holder.root in visited for holder in self.holders)

    @cached_property
    def trained_there(self) -> list[torch.Tensor]:
        """The trained parameters of the freed part, also those whose gradient has been cleared."""
        leaves = self._leaves(self._inputs)
        ids = {id(leaf) for leaf in self.training.trained(leaves)}
        is_whole = self.freeing.whole
        return [leaf for leaf in leaves if id(leaf) in ids or (is_whole and is_cleared(leaf))]

    @cached_property
    def trained_only_there(self) -> list[torch.Tensor]:
        """The trained parameters that this loss reaches through the freed part only."""
        new_leaves = {id(leaf) for leaf in self._leaves(self.new)}
        return [leaf for leaf in self.trained_there if id(leaf) not in new_leaves]

    @cached_property
    def _trained_beside(self) -> list[torch.Tensor]:
        """The trained parameters that the first root reaches, but not through the container."""
        blocked = {i for i, node in enumerate(self.live) if node in self._stored_nodes}
        passable = reachable(self.links, [0], blocked) - blocked
        return self.training.trained(self._leaves(passable))

    @property
    def trained_through_the_container(self) -> bool:
        """Whether some trained parameters are reached only through the container's tensors."""
        return len(self._trained_beside) < len(self.training.trained(leaves_of(self.live)))

    @property
    def only_the_container_trains(self) -> bool:
        return self.trained_through_the_container and not self._trained_beside

    @property
    def never_stepped(self) -> bool:
        """Whether no optimizer, also none that is gone, has changed a leaf of the freed part."""
        return not self.training.changed_by_steps(0, self._storages(self._inputs))

    @property
    def never_trained(self) -> bool:
        """Whether the freed part depends on parameters, but an optimizer only trains others."""
        leaves = self._leaves(self._inputs)
        parameters = bool(leaves) and all(isinstance(x, torch.nn.Parameter) for x in leaves)
        trains_others = self.optimizers_are_known and self.others_are_trained
        return parameters and trains_others and self.never_stepped and not self.trained_there

    @cached_property
    def two_optimizers(self) -> bool:
        """Whether there are two, or another one than stepped trains this loss, which is older."""
        if not self._stepped:
            return len(self.training.optimizers) == 2 and not self.one_optimizer
        reached = self._storages(range(len(self.live)))
        return not self.built_after and self.training.has_another(self._stepped, reached)

    @cached_property
    def one_optimizer(self) -> bool:
        """Whether one optimizer holds all leaves of both losses; False if they are not known."""
        return bool(self._leaves_of(self.freeing)) and self.training.one_holds_all

    @cached_property
    def others_are_trained(self) -> bool:
        return bool(self.training.trained(self._leaves(self.new)))

    @cached_property
    def weights_changed(self) -> bool:
        """Whether steps, lines or cleared gradients show that weights of the freed part changed."""
        leaves = self._leaves(self._inputs)
        # A program clears gradients after it has used them.
        cleared = self.freeing.whole and all(map(is_cleared, leaves))
        return (
            (cleared and bool(leaves))
            or any(o in self._stepped for o in self._owners)
            or self.training.changed_by_steps(self.freeing.number, self._storages(self._inputs))
            or self.training.changed_since(self.freeing, leaves_of(self.live))
        )

    @cached_property
    def first_trains_others(self) -> bool:
        """Whether optimizers train the shared part, but none of those of the earlier loss does."""
        is_separate = self._only_others(self._optimizers_of_earlier)
        # If none has stepped since, those of the new part, if any, must include one of the shared.
        return (
            is_separate
            and not self.neither_trains_it
            and (bool(self._stepped) or not self._only_others(self._optimizers_of_new))
        )

    @cached_property
    def neither_trains_it(self) -> bool:
        """Whether each loss has optimizers of its own, none of which trains the shared part."""
        both = self._optimizers_of_earlier, self._optimizers_of_new
        return all(map(self._only_others, both)) and not any(o in both[0] for o in both[1])

    @cached_property
    def second_trains_others(self) -> bool:
        """Whether an optimizer of the new part has not stepped, but all of the shared part have."""
        if not self._owners:
            return False
        if self._stepped:
            stepped = all(owner in self._stepped for owner in self._owners)
            return stepped and any(o not in self._stepped for o in self._optimizers_of_new)
        # If none has stepped, those of the earlier loss, if any, must include one of the shared.
        is_separate = self._only_others(self._optimizers_of_new)
        return is_separate and not self._only_others(self._optimizers_of_earlier)

    @cached_property
    def trained_by_another_loss(self) -> bool:
        """Whether a later call of another line, or another optimizer, trains the freed part."""
        storages = self._storages(self._inputs)
        later = (c for c in self.earlier_calls if c.number > self.freeing.number)
        other_calls = (c for c in later if not self._is_made_here(c))
        return self.first_trains_others or any(storages <= self._leaves_of(c) for c in other_calls)

    def _only_others(self, optimizers: Collection[torch.optim.Optimizer]) -> bool:
        """Whether none of these optimizers trains the shared part, but another one does."""
        return bool(optimizers and self._owners) and not any(o in self._owners for o in optimizers)

    @cached_property
    def _owners(self) -> list[torch.optim.Optimizer]:
        return self.training.owners(self._storages(self._inputs))

    @cached_property
    def _optimizers_of_earlier(self) -> list[torch.optim.Optimizer]:
        """The optimizers that the earlier loss is meant for: they step next, or hold its leaves."""
        if stepped := self.training.stepped_since(self.freeing, self.freeing.number):
            return stepped
        leaves = self._leaves_of(self.freeing)
        if not leaves and self._is_made_here(self.freeing):
            return self._optimizers_of_new
        return self.training.owners(leaves - self._storages(self._inputs))

    @cached_property
    def _optimizers_of_new(self) -> list[torch.optim.Optimizer]:
        return self.training.owners(self._storages(self.new) - self._storages(self._inputs))

    def _storages(self, nodes: Iterable[int]) -> frozenset[int]:
        return storages_in(self._leaves(nodes))

    def _leaves(self, nodes: Iterable[int]) -> list[torch.Tensor]:
        """Return the leaves among these nodes and their inputs, each once."""
        indices = dict.fromkeys(k for i in nodes for k in (i, *self.links[i]))
        return leaves_of(self.live[k] for k in indices)

    # The graph.

    @cached_property
    def _inputs(self) -> set[int]:
        """The entries and all nodes that they were computed from."""
        return reachable(self.links, self.entries)

    @cached_property
    def _inner(self) -> set[_torch.LiveNode]:
        """The nodes that the entries were computed from."""
        inputs = (j for i in self.entries for j in self.links[i])
        return {self.live[i] for i in reachable(self.links, inputs)}

    @cached_property
    def other_ways(self) -> bool:
        """Whether the earlier loss reaches what entries were computed from, and not through one."""
        outer = {self.live[i] for i in self.entries} - self._inner
        shared = self._inner & {self.live[i] for i in self._blocking()}
        roots = self._roots_of(self.freeing)
        live, links = walk(roots)
        passed = reachable(links, range(len(roots)), {i for i, n in enumerate(live) if n in outer})
        return any(live[i] in shared for i in passed)

    @cached_property
    def _above(self) -> set[int]:
        """The nodes that were computed from an entry and that no earlier call used."""
        return leading_to(self.entries, self.users) - self.earlier.keys()

    @cached_property
    def _computed_before(self) -> set[_torch.LiveNode]:
        """The entries, and the nodes computed from them before the freeing call."""
        since, entries = self.freeing.sequence_nr, {*self.entries}
        above = (i for i in self._above if self.users[i])  # without the loss itself
        return {self.live[i] for i in (*entries, *above) if self._number(i) < since}

    def _number(self, i: int) -> int:
        return _torch.sequence_nr(self.live[i])

    def _chain(self, i: int) -> Chain | None:
        """Return the lines that created the node; None if they are not known."""
        return self.timeline.lines.find(self._number(i))

    def _origin(self, node: _torch.LiveNode) -> Any:
        """Return a key that is equal for a node and its counterparts in other iterations."""
        chain = self.timeline.lines.find(_torch.sequence_nr(node))
        line, leaves = chain and chain.lines[0], traversal.leaves_within(_NEAR, node)
        return (type(node), line, leaves) if line or leaves or self.repeated else node

    def _is_scaling(self, i: int) -> bool:
        """Whether the node only scales one-element tensors, or adds them."""
        results = [self.live[k] for k in (i, *self.links[i]) if self.nodes[k].leaf is None]
        sizes = [[math.prod(o.shape) for o in _torch.outputs_of(node)] for node in results]
        return bool(_SUMS.match(self.nodes[i].name)) and all(size == [1] for size in sizes)

    def _is_summand(self, i: int) -> bool:
        """Whether the node enters this loss through new sums and factors alone."""
        between = leading_to([i], self.users)
        return all(j not in self.earlier and _SUMS.match(self.nodes[j].name) for j in between)


_NEAR = 4  # links between an operation and the parameters that distinguish it
_SUMS = re.compile(r"(Add|Sum|Mean|Stack|Cat|Select|Unsqueeze|View|Div|Mul|ToCopy)Backward")
