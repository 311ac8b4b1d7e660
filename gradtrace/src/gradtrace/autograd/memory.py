"""How many bytes of tensors are alive at once, by looking at every operation.

A snapshot counts what a graph holds between two lines.  :class:`LiveBytes` also sees what comes and
goes inside a call, such as the gradients within ``backward``: it is a mode that PyTorch hands the
result of every operation.  A weak reference to each storage tells when it dies, so that nothing is
kept alive.  On an accelerator PyTorch counts, too: :class:`DeviceCounters` reads that beside it.
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
    storage counts once, however many views of it there are.  ``counters`` are PyTorch's own, of the
    accelerators on which they were.  A tensor from before counts from the first operation that
    hands it out again, such as an in-place one.  Not counted are tensors without a storage (sparse
    ones), what a kernel needs for itself while it runs, and other threads.

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
        self.counters = DeviceCounters()
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
            self.counters.look(tensor.device)
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


# Types of device with counters, and the module that reads them.
COUNTED: dict[str, Any] = {"cuda": torch.cuda, "xpu": torch.xpu}


class DeviceCounters:
    """What PyTorch's own counters say of the accelerators that a program uses.

    They are read only.  A peak that is begun anew cannot be given back, and the program may want to
    know its own.  So what a line had at most is the most that was allocated after one of its
    operations; what a kernel took for itself and gave back while it ran is seen where it raised the
    peak of the whole process.
    """

    def __init__(self) -> None:
        self._most: dict[torch.device, int] = {}  # bytes, since the last look back
        self._peaks = {  # of the process, in bytes
            device: module.max_memory_allocated(device)
            for kind, module in COUNTED.items()
            if module.is_initialized()
            for device in (torch.device(kind, index) for index in range(module.device_count()))
        }

    def look(self, device: torch.device) -> None:
        """An operation has just run on this device."""
        if device.type in COUNTED:
            allocated = COUNTED[device.type].memory_allocated(device)
            self._most[device] = max(self._most.get(device, 0), allocated)

    def take(self) -> dict[str, int] | None:
        """In bytes, ``allocated`` now and ``peak``, the most since the last call.

        Those of several devices are added up, each with its own peak.  None where no operation ran
        on a device that counts.
        """
        if not self._most:
            return None
        totals = {"allocated": 0, "peak": 0}
        for device, largest in self._most.items():
            module = COUNTED[device.type]
            allocated, peak = module.memory_allocated(device), module.max_memory_allocated(device)
            risen = peak > self._peaks.get(device, 0)
            totals["allocated"] += allocated
            totals["peak"] += peak if risen else max(largest, allocated)
            self._most[device], self._peaks[device] = allocated, peak
        return totals


def _tensors(result: object) -> Iterator[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for part in result:
            yield from _tensors(part)
