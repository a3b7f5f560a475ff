"""The processors and the memory that an application declares."""

from typing import NamedTuple

from dropflow.graph.templates import Kind, Template
from dropflow.quantities import MEMORY, quantity

__all__ = ["MEMORY_FIELDS", "ResourceNeeds", "needs_of"]

MEMORY_FIELDS = ("memory", "mem_usage")
"""Fields of an application that declare the memory that it needs: a number of bytes, or a text such as ``2 GiB``."""


class ResourceNeeds(NamedTuple):
    """What one attempt needs while it runs.

    Attributes
    ----------
    cpus : int
        Processors, at least 1.
    memory : float
        Bytes; 0 if the application declares none.
    """

    cpus: int = 1
    memory: float = 0.0

    @property
    def are_plain(self) -> bool:
        """Whether this is one processor, and no declared memory."""
        return self.cpus == 1 and not self.memory


def needs_of(template: Template) -> ResourceNeeds:
    """Return what an application declares; for data, one processor, which writes the initial content.

    A value that is no size counts as none.
    """
    if template.kind is not Kind.APP:
        return ResourceNeeds()
    return ResourceNeeds(max(template.cpus, 1), _memory(template))


def _memory(template: Template) -> float:
    for name in MEMORY_FIELDS:
        argument = template.argument(name)
        if argument is not None and argument.value not in (None, ""):
            return max(quantity(argument.value, MEMORY) or 0.0, 0.0)
    return 0.0
