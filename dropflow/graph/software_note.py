"""With which versions of programs a graph was run: a note that graph files and sessions keep."""

import platform
from contextlib import suppress
from dataclasses import replace

import msgspec

from dropflow.graph.physical import PhysicalGraph
from dropflow.version import __version__

__all__ = ["META", "note_software", "software_of"]

META = "software"
"""Name of the note in `PhysicalGraph.meta`."""


def note_software(graph: PhysicalGraph) -> PhysicalGraph:
    """Return the graph with a note of the versions of dropflow and Python in this process."""
    versions = {"dropflow": __version__, "Python": platform.python_version()}
    return replace(graph, meta={**graph.meta, META: msgspec.json.encode(versions).decode()})


def software_of(graph: PhysicalGraph) -> dict[str, str]:
    """Return the versions of programs by their names; empty if they were not recorded."""
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(graph.meta.get(META, ""), type=dict[str, str])
    return {}
