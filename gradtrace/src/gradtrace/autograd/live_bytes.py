"""The bytes of tensors that are alive at the same time, counted at every operation.

A snapshot counts the bytes of a graph between two lines. :class:`LiveBytes` also sees tensors that
live only inside a call, such as the gradients within ``backward``, and keeps none of them alive.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from gradtrace._torch import TorchDispatchMode, storage_identity
from gradtrace.autograd.tensors import tensors_in


class LiveBytes(TorchDispatchMode):
    """Count the bytes of every tensor created under this context manager, as long as it lives.

    ``alive`` is the number of bytes now, ``peak`` the largest number so far; each storage counts
    once, however many views it has. ``counters.take()`` returns PyTorch's own counters of the
    accelerators that were used, None if there were none. An older tensor counts from the first
    operation that returns it, such as an in-place operation. Tensors without a storage (sparse
    tensors), the workspace of kernels, and other threads are not counted.

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
        """Set the peak to the number of bytes that are alive now."""
        self.peak = self.alive

    def __torch_dispatch__(
        self,
        operation: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        for tensor in tensors_in((result,)):
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


COUNTED: dict[str, Any] = {"cuda": torch.cuda, "xpu": torch.xpu}  # the devices with counters


class DeviceCounters:
    """PyTorch's own memory counters of the accelerators that a program uses, read only.

    The counters' peak cannot be restored once it is reset, and the program may want to read it. So
    the peak of a line is the largest number of bytes allocated after any of its operations; memory
    that a kernel allocated and freed again is included if it raised the peak of the whole process.
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
        """Read the counters of a device on which an operation has just run."""
        if device.type in COUNTED:
            allocated = COUNTED[device.type].memory_allocated(device)
            self._most[device] = max(self._most.get(device, 0), allocated)

    def take(self) -> dict[str, int] | None:
        """Return the bytes ``allocated`` on all devices, and their ``peak`` since the last call."""
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
