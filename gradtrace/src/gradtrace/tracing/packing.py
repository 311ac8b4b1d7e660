"""Records as compact JSON, in which repeated values are stored once.

A record (a dataclass or a named tuple) is a list that begins with the number of its class, from 1,
and goes on with the values of its fields; any other list begins with 0, unless it is empty.  A list
with a single number refers to an item of ``shared``.  ``classes`` names the fields of each class.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any


def packed(value: Any) -> dict[str, Any]:
    """Return records, lists and dicts as JSON-ready data.

    >>> import typing
    >>> class Point(typing.NamedTuple):
    ...     x: int
    ...     y: int
    >>> data = packed([Point(1, 2), Point(1, 2), ()])
    >>> data["shared"], data["value"]
    ([[1, 1, 2]], [0, [0], [0], []])
    """
    classes: dict[type, list[str]] = {}
    items: list[Any] = []  # every distinct list or dict, inner ones first
    numbers: dict[str, int] = {}  # in items, by the JSON text

    def reference(part: Any) -> Any:
        item: Any
        if isinstance(part, dict):
            item = {str(key): reference(inner) for key, inner in part.items()}
        elif fields := _fields(part):
            names = classes.setdefault(type(part), fields)
            kind = [*classes].index(type(part)) + 1
            item = [kind, *(reference(getattr(part, name)) for name in names)]
        elif isinstance(part, (list, tuple)):
            item = [0, *map(reference, part)]
        else:
            return part
        if item == [0]:
            return []
        number = numbers.setdefault(json.dumps(item), len(items))
        if number == len(items):
            items.append(item)
        return [number]

    top = reference(value)
    uses = Counter(number for item in items for number in _references(item))
    shared = [number for number, item in enumerate(items) if uses[number] > 1]
    places = {number: place for place, number in enumerate(shared)}

    def inlined(part: Any) -> Any:
        """Replace a reference by the value that it refers to, unless the value is shared."""
        if not isinstance(part, list) or not part:
            return part
        (number,) = part
        return [places[number]] if number in places else items[number]

    for number, item in enumerate(items):
        if isinstance(item, dict):
            items[number] = {key: inlined(part) for key, part in item.items()}
        else:
            items[number] = [item[0], *map(inlined, item[1:])]
    return {
        "classes": [[kind.__name__, *names] for kind, names in classes.items()],
        "shared": [items[number] for number in shared],
        "value": inlined(top),
    }


def _fields(part: Any) -> list[str]:
    """Return the names of a record's fields; none if it is not a record."""
    if dataclasses.is_dataclass(part):
        return [field.name for field in dataclasses.fields(part)]
    return list(getattr(part, "_fields", ()))


def _references(item: Any) -> Iterator[int]:
    parts = item.values() if isinstance(item, dict) else item[1:]
    return (part[0] for part in parts if isinstance(part, list) and part)
