"""File drops: content in a file with a chosen name."""

import logging
import os
from pathlib import Path

from dropflow.data.data_parameters import IO, common
from dropflow.data.file_paths import check_name, final_path, is_blank, shared_name
from dropflow.data.file_writer import FileWriter, temporary_path
from dropflow.data.read_content import measure
from dropflow.data.store import ContentWriter, Slot
from dropflow.engine.api import Handle
from dropflow.engine.component import Component, Parameter
from dropflow.engine.parameters import find, read
from dropflow.errors import BadFileError
from dropflow.graph.templates import Kind, Template

__all__ = ["FILE", "FileStore", "found"]

FILEPATH = Parameter(
    name="filepath",
    description=(
        "Name of the file. Relative names are below the session's files; an empty name is made from the drop's id. "
        "Environment variables and {uid}, {humanKey}, {auto}, {datetime} and {dlg} are replaced."
    ),
)
_CHECK = Parameter(
    name="check_filepath_exists",
    type="Boolean",
    default=False,
    parameter_type="ComponentParameter",
    description="Fail if the drop has no producer and the file does not exist.",
)
_DELETE_PARENT = Parameter(
    name="delete_parent_directory",
    type="Boolean",
    default=False,
    parameter_type="ComponentParameter",
    description="Remove the directory of the file, if it is empty, with the file.",
)

FILE = Component(
    name="File",
    kind=Kind.DATA,
    category="File",
    dropclass="dlg.data.drops.file.FileDROP",
    aliases=("dlg.data.drops.FileDROP", "dlg.drop.FileDROP", "dfms.drop.FileDROP"),
    description="A file. Producers write it under a temporary name; it gets its name when they have succeeded.",
    parameters=(FILEPATH, _CHECK, _DELETE_PARENT, *common(persists=True)),
    ports=IO,
)

_LOG = logging.getLogger(__name__)


class FileStore:
    """Files named by the parameters of one template."""

    persists = True
    hands_over = False
    is_directory = False
    encoding = ""
    unwritten: Handle | None = None
    component = FILE
    suffix = ""

    def __init__(self, template: Template) -> None:
        self._template = template
        values = read(self.component, template)
        argument = find(template.arguments, "filepath")
        # In some graphs this field has the type of a number, and the empty value 0.
        given = argument is not None and (isinstance(argument.value, str) or bool(argument.value))
        self._value = str(values["filepath"]) if given else ""
        self._must_exist = bool(values["check_filepath_exists"])
        folder = template.argument("dirname")
        if folder is not None and not is_blank(folder.value) and not os.path.isabs(self._value):  # noqa: PTH117 - text
            self._value = f"{folder.value}/{'' if is_blank(self._value) else self._value}"

    @property
    def shared_name(self) -> str:
        """The name that all drops of the template share; empty if each has its own."""
        return shared_name(self._value)

    def part(self, slot: Slot) -> ContentWriter:
        """Return a writer for a file beside its final path."""
        final = self._final(slot)
        workspace = slot.workspace
        return FileWriter(
            temporary_path(slot, final),
            final=final,
            durable=workspace.durable,
            directory_for=workspace.part_directory,
            shielded=slot.shielded,
        )

    def growing(self, slot: Slot) -> FileWriter:
        """Return a writer whose temporary path does not change, because readers have it open."""
        final = self._final(slot)
        path, durable = temporary_path(slot, final), slot.workspace.durable
        return FileWriter(path, final=final, durable=durable, shielded=slot.shielded)

    def initial(self, slot: Slot) -> Handle:
        """Return the existing file, or a new, empty one.

        Raises
        ------
        BadFileError
            It does not exist, and must: it has an absolute path, or `check_filepath_exists` is set.
        """
        final = self._final(slot)
        if is_blank(self._value):
            return self.part(slot).finish()
        if os.path.lexists(final):
            return found(final)
        if self._must_exist or not slot.workspace.is_inside(final):
            raise BadFileError(
                f"the file {final} does not exist, and no application of the graph writes it",
                where=self._template.name,
                hint=f"put it there, or correct 'filepath' of node '{self._template.name}'",
            )
        _LOG.warning("%s does not exist and has no producer: an empty file is made", final)
        return self.part(slot).finish()

    def check(self) -> None:
        """Raise if the name is not valid for any drop."""
        check_name(self._value)

    def check_initial(self) -> None:
        """Accept all parameters: whether the file exists is checked when the drop starts."""

    def _final(self, slot: Slot) -> str:
        value = slot.name if is_blank(self._value) else self._value
        return final_path(value, base=slot.workspace.files, oid=slot.oid, now=slot.now, suffix=self.suffix)


def found(path: str) -> Handle:
    """Return a handle for what is at `path` already, which dropflow must not move or remove."""
    kind = "directory" if Path(path).is_dir() else "file"
    return Handle(kind=kind, location=path, size=measure(path) if Path(path).exists() else 0)
