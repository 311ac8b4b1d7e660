"""How many bytes of tensors are alive at once, by looking at every operation.

A snapshot counts what a graph holds between two lines.  :class:`LiveBytes` also sees what comes and
goes inside a call, such as the gradients within ``backward``: it is a mode that PyTorch hands the
result of every operation.  A weak reference to each storage tells when it dies, so that nothing is
kept alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from gradtrace._torch import TorchDispatchMode, storage_identity


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of every tensor made under it, from its birth to its death.

    A context manager.  ``alive`` is the number of bytes now, ``peak`` the largest so far; each
    storage counts once, however many views of it there are.  ``devices`` are the types of device on
    which they were.  A tensor from before counts from the first operation that hands it out again,
    such as an in-place one.  Not counted are tensors without a storage (sparse ones), what a kernel
    needs for itself while it runs, and other threads.

    >>> import torch
    >>> with LiveBytes() as live:
    ...     x = torch.ones(4)  # 16 bytes
    ...     y = x.exp()
    ...     view = y[:2]
    ...     del x
    >>> live.alive, live.peak
    (16, 32)
    """

    def __init__(self) -> None:
        super().__init__()
        self.alive = 0
        self.peak = 0
        self.devices: set[str] = set()
        self._storages: dict[int, int] = {}  # their bytes

    def reset_peak(self) -> None:
        """Let the peak be what is alive now."""
        self.peak = self.alive

    def __torch_dispatch__(
        self,
        operation: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            self.devices.add(tensor.device.type)
            try:
                self._count(tensor.untyped_storage())
            except (NotImplementedError, RuntimeError):  # it has none
                continue
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        identity = storage_identity(storage)
        if identity not in self._storages:
            self._storages[identity] = storage.nbytes()
            self.alive += storage.nbytes()
            self.peak = max(self.peak, self.alive)
            weakref.finalize(storage, self._died, identity).atexit = False

    def _died(self, identity: int) -> None:
        self.alive -= self._storages.pop(identity)


def device_counters() -> dict[str, int] | None:
    """What PyTorch's own counters say of an accelerator's memory, and begin a new peak.

    ``allocated`` is now, ``peak`` the most since the last call, both in bytes of the current
    device.  None where no accelerator has been used in this process.
    """
    for device in (torch.cuda, torch.xpu):
        if device.is_initialized():
            found = {"allocated": device.memory_allocated(), "peak": device.max_memory_allocated()}
            device.reset_peak_memory_stats()
            return found
    return None


def _tensors(result: object) -> Iterator[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for part in result:
            yield from _tensors(part)
