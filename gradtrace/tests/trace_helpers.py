"""What several tests read from a trace."""

import json

from gradtrace import Trace
from gradtrace.tracing import steps


def unpacked(data, makers=None):
    """Return what ``gradtrace.tracing.packing`` packed, with tuples for lists.

    ``makers`` has a class for each name.
    """
    names = [name for name, *_ in data["classes"]]
    classes = [vars(steps)[name] if makers is None else makers[name] for name in names]

    def read(item):
        if isinstance(item, dict):
            return {int(key) if key.isdigit() else key: read(part) for key, part in item.items()}
        if not isinstance(item, list):
            return item
        if len(item) == 1:
            return read(data["shared"][item[0]])
        values = tuple(map(read, item[1:]))
        return classes[item[0] - 1](*values) if item and item[0] else values

    return read(data["value"])


def read_back(text):
    """Return the trace that ``Trace.to_json`` wrote."""
    return Trace(**unpacked(json.loads(text)))


def modified_at(seen):
    """For each node with a modified saved tensor, the line that modified it."""
    lines = {}
    for step in seen.steps:
        for state in step.changed:
            if any(slot == "modified" for slot, _ in state.slots):
                lines.setdefault(state.node, step.ran)
    return lines
