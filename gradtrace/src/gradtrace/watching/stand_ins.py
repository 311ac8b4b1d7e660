"""Remove the observer's frames from tracebacks and from the stacks that anomaly mode stores."""

import os
from pathlib import Path
from types import CodeType
from typing import Any

from gradtrace import _torch
from gradtrace.autograd.frames import STAND_IN
from gradtrace.autograd.tensors import tensors_in

_OUR_FOLDER = f"{Path(__file__).parent}{os.sep}"


def remove_our_frames(error: BaseException) -> None:
    """Remove the observer's frames from the beginning of an error's traceback.

    This is a separate function because a variable for the traceback in the observer's frame, to
    which it refers, would create a cycle that keeps tensors alive until garbage is collected.
    """
    traceback = error.__traceback__
    while traceback is not None and _is_ours(traceback.tb_frame.f_code):
        traceback = traceback.tb_next
    error.__traceback__ = traceback


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(_OUR_FOLDER) or code.co_name == STAND_IN


def forget_our_frames(results: list[Any], started: int) -> None:
    """Remove our frames from the stacks that anomaly mode stored on nodes since ``started``."""
    pending: list[_torch.LiveNode] = [_torch.grad_fn_of(tensor) for tensor in tensors_in(results)]
    visited = {None}
    for node in pending:
        if node in visited or type(node) is _torch.LEAF or _torch.sequence_nr(node) < started:
            continue
        visited.add(node)
        stack = node.metadata.get("traceback_")
        if isinstance(stack, list):
            our_lines = (f'File "{_OUR_FOLDER}', f"in {STAND_IN}\n")
            stack[:] = [line for line in stack if not any(marker in line for marker in our_lines)]
        pending.extend(successor for successor, _ in _torch.edges_of(node))
