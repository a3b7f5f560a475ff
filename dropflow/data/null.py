"""Null drops: events without content."""

from pathlib import Path

from dropflow.data.data_parameters import IO, common
from dropflow.data.file_writer import remove_part
from dropflow.data.read_content import NULL
from dropflow.data.store import ContentWriter, Slot
from dropflow.engine.api import Handle
from dropflow.engine.component import Component, Parameter
from dropflow.graph.templates import Kind, Template

__all__ = ["END", "NULL_DROP", "NullStore"]

_BASE_NAME = Parameter(
    name="base_name",
    default="data_base",
    parameter_type="ComponentParameter",
    description="Module of the class in DALiuGE. EAGLE wants it on data of this category; it is not used.",
)

NULL_DROP = Component(
    name="NULL",
    kind=Kind.DATA,
    category="Data",
    dropclass="dlg.data.drops.data_base.NullDROP",
    aliases=("dlg.data.drops.NullDROP", "dlg.drop.NullDROP", "dlg.data.drops.null.NullDROP", "dfms.drop.NullDROP"),
    description="Passes events on and discards what is written to it.",
    parameters=(_BASE_NAME, *common(persists=False)),
    ports=IO,
)

END = Component(
    name="End",
    kind=Kind.DATA,
    category="Data",
    dropclass="dlg.data.drops.data_base.EndDROP",
    aliases=("dlg.drop.EndDROP", "dlg.data.drops.EndDROP"),
    description="Marks the end of a branch of the graph; keeps nothing.",
    parameters=(_BASE_NAME, *common(persists=False)),
    ports=IO,
)


class NullWriter:
    """Discards a content."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._path = ""

    def write(self, data: bytes | bytearray | memoryview, *, text: bool = False) -> int:  # noqa: ARG002 - one protocol
        """Discard `data`."""
        return len(data)

    def path(self) -> str:
        """Return a temporary path, which is removed. Not ``/dev/null``, which a program might replace."""
        if not self._path:
            slot = self._slot
            self._path = slot.workspace.part_name(slot.drop, slot.attempt, slot.number)
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        return self._path

    def finish(self) -> Handle:
        """Return the handle of no content."""
        self.abandon()
        return NULL

    def abandon(self) -> None:
        """Remove what a program wrote."""
        if self._path:
            remove_part(self._path)


class NullStore:
    """Data drops without contents."""

    persists = False
    hands_over = True
    is_directory = False
    encoding = ""
    shared_name = ""
    unwritten: Handle | None = NULL
    growing = None

    def __init__(self, template: Template) -> None:
        self._template = template

    def part(self, slot: Slot) -> ContentWriter:
        """Return a writer that discards."""
        return NullWriter(slot)

    def initial(self, slot: Slot) -> Handle:  # noqa: ARG002 - one protocol
        """Return the handle of no content."""
        return NULL

    def check(self) -> None:
        """Accept all parameters."""

    def check_initial(self) -> None:
        """Accept all parameters."""
