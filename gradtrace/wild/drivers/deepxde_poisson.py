# /// script
# dependencies = ["deepxde"]
# ///
"""DeepXDE: Poisson's equation by a network, second derivatives in the loss, Adam then L-BFGS."""

import os

os.environ["DDE_BACKEND"] = "pytorch"

import contextlib
import io

import numpy as np
import torch
import trial

with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    import deepxde as dde

trial.begin()
dde.config.set_random_seed(0)


def equation(x, y):
    return dde.grad.hessian(y, x) + np.pi**2 * torch.sin(np.pi * x)


interval = dde.geometry.Interval(-1, 1)
boundary = dde.icbc.DirichletBC(interval, lambda x: 0, lambda _, on_boundary: on_boundary)
data = dde.data.PDE(interval, equation, boundary, 16, 2, num_test=50)
model = dde.Model(data, dde.nn.FNN([1] + [20] * 2 + [1], "tanh", "Glorot uniform"))
with contextlib.redirect_stdout(io.StringIO()), trial.training():  # it prints times
    model.compile("adam", lr=1e-3)
    history, _ = model.train(iterations=150, display_every=50)
    dde.optimizers.set_LBFGS_options(maxiter=20)
    model.compile("L-BFGS")
    history, _ = model.train(display_every=10)
print(history.steps, [loss.tolist() for loss in history.loss_train])
trial.end(model.net)
