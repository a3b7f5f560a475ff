"""The processors and the memory that an application declares."""

from typing import NamedTuple

from dropflow.graph.templates import Argument, Kind, Template
from dropflow.quantities import MEMORY, quantity

__all__ = ["MEMORY_FIELDS", "ResourceNeeds", "needs_of", "unreadable_memory"]

MEMORY_FIELDS = ("memory", "mem_usage")
"""Fields of an application that declare the memory that it needs: a number of bytes, or a text such as ``2 GiB``.

Their kind does not matter: editors make new fields of an application its arguments. Ports do not count.
"""


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


def unreadable_memory(template: Template) -> str:
    """Return the value that declares memory, if it is not a size; otherwise an empty text."""
    field = _memory_field(template)
    return "" if field is None or quantity(field.value, MEMORY) is not None else str(field.value)


def _memory(template: Template) -> float:
    field = _memory_field(template)
    return 0.0 if field is None else max(quantity(field.value, MEMORY) or 0.0, 0.0)


def _memory_field(template: Template) -> Argument | None:
    for name in MEMORY_FIELDS:
        field = template.argument(name)
        if field is not None and not field.is_port and field.value not in (None, ""):
            return field
    return None
