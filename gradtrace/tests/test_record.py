"""What a watch remembers: memory that overlaps, lines, edits, and which call freed a node."""

import pytest
import torch

from gradtrace import watch
from gradtrace.watching.record import Lines, Memory, Modification, Timeline, freed_by


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
        (slice(1, 4), slice(None, None, 2)),
    ],
)
def test_part_of_a_tensor_is_the_memory_of_its_view(index):
    whole = torch.arange(24.0).view(6, 4)
    memory = Memory.of(whole)
    assert memory.part(index) == Memory.of(whole[index])


def test_a_new_dimension_changes_no_memory():
    memory = Memory.of(torch.arange(24.0).view(6, 4))
    assert memory.part((None, slice(None, None, 2))) == memory.part(slice(None, None, 2))


@pytest.mark.parametrize("index", [torch.tensor([0, 2]), [0, 2], slice(4, 4), True])
def test_part_of_an_index_that_makes_no_view_is_all_of_it(index):
    memory = Memory.of(torch.arange(24.0).view(6, 4))
    assert memory.part(index) == memory


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


def test_lines_are_found_by_the_numbers_of_the_nodes_that_they_created():
    lines, first, second = Lines(), object(), object()
    lines.add(3, 5, first)
    lines.add(5, 6, second)
    lines.add(8, 9, first)
    lines.add(9, 10, first)
    expected = [None, first, first, second, None, None, first, first, None]
    assert [lines.find(number) for number in range(2, 11)] == expected
    assert len(lines._chains) == 3  # ranges side by side of one line are one
    assert lines.between(4, 8) == [first, second]
    assert lines.between(5, 8) == [second]


def test_only_later_edits_of_the_same_storage_are_returned_oldest_first():
    timeline = Timeline()
    edits = [Modification(None, number, None, last_call=0) for number in (2, 3, 5)]
    for edit in edits:
        timeline.edited(7, edit)
    assert [*timeline.edits_since(2, 7)] == edits[1:]
    assert [*timeline.edits_since(5, 7)] == [*timeline.edits_since(2, 8)] == []
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
