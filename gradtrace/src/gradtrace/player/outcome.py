"""Sentences about how a traced program ended."""

from gradtrace.autograd.nodes import FREED, MODIFIED
from gradtrace.tracing.steps import Raised, TraceData


def describe_outcome(trace: TraceData) -> list[str]:
    """Describe in sentences how the program ended."""
    sentences = []
    if trace.error is None:
        sentences.append("Ends without an error.")
    else:
        message = f"{trace.error.type}: {trace.error.message}".removesuffix(": ")
        sentences.append(f"Line {trace.error.line} raises {message}")
        sentences += _cause(trace, trace.error)
    if trace.unrecorded:
        sentences.append(
            f"{trace.unrecorded} more lines ran before the last step and were not recorded."
        )
    return sentences


def _cause(trace: TraceData, error: Raised) -> list[str]:
    """Describe the earlier line that freed or changed what the failing node had saved, if any."""
    if error.node is None:
        return []
    for step in trace.steps:
        if step.raised == error:
            break
        state = next((state.state for state in step.changed if state.node == error.node), None)
        if state in (FREED, MODIFIED) and step.ran is not None:
            saved = "saved tensors were freed" if state == FREED else "saved tensor was changed"
            repeated = ", when it ran before" if step.ran == error.line else ""
            in_place = " in place" if state == MODIFIED else ""
            return [
                f"The backward pass stopped in {trace.nodes[error.node].name}, "
                f"whose {saved}{in_place} by line {step.ran}{repeated}."
            ]
    return []
