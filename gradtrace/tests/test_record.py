"""What a watch remembers: memory that overlaps, and which call freed a node."""

import pytest
import torch

from gradtrace import watch
from gradtrace.watching.record import Memory, freed_by


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
