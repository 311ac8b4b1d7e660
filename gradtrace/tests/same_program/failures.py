"""Errors and warnings that the program itself looks at, and an error that ends it."""

import logging
import sys
import threading
import traceback
import warnings

import end_state  # noqa: F401
import torch
import torch.nn.functional as F
from torch import nn

net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
with torch.no_grad():
    for parameter in net.parameters():
        parameter.fill_(0.25)
w = torch.ones(3, requires_grad=True)


def twice():
    loss = net(w).sum()
    loss.backward()
    loss.backward()


def changed():
    y = w.exp()
    y.add_(1)
    y.sum().backward()


def no_graph():
    w.detach().sum().backward()


def leaf():
    w.add_(1)


def shapes():
    return net(torch.ones(2, 5))


def keyword():
    return torch.cat(tensors=[torch.ones(1, 2), torch.ones(1, 3)], dim=0)


def no_tensor():
    return torch.add(w, "text")


def scalar():
    torch.autograd.backward((w * 2,))


def several():
    torch.autograd.backward(tensors=[w.sum(), w.exp().sum()], grad_tensors=[torch.ones(7), None])


def in_a_hook():
    y = w * 2
    y.register_hook(lambda gradient: 1 / 0)
    y.sum().backward()


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        raise LookupError("in the program's own function")


def in_a_function():
    Broken.apply(w).sum().backward()


def in_forward():
    layer = nn.Linear(3, 3)
    layer.forward = lambda x: x.no_such_attribute
    nn.Sequential(layer)(w)


def anomaly():
    with torch.autograd.detect_anomaly():
        (w * 0).sqrt().mul(0).sum().backward()


def chained():
    try:
        twice()
    except RuntimeError as error:
        raise ValueError("while training") from error


CASES = [twice, changed, no_graph, leaf, shapes, keyword, no_tensor, scalar, several,
         in_a_hook, in_a_function, in_forward, anomaly, chained]  # fmt: skip
for case in CASES:
    try:
        case()
    except Exception as error:
        print(case.__name__, file=sys.stderr)
        traceback.print_exc()
        print(case.__name__, [frame.name for frame in traceback.extract_tb(error.__traceback__)])
        print(error.args, error.__cause__ is None, error.__context__ is None)
        notes = [note for note in getattr(error, "__notes__", ()) if "gradtrace" not in note]
        print(notes, [key for key in error.__dict__ if key != "__notes__"])
try:
    twice()
except RuntimeError:
    logging.exception("logged")


def in_a_thread():
    twice()


thread = threading.Thread(target=in_a_thread, name="worker")
thread.start()
thread.join()


def loud():
    hidden = w * 2
    hidden.sum().backward()
    F.mse_loss(torch.ones(3), torch.ones(3, 1))
    print(hidden.grad)
    torch.ones(3, requires_grad=True).sum().backward(create_graph=True)
    nn.functional.softmax(w.reshape(1, 3))
    torch.tensor(w.detach())
    torch.optim.lr_scheduler.StepLR(torch.optim.SGD([w], 0.1), 1).step()
    w.expand(2, 3).detach().T.T.resize_(1)
    torch.range(0, 1)
    nn.LSTM(2, 2, num_layers=1, dropout=0.5)
    torch.triu_indices(2, 2).T.numpy()
    F.kl_div(w.detach(), w.detach(), reduction="mean")


loud()
loud()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    loud()
for warning in caught:
    print(warning.category.__name__, warning.lineno, str(warning.message)[:60])
    print(warning.filename == __file__)
with warnings.catch_warnings():
    warnings.simplefilter("error")
    try:
        F.mse_loss(torch.ones(3), torch.ones(3, 1))
    except UserWarning:
        traceback.print_exc()
if "hook" in sys.argv:
    sys.excepthook = lambda kind, error, trace: print(
        "mine", kind.__name__, len(traceback.extract_tb(trace))
    )
chained()
