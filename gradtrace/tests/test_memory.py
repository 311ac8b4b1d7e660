"""LiveBytes counts each storage once, from its birth to its death, and changes nothing."""

import gc
import weakref

import torch

from gradtrace import LiveBytes


def test_views_and_in_place_writes_are_no_new_bytes():
    with LiveBytes() as live:
        x = torch.zeros(8)
        first, second = x.split(4)
        first.add_(1)
        y = x.view(2, 4).t()
    assert (live.alive, live.peak) == (32, 32)
    del first, second, y
    assert live.alive == 32
    del x
    assert (live.alive, live.peak) == (0, 32)


def test_the_gradients_inside_backward_are_counted():
    weight = torch.ones(100, requires_grad=True)
    with LiveBytes() as live:
        loss = (weight * 2).sin().sum()
        before = live.peak
        loss.backward()
    assert before < live.peak
    assert live.alive == weight.grad.nbytes + loss.nbytes


def test_a_peak_can_begin_anew():
    with LiveBytes() as live:
        x = torch.ones(4)
        y = torch.ones(4)
        del y
        live.reset_peak()
        assert live.peak == live.alive == 16
        del x
        live.reset_peak()
    assert live.peak == 0


def test_what_has_no_storage_is_left_out():
    with LiveBytes() as live:
        sparse = torch.sparse_coo_tensor([[0]], [1.0], (3,))
        both = torch.max(torch.ones(4), 0)
    assert sparse.is_sparse
    assert live.alive >= sum(part.nbytes for part in both)


def test_results_are_the_same_and_nothing_is_kept_alive():
    def program():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        model(torch.rand(4, 3)).sum().backward()
        return model.weight.grad

    with LiveBytes() as live:
        grad = program()
        gone = weakref.ref(torch.ones(3))
        assert gone() is None
    assert torch.equal(grad, program())
    mode = weakref.ref(live)
    del live
    gc.collect()
    assert mode() is not None  # its tensors are still to be counted
    del grad
    gc.collect()
    assert mode() is None
