"""Seed all random numbers before each test, so that the ways of running it can be compared."""

import random

import numpy
import torch


def pytest_runtest_setup() -> None:
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
