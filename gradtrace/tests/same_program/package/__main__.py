"""Ends in a failing backward."""

import inspect
import sys

import end_state  # noqa: F401
import torch

from .parts import loss_of

w = torch.ones(2, requires_grad=True)
print(__name__, __package__, __spec__.name, sys.argv[1:], len(inspect.stack()))
loss = loss_of(w)
loss.backward()
loss.backward()
