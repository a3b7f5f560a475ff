"""Shared memory drops: memory drops whose content is always in shared memory, also if it is small.

For programs that map the content themselves: with the encoding ``path`` a port gives the file.
"""

from dropflow.data.data_parameters import IO, common
from dropflow.data.memory import MemoryStore
from dropflow.engine.component import Component, Parameter
from dropflow.graph.templates import Kind

__all__ = ["SHARED_MEMORY", "SharedMemoryStore"]

SHARED_MEMORY = Component(
    name="SharedMemory",
    kind=Kind.DATA,
    category="SharedMemory",
    dropclass="dlg.data.drops.memory.SharedMemoryDROP",
    aliases=("dlg.data.drops.SharedMemoryDROP", "dlg.drop.SharedMemoryDROP"),
    description="Content in shared memory, which programs on the same machine can map by its path.",
    parameters=(
        Parameter(
            name="pydata",
            type="Object",
            default=None,
            description="Initial content of a drop without producers, read according to its type.",
        ),
        *common(persists=False),
    ),
    ports=IO,
)


class SharedMemoryStore(MemoryStore):
    """Contents in shared memory."""

    small = 0
