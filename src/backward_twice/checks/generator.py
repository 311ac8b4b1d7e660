"""The random numbers of a question: a seeded generator with the draws that questions share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch


class InputGenerator(torch.Generator):
    """A ``torch.Generator`` with methods that draw the inputs of questions."""

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Draw normally distributed numbers."""
        return torch.randn(shape, generator=self, dtype=dtype)

    def double(self, *shape: int) -> torch.Tensor:
        """Draw normally distributed numbers in float64."""
        return self.normal(*shape, dtype=torch.float64)

    def like(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Draw tensors with the names, shapes and dtypes of others."""
        return {name: self.normal(*t.shape, dtype=t.dtype) for name, t in tensors.items()}

    def layers(self, *widths: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        """Draw the weights and biases of linear layers between these widths, in turn."""
        return [
            self.normal(*shape, dtype=dtype)
            for inputs, outputs in pairwise(widths)
            for shape in ((outputs, inputs), (outputs,))
        ]

    def batches(self, sizes: Iterable[int], inputs: int, outputs: int) -> list[list[torch.Tensor]]:
        """Draw batches of these sizes, each as its inputs and its targets."""
        return [[self.normal(size, inputs), self.normal(size, outputs)] for size in sizes]

    def integer(self, low: int, high: int) -> int:
        """Draw a whole number from ``low`` to ``high``, both included."""
        return int(torch.randint(low, high + 1, (), generator=self))

    def integers(self, count: int, low: int, high: int) -> list[int]:
        """Draw several whole numbers, as :meth:`integer` does."""
        return [self.integer(low, high) for _ in range(count)]

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """Draw a number between ``low`` and ``high``."""
        return low + (high - low) * torch.rand((), generator=self).item()

    def one_of(self, values: Sequence[Any]) -> Any:
        """Draw one of the values."""
        return values[self.integer(0, len(values) - 1)]

    def shuffled(self, values: Sequence[Any]) -> list[Any]:
        """Return the values in a drawn order."""
        return [values[i] for i in torch.randperm(len(values), generator=self).tolist()]


def drawn_until(is_wanted: Callable[[Any], bool], draw: Callable[[], Any]) -> Any:
    """Draw until a value satisfies ``is_wanted``, and return that value."""
    while not is_wanted(value := draw()):
        pass
    return value
