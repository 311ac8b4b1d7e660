"""The reader of ``gradtrace.tracing.packing`` that the tests share; a page has ``trace.js``."""

import json

from gradtrace import Trace
from gradtrace.tracing import steps


def unpacked(data, makers=None):
    """Return what was packed, with tuples for lists; ``makers`` has a class for each name."""
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
