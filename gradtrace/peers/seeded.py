"""A plugin of pytest that seeds all random numbers before each test, so that ways can be compared."""

import random

import numpy
import torch


def pytest_runtest_setup() -> None:
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
