"""What cuDNN makes of recurrent layers."""

import re

import pytest
import torch
from torch import nn
from torch.backends import cudnn

from gradtrace import explain, snapshot, watch

REFUSED_TWICE = (
    "Double backwards is not supported for CuDNN RNNs due to limitations in the CuDNN API. "
    "To run double backwards, please disable the CuDNN backend temporarily while running the "
    "forward pass of your RNN."
)
REFUSED_IN_EVAL = "cudnn RNN backward can only be called in training mode"


def operations(output):
    return [node.name for node in snapshot(output).nodes if node.leaf is None]


def small_gru(device):
    """A GRU and an input in float64, the same on every device."""
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 6, dtype=torch.float64).view(2, 1, 3)
    return nn.GRU(3, 2).double().to(device), x.to(device).requires_grad_()


def second_derivative(device):
    gru, x = small_gru(device)
    (first,) = torch.autograd.grad(gru(x)[0].square().sum(), x, create_graph=True)
    first.square().sum().backward()
    return x.grad.cpu()


def test_cudnn_one_node(device, figures):
    """cuDNN's RNN, LSTM and GRU are one node, whatever the length"""
    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        for layers in (1, 2):
            layer = kind(3, 2, num_layers=layers, bidirectional=True).to(device)
            lengths = {}
            for steps in (1, 10, 100):
                lengths[steps] = operations(layer(torch.ones(steps, 1, 3, device=device))[0])
            assert set(map(tuple, lengths.values())) == {("CudnnRnnBackward0",)}
        figures[f"operations of nn.{kind.__name__}, 1, 10 and 100 time steps"] = ", ".join(
            str(len(names)) for names in lengths.values()
        )


def test_cudnn_gradients(device, figures):
    """cuDNN's gradients of a GRU are the CPU's"""
    gradients = {}
    for where in ("cpu", device):
        gru, x = small_gru(where)
        gru(x)[0].square().sum().backward()
        gradients[where] = [p.grad.cpu() for p in (*gru.parameters(), x)]
    differences = [(a - b).abs().max().item() for a, b in zip(*gradients.values(), strict=True)]
    figures["largest difference, float64"] = f"{max(differences):.1e}"
    assert max(differences) < 1e-12


def test_cudnn_double_backward(device, figures):
    """ "Double backwards is not supported for CuDNN RNNs", and the fix that the message names"""
    with pytest.raises(RuntimeError, match=re.escape(REFUSED_TWICE)) as refused:
        second_derivative(device)
    figures["message"] = str(refused.value)
    with cudnn.flags(enabled=False):
        difference = (second_derivative(device) - second_derivative("cpu")).abs().max().item()
    figures["without cuDNN, the second derivative's largest difference from the CPU's"] = (
        f"{difference:.1e}"
    )
    assert difference < 1e-12


def eval_then_train(device):
    gru, x = small_gru(device)
    output, _ = gru.eval()(x)
    gru.train()  # too late
    output.square().sum().backward()
    return x.grad.cpu()


def test_cudnn_eval(device, figures):
    """ "cudnn RNN backward can only be called in training mode", and what helps"""
    with pytest.raises(RuntimeError, match=REFUSED_IN_EVAL) as refused:
        eval_then_train(device)
    figures["message"] = str(refused.value)
    right = eval_then_train("cpu")
    gru, x = small_gru(device)
    gru(x)[0].square().sum().backward()
    assert torch.allclose(x.grad.cpu(), right, rtol=0, atol=1e-12)
    with cudnn.flags(enabled=False):
        assert torch.allclose(eval_then_train(device), right, rtol=0, atol=1e-12)
    figures["gradients of the forward pass in train mode, and without cuDNN"] = "the CPU's"


def test_watch_names_cudnn_eval(device, figures):
    """A watch explains the error of a cuDNN RNN in eval mode"""
    with pytest.raises(RuntimeError, match=REFUSED_IN_EVAL) as refused, watch():
        eval_then_train(device)
    figures["cause"] = explain(refused.value).cause
    assert figures["cause"] == "cudnn_rnn_eval"
    figures["note"] = refused.value.__notes__[0].partition("\n")[0]


def test_cudnn_retained_reserve(device, figures):
    """A retained backward of a cuDNN RNN copies its reserve, which raises the peak"""
    gru, x = nn.GRU(256, 512).to(device), torch.ones(200, 64, 256, device=device)

    def peak(retain_graph):
        """Bytes beyond those before backward, and those of the reserve."""
        gru.zero_grad()
        output, _ = gru(x)
        reserve = output.grad_fn._saved_result3.nbytes
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        output.sum().backward(retain_graph=retain_graph)
        return torch.cuda.max_memory_allocated() - before, reserve

    peak(False)  # what cuDNN sets up once
    (plain, reserve), (retained, _) = peak(False), peak(True)
    figures["bytes of the reserve"] = reserve
    figures["most bytes allocated by a plain backward"] = plain
    figures["most bytes allocated by a retained backward"] = retained
    assert retained - plain > 0.9 * reserve > 2**20
