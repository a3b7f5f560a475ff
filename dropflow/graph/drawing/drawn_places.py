"""Where an editor drew the logical nodes: a note of a physical graph, which graph files and sessions keep.

The note is JSON: ``[x, y]`` by the key of each template, in whole units of the editor.
"""

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from dropflow.graph.physical import PhysicalGraph

__all__ = ["FARTHEST", "META", "Place", "place_note", "places_of"]

META = "drawn"
"""Name of the note in `PhysicalGraph.meta`."""
FARTHEST = 1e6
"""Coordinates beyond this are not used: they would make all nodes invisibly small."""

Place = tuple[float, float]


def place_note(places: Mapping[str, Place]) -> str:
    """Return the note of places by the key of their logical node."""
    return msgspec.json.encode({key: (round(x), round(y)) for key, (x, y) in places.items()}).decode()


def places_of(graph: PhysicalGraph) -> dict[int, Place]:
    """Return where templates were drawn, by row. A note that cannot be read is like none: it is only about looks."""
    found: dict[str, Place] = {}
    with suppress(msgspec.MsgspecError):
        found = msgspec.json.decode(graph.meta.get(META, "{}"), type=dict[str, Place])
    rows = {template.key: row for row, template in enumerate(graph.templates)}
    return {
        rows[key]: place
        for key, place in found.items()
        if key in rows and all(abs(number) <= FARTHEST for number in place)
    }
