"""How a graph was planned: a note that graph files and sessions keep, so that a clone is planned in the same way."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from dropflow.graph.physical import PhysicalGraph

__all__ = ["META", "note_planning", "planning_of"]

META = "planning"
"""Name of the note in `PhysicalGraph.meta`."""


def note_planning(graph: PhysicalGraph, options: Mapping[str, Any]) -> PhysicalGraph:
    """Return the graph with a note of the options of its plan, by their names."""
    return replace(graph, meta={**graph.meta, META: msgspec.json.encode(dict(options)).decode()})


def planning_of(graph: PhysicalGraph) -> dict[str, Any]:
    """Return the options of the plan of a graph, by their names; empty if they are not known."""
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(graph.meta.get(META, ""), type=dict[str, Any])
    return {}
