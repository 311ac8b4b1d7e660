"""What a watch remembers: memory that overlaps, lines, edits, and which call freed a node."""

import gc
import math
import warnings
import weakref
from types import SimpleNamespace

import pytest
import torch

from gradtrace import _torch, watch
from gradtrace.autograd.frames import Location
from gradtrace.autograd.tensors import storage_of
from gradtrace.watching import cuts as cuts_module
from gradtrace.watching import record
from gradtrace.watching.constant_terms import ConstantTerms
from gradtrace.watching.cuts import Cut, Cuts
from gradtrace.watching.operation_kinds import is_in_place
from gradtrace.watching.record import (
    BackwardCall,
    Export,
    Lines,
    Memory,
    Modification,
    OptimizerStep,
    Record,
    Timeline,
    freed_by,
)
from gradtrace.watching.running_sums import Sum, Sums

HERE, THERE = Location("train.py", 3), Location("train.py", 7)


def test_what_changes_its_first_argument_is_told_from_what_reads_an_attribute():
    assert is_in_place(torch.Tensor.add_)
    assert not is_in_place(torch.Tensor.grad.__get__)


@pytest.mark.parametrize(
    "index",
    [
        slice(None, None, 2),
        slice(1, None, 3),
        slice(2, 5),
        3,
        -1,
        (slice(None, None, 2), 1),
        (..., 1),
        (1, ...),
        (None, slice(None, None, 2)),
        (slice(1, 4), slice(None, None, 2)),
    ],
)
def test_an_item_of_a_tensor_has_the_memory_of_its_view(index):
    whole = torch.arange(24.0).view(6, 4)
    assert Memory.of_item(whole, index) == Memory.of(whole[index]) != Memory.of(whole)


@pytest.mark.parametrize("index", [torch.tensor([0, 2]), [0, 2], slice(4, 4), True])
def test_an_index_that_makes_no_view_has_all_of_the_memory(index):
    whole = torch.arange(24.0).view(6, 4)
    assert Memory.of_item(whole, index) == Memory.of(whole)


def test_columns_side_by_side_do_not_overlap():
    whole = torch.arange(24.0).view(6, 4)
    even, odd, row = whole[:, ::2], whole[:, 1::2], whole[2]
    memories = [Memory.of(view) for view in (even, odd, row)]
    assert [a.overlaps(b) for a in memories for b in memories] == [
        *(True, False, True),
        *(False, True, True),
        *(True, True, True),
    ]


def test_a_call_behind_one_with_inputs_frees_what_that_left():
    with watch():
        hidden = torch.ones(3, requires_grad=True).exp()
        total = hidden.sum()
        torch.autograd.grad(total, hidden)  # frees nothing behind hidden
        partial = freed_by(total.grad_fn)
        assert partial is not None and not partial.whole
        assert freed_by(hidden.grad_fn) is None
        total.backward()
        complete = freed_by(hidden.grad_fn)
    assert complete is not None and complete.whole
    assert freed_by(total.grad_fn) is partial


def test_a_call_behind_a_complete_one_frees_only_what_is_new():
    with watch():
        hidden = torch.ones(3, requires_grad=True) + 1  # saves nothing, so it runs twice
        hidden.sum().backward()
        first = freed_by(hidden.grad_fn)
        later = hidden.sum()
        later.backward()
    assert freed_by(later.grad_fn).number == first.number + 1
    assert freed_by(hidden.grad_fn) is first


def test_elements_of_different_sizes_are_compared_by_their_spans():
    even = Memory(0, (2,), (2,), itemsize=4)  # bytes 0 to 3, and 8 to 11
    assert not even.overlaps(Memory(4, (1,), (1,), itemsize=4))
    assert even.overlaps(Memory(4, (1,), (1,), itemsize=2))
    assert not even.overlaps(Memory(12, (1,), (1,), itemsize=2))
    assert not Memory(4, (1,), (1,), itemsize=4).overlaps(Memory(2, (1,), (1,), itemsize=2))


def test_lines_are_found_by_the_numbers_of_the_nodes_that_they_created():
    lines, first, second = Lines(), object(), object()
    lines.add(3, 5, first)
    lines.add(5, 6, second)
    lines.add(8, 9, first)
    lines.add(9, 10, first)
    lines.add(11, 12, first)
    expected = [None, first, first, second, None, None, first, first, None, first]
    assert [lines.find(number) for number in range(2, 12)] == expected
    assert len(lines._chains) == 4  # ranges side by side of one line are one
    assert lines.between(4, 8) == [first, second]
    assert lines.between(5, 8) == [second]
    assert lines.between(6, 8) == []  # not the line of a node before them
    assert lines.between(7, 9) == [first]


def test_only_later_edits_of_the_same_storage_are_returned_oldest_first():
    timeline = Timeline()
    edits = [Modification(None, number, None, last_call=0) for number in (2, 3, 3, 5)]
    for edit in edits:
        timeline.edited(7, edit)
    assert [*timeline.edits_since(2, 7)] == edits[1:]
    assert [*timeline.edits_since(5, 7)] == [*timeline.edits_since(2, 8)] == []
    timeline.edited(8, Modification(None, 4, None, last_call=0))  # recorded late
    assert timeline.last_write == 5


def number_of(tensor):
    return tensor.grad_fn._sequence_nr()


def test_the_roots_of_a_call_are_the_loss_and_what_it_only_scales():
    def loss():
        return torch.ones(3, requires_grad=True).exp().sum()

    with watch():
        inner, first, second = loss(), loss(), loss()
        scaled, total = inner / 4, first + second
        scaled.backward()
        total.backward()
    assert freed_by(scaled.grad_fn).roots == (number_of(scaled), number_of(inner))
    assert freed_by(total.grad_fn).roots == (number_of(total),)


def test_a_call_that_retains_the_graph_frees_nothing():
    with watch():
        loss = torch.ones(3, requires_grad=True).exp().sum()
        loss.backward(retain_graph=True)
        assert freed_by(loss.grad_fn) is None
        loss.backward()
    assert freed_by(loss.grad_fn) is not None


def test_a_tensor_without_elements_of_its_own_has_no_memory():
    sparse = torch.eye(2).to_sparse()
    for tensor in (sparse, torch.ones(0), torch.ones(2, device="meta")):
        assert Memory.of(tensor) is None
    whole = torch.ones(2, 3)
    assert Memory.of(whole) == Memory(whole.data_ptr(), (2, 3), (3, 1), 4)
    assert Memory.of(whole).span == range(whole.data_ptr(), whole.data_ptr() + 24)


def test_only_large_tensors_are_compared_by_their_spans(monkeypatch):
    whole = torch.arange(24.0).view(6, 4)
    even, odd = Memory.of(whole[:, ::2]), Memory.of(whole[:, 1::2])
    for largest, overlap in ((24, False), (23, True)):
        monkeypatch.setattr(record, "_MAX_COMPARED", largest)
        assert even.overlaps(odd) == odd.overlaps(even) == overlap


def test_a_step_changes_the_recorded_storages_or_all_parameters():
    weight, other = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    storage, (elsewhere, *_) = storage_of(weight)[0], storage_of(other)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    step = OptimizerStep(weakref.ref(optimizer), HERE, 5, last_call=2, storages=None)
    assert step.changed(storage) and not step.changed(elsewhere)
    recorded = OptimizerStep(step.optimizer, HERE, 5, 2, frozenset({elsewhere}))
    assert recorded.changed(elsewhere) and not recorded.changed(storage)
    none = OptimizerStep(step.optimizer, HERE, 5, 2, frozenset())  # no parameter had a gradient
    assert not none.changed(storage)
    del optimizer
    gc.collect()
    assert not step.changed(storage)


def test_old_lines_are_dropped(monkeypatch):
    monkeypatch.setattr(record, "_MAX_LINES", 2)
    lines, chains = Lines(), [object() for _ in range(5)]
    for number, chain in enumerate(chains):
        assert [lines.find(earlier) for earlier in range(number)] == chains[:number]
        lines.add(number, number + 1, chain)
    assert [lines.find(number) for number in range(5)] == [None, None, *chains[2:]]


def test_a_node_has_the_line_that_created_it():
    timeline = Timeline()
    timeline.lines.add(1, 3, SimpleNamespace(location=HERE))
    assert [timeline.line_of(number) for number in (None, 0, 2, 3)] == [None, None, HERE, None]


def test_a_cut_belongs_to_the_tensor_that_has_its_address_and_shape(monkeypatch):
    monkeypatch.setattr(cuts_module, "_MAX_CUTS", 2)
    cuts, tensors = Cuts(), [torch.ones(2) for _ in range(3)]
    first, second, third = (Cut("detach", HERE, of=frozenset({i})) for i in range(3))
    cuts.set(tensors[0], first)
    cuts.set(tensors[1], second)
    assert (cuts.get(tensors[0]), cuts.get(tensors[1]), cuts.get(tensors[2])) == (
        *(first, second),
        None,
    )
    assert cuts.of([0, 1]) is second and cuts.of([0]) is first and cuts.of([2]) is None
    cuts.set(tensors[2], third)  # the oldest makes room
    assert cuts.get(tensors[0]) is None and len(cuts) == 2
    cuts.forget(tensors[1], [tensors[2], tensors[1]])
    assert cuts.get(tensors[1]) is second
    cuts.forget(tensors[1], [tensors[2]])
    assert cuts.get(tensors[1]) is None
    cuts.forget(tensors[1])
    tensors[2].resize_(1)
    assert cuts.get(tensors[2]) is None


def test_a_sum_is_followed_until_it_dies_or_is_used():
    sums = Sums()
    kept, used, dying, unreported = (Sum(HERE, 0, sequence_nr=number) for number in range(4))
    for total in (kept, used, dying):
        sums.add(total, reports_death=True)
    sums.add(unreported, reports_death=False)
    assert sums.alive() == {0: kept, 1: used, 2: dying, 3: unreported} and len(sums._alive) == 4
    sums.used([1, 9])
    sums.used([1])
    del used, total
    assert sums.died == []
    del dying, unreported
    assert sums.died == [HERE]
    assert sums.alive() == {0: kept} and len(sums._alive) == 1


def test_the_call_after_another_is_the_next_that_began():
    timeline = Timeline()
    assert (timeline.last_call, timeline.call_after(None), timeline.call_after(0)) == (
        0,
        None,
        None,
    )
    timeline.calls.extend(BackwardCall(number, HERE, 0) for number in (2, 3, 5))
    assert timeline.last_call == timeline.call_after(None).number == 5
    assert [timeline.call_after(number).number for number in (1, 2, 3)] == [2, 3, 5]
    assert timeline.call_after(5) is None
    for number, numbers in ((1, [2, 3, 5]), (3, [3, 5]), (4, [5]), (6, [])):
        assert [call.number for call in timeline.calls_since(number)] == numbers


@pytest.mark.parametrize("creates", [False, True])
@pytest.mark.parametrize("on_accelerator", [False, True])
@pytest.mark.parametrize("recorded", [0, 1])
def test_a_graph_of_gradients_that_has_no_numbers_of_this_thread_is_elsewhere(
    creates, on_accelerator, recorded
):
    timeline, call = Timeline(), BackwardCall(1, HERE, _torch.next_sequence_nr() - recorded)
    call.creates_graph, call.on_accelerator = creates, on_accelerator
    timeline.ended(call)
    is_elsewhere = creates and (on_accelerator or not recorded)
    assert timeline.graph_elsewhere == (call.sequence_nr - 1 if is_elsewhere else -1)
    assert call.ended_at == _torch.next_sequence_nr()


def test_a_value_that_comes_back_was_not_cut_off_on_purpose():
    timeline, detached, other = Timeline(), Cut("detach", HERE), Cut("item", THERE)
    read = Cut("copy", HERE, origins=(detached,))
    timeline.suspects = {1: {detached: True, other: True}, 2: {}, 3: {read: True}}
    timeline.came_back(read)
    assert timeline.suspects == {1: {detached: False, other: True}, 2: {}, 3: {read: False}}


def test_a_loss_uses_the_cuts_of_its_values_while_any_leaf_has_no_gradient():
    timeline, detached = Timeline(), Cut("detach", HERE)
    read = Cut("copy", HERE, origins=(detached,))
    node = torch.ones(2, requires_grad=True).exp().grad_fn
    timeline.cuts.use(node, [read])
    number = _torch.sequence_nr(node)
    for suspects, numbers, used in (
        ({}, [number], set()),
        ({1: {}}, [number + 1], set()),
        ({1: {}}, [number], {read, detached}),
        ({}, [number], set()),  # forgotten
    ):
        timeline.suspects = suspects
        timeline.note_loss(numbers, [])
        assert timeline.fed == used
    leaf, written = torch.ones(2, requires_grad=True), Cut("set_data", THERE, origins=(read,))
    timeline.cuts.set_memory(leaf, written)
    timeline.suspects = {1: {}}
    timeline.note_loss([], [torch.ones(2, requires_grad=True), leaf])
    assert timeline.fed == {written, read, detached}  # what was written into the leaf's memory


def test_each_cut_of_a_leaf_without_a_gradient_is_recorded_in_order(monkeypatch):
    leaf, timeline = torch.ones(2, requires_grad=True), Timeline()
    key = _torch.tensor_identity(leaf)
    meant, unmeant, other = Cut("detach", HERE), Cut("item", THERE), Cut("detach", HERE)
    timeline.cut_off([leaf.exp()], meant, meant=True)
    assert timeline.suspects == {}  # the leaf is none
    timeline.suspects[key] = {}
    timeline.cut_off([torch.ones(1)], meant, meant=True)
    assert timeline.suspects == {key: {}}
    timeline.cut_off([torch.ones(1), leaf.exp().sum()], meant, meant=True)
    timeline.cut_off([leaf.exp()], unmeant, meant=False)
    timeline.cut_off([leaf.exp()], meant, meant=False)  # the first time counts
    assert [*timeline.suspects[key].items()] == [(meant, True), (unmeant, False)]
    monkeypatch.setattr(record, "_MAX_CUTS_OF_LEAF", 2)
    timeline.cut_off([leaf.exp()], other, meant=True)
    assert len(timeline.suspects[key]) == 2


def test_the_graphs_that_a_line_detaches_are_those_since_the_last_backward_call():
    terms, leaves = ConstantTerms(), [torch.ones(2, requires_grad=True) for _ in range(3)]
    values, cuts = [leaf.exp() for leaf in leaves], [Cut("detach", HERE) for _ in range(4)]
    terms.note_cut(values[:1], cuts[0], 4)
    assert terms.detached == {}  # the line is not known to make constant terms
    terms.detached[HERE] = None
    for value, cut, last_call, first, kept in (
        (0, cuts[1], 4, cuts[1], values[:1]),
        (1, cuts[2], 4, cuts[1], values[:2]),
        (2, cuts[3], 5, cuts[3], values[2:]),
    ):
        terms.note_cut([values[value]], cut, last_call)
        detached = terms.detached[HERE]
        assert (detached.first, detached.last_call) == (first.number, last_call)
        assert detached.roots == detached.numbers == {number_of(value) for value in kept}
        inputs = [leaf for leaf, value in zip(leaves, values, strict=True) if value in set(kept)]
        assert detached.leaves == {storage_of(leaf)[0] for leaf in inputs}


def test_values_are_followed_through_memory_and_numbers(monkeypatch):
    table, cut, other = Cuts(), Cut("set_data", HERE), Cut("copy", THERE)
    written, unrelated = torch.ones(2), torch.ones(2)
    assert table.of_memory(written) is None
    table.set_memory(written, cut)
    assert table.of_memory(written[1:]) is cut and table.of_memory(unrelated) is None
    table.set_read([[0.123456, 2.0], math.inf, 0.5], other)
    assert table.of_read([unrelated, ["x", [0.123456]]]) is other
    assert table.of_read([2.0, math.inf, 0.5, 0.7654321]) is None
    monkeypatch.setattr(cuts_module, "_MAX_CUTS", 1)
    table.set_read(0.7654321, cut)  # the oldest makes room
    assert table.of_read(0.123456) is None and table.of_read(0.7654321) is cut


def test_a_view_that_was_made_without_gradients_counts_as_its_leaf():
    leaf, timeline, cut = torch.ones(2, 3, requires_grad=True), Timeline(), Cut("no_grad", HERE)
    with torch.no_grad():
        view = leaf.T
    timeline.suspects[_torch.tensor_identity(leaf)] = {}
    timeline.cut_off([view.requires_grad_()], cut, meant=False)
    assert [*timeline.suspects.values()] == [{cut: False}]


def test_steps_are_among_the_edits_in_order():
    timeline = Timeline()
    edits = [Modification(None, number, None, last_call=0) for number in (3, 6)]
    for edit in edits:
        timeline.edited(7, edit)
    for number, storage in ((2, 7), (5, 7), (5, 8)):
        timeline.steps.append(OptimizerStep(None, HERE, number, 4, frozenset({storage})))
    before, step, after = timeline.edits_since(2, 7)
    assert (before, after) == (edits[0], edits[1])
    assert (step.location, step.sequence_nr, step.memory, step.last_call) == (HERE, 5, None, 4)
    assert step.by_optimizer and not before.by_optimizer


def test_edits_of_an_address_are_found_in_every_storage():
    timeline = Timeline()
    for storage, number, memory in (
        (7, 3, Memory(100, (2,), (1,), 4)),
        (8, 4, Memory(104, (2,), (1,), 4)),
        (8, 5, None),
        (9, 6, Memory(108, (2,), (1,), 4)),
    ):
        timeline.edited(storage, Modification(None, number, memory, last_call=0))
    assert [edit.sequence_nr for edit in timeline.edits_of(104, since=2)] == [3, 4]
    assert [edit.sequence_nr for edit in timeline.edits_of(104, since=3)] == [4]


def test_old_edits_and_exports_are_dropped(monkeypatch):
    for name in ("_MAX_EDITED", "_MAX_EDITS", "_MAX_EXPORTED", "_MAX_EXPORTS"):
        monkeypatch.setattr(record, name, 2)
    timeline = Timeline()
    assert not timeline.exports
    expired = SimpleNamespace(expired=lambda: True)
    alive = SimpleNamespace(expired=lambda: False)
    for storage in (1, 2, 3):
        for number in (4, 5, 6):
            timeline.edited(storage, Modification(None, number, None, last_call=0))
            reference = expired if number == 6 else alive
            timeline.exported(storage, Export(HERE, number, "", Memory(0, (), (), 4), reference))
    assert [*timeline.edits_since(0, 1)] == [] == timeline.exports_of(1)
    for storage in (2, 3):
        assert [edit.sequence_nr for edit in timeline.edits_since(0, storage)] == [5, 6]
        assert [export.sequence_nr for export in timeline.exports_of(storage)] == [5]
    assert [storage in timeline.exports for storage in (1, 2, 3)] == [False, True, True]


def test_memory_is_exported_if_numpy_owns_it_or_has_received_it():
    timeline, array = Timeline(), torch.ones(3).numpy()
    shared, own = torch.from_numpy(array.copy()), torch.ones(3)
    assert timeline.is_exported(shared) and not timeline.is_exported(own)
    timeline.exports[_torch.storage_identity(own.untyped_storage())] = []
    assert timeline.is_exported(own[1:])  # a view has the same memory
    for other in (torch.ones(3), torch.ones(3, device="meta"), torch.eye(2).to_sparse()):
        assert not timeline.is_exported(other)


def test_a_step_is_recorded_with_the_storages_that_have_a_gradient():
    weight, frozen = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight, frozen], lr=0.1)
    weight.grad = torch.ones(2)
    timeline = Timeline()
    timeline.stepped(optimizer, HERE)
    assert timeline.steps[0].storages is None  # a plain watch records none
    timeline.observed = True
    timeline.calls.append(BackwardCall(4, HERE, 0))
    timeline.stepped(optimizer, THERE)
    frozen.grad = torch.ones(2)
    timeline.stepped(optimizer, THERE)
    timeline.stepped(optimizer, THERE)
    _, step, larger, repeated = timeline.steps
    assert step.storages == {storage_of(weight)[0]}
    assert larger.storages == step.storages | {storage_of(frozen)[0]}
    assert repeated.storages is larger.storages
    assert (step.optimizer(), step.location, step.last_call) == (optimizer, THERE, 4)
    assert step.sequence_nr == timeline.last_write == _torch.next_sequence_nr()
    assert [*timeline.optimizers] == [optimizer]


def test_a_record_counts_the_threads_that_have_a_timeline():
    record_ = Record()
    assert (record_.threads, record_.broken, record_.findings) == (0, None, [])
    assert record_.timeline is record_.timeline
    assert record_.threads == 1


def test_old_calls_and_steps_are_dropped():
    timeline = Timeline()
    for number in range(300):
        timeline.calls.append(BackwardCall(number, HERE, 0))
        timeline.steps.append(OptimizerStep(None, HERE, 0, number, None))
    assert len(timeline.calls) == len(timeline.steps) == 256
    assert timeline.last_call == timeline.steps[-1].last_call == 299


def test_a_call_frees_what_is_new_beside_what_an_earlier_call_freed():
    with watch():
        hidden = torch.ones(3, requires_grad=True) + 1  # saves nothing, so it runs twice
        hidden.sum().backward()
        new = torch.ones(3, requires_grad=True).exp().exp()
        total = hidden.sum() + new.sum()
        total.backward()
    assert freed_by(hidden.grad_fn) is not freed_by(total.grad_fn)
    for tensor_node in (new.grad_fn, new.grad_fn.next_functions[0][0]):
        assert freed_by(tensor_node) is freed_by(total.grad_fn)


def test_a_leaf_is_neither_a_root_nor_freed():
    leaf = torch.ones((), requires_grad=True)
    with watch():
        scaled = leaf * 2
        torch.autograd.grad(scaled, leaf, retain_graph=True)
        torch.autograd.grad(scaled, leaf)
        partial = freed_by(scaled.grad_fn)
        double = leaf * 2
        double.backward()
    assert freed_by(double.grad_fn).roots == (number_of(double),)
    assert not partial.whole and freed_by(scaled.grad_fn.next_functions[0][0]) is None


def test_a_new_timeline_has_seen_nothing():
    values = vars(Timeline())
    assert values.pop("sums").alive() == {}
    tables = {name for name, value in values.items() if hasattr(value, "__len__")}
    assert not any(len(values[name]) for name in tables)
    del values["lines"]
    assert {name: value for name, value in values.items() if name not in tables} == {
        **{"observed": False, "closure_ran": False, "left": None},
        **{"backwards": 0, "left_after": 0, "looked_inside": 0},
        **{"last_write": -1, "graph_elsewhere": -1},
        **{"creates_graph": False, "hooks_are_set": False},
    }


def test_a_failure_of_gradtrace_is_reported_once_in_one_line(monkeypatch):
    monkeypatch.setattr(record, "_REPORTED", {})
    record_ = Record()
    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("default")
        for _ in range(2):
            record_.note_failure(ValueError("first line\nsecond line"))
    assert record_.broken == "ValueError: first line\nsecond line"
    (warning,) = reported
    assert (warning.category, warning.filename, warning.lineno) == (RuntimeWarning, "gradtrace", 1)
    assert "(ValueError: first line)" in str(warning.message)
    assert "\n" not in str(warning.message) and torch.__version__ in str(warning.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record_.note_failure(ValueError("another"))
    assert record_.broken == "ValueError: another"


def test_a_node_on_many_paths_is_visited_once():
    """Else these graphs would take 2⁶⁰ visits, also behind a call with inputs."""
    start = torch.ones((), requires_grad=True) + 1
    with watch():
        total = start
        for _ in range(60):
            total = total + total
        torch.autograd.grad(total, start)
        partial = freed_by(total.grad_fn)
        total.backward()
    assert not partial.whole and freed_by(total.grad_fn) is partial
    assert freed_by(start.grad_fn).whole
