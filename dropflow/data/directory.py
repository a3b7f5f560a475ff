"""Directory drops: content in a directory that a program fills."""

from collections.abc import Callable
from pathlib import Path

from dropflow.data.file import found, remove_part, temporary_path
from dropflow.data.file_names import check_name, final_path, shared_name
from dropflow.data.read import measure
from dropflow.data.storage_errors import checksum_of, refuse_made, storage_errors, tree_of
from dropflow.data.store import IO, ContentWriter, Slot, common
from dropflow.errors import AppError, BadFileError
from dropflow.execution.content_location import Handle
from dropflow.graph.components import Component, Parameter, read
from dropflow.graph.templates import Kind, Template

DIRECTORY = Component(
    name="Directory",
    kind=Kind.DATA,
    category="Directory",
    dropclass="dlg.data.drops.directory.DirectoryDROP",
    aliases=("dlg.data.drops.DirectoryDROP", "dlg.drop.DirectoryContainer", "dlg.data.drops.DirectoryContainer"),
    description="A directory. Programs fill it under a temporary name; it gets its name when they have succeeded.",
    parameters=(
        Parameter(
            name="dirname",
            aliases=("dirpath",),
            description="Name of the directory, by the same rules as the name of a file.",
        ),
        Parameter(
            name="check_exists",
            type="Boolean",
            default=False,
            parameter_type="ComponentParameter",
            description="Fail if the drop has no producer and the directory does not exist.",
        ),
        Parameter(
            name="create_if_missing",
            type="Boolean",
            default=False,
            parameter_type="ComponentParameter",
            description="Make the directory if the drop has no producer and it does not exist.",
        ),
        Parameter(
            name="overwrite_existing",
            type="Boolean",
            default=True,
            parameter_type="ComponentParameter",
            description="Accepted for older graphs: producers always replace an existing directory.",
        ),
        *common(persists=True),
    ),
    ports=IO,
)


class DirectoryWriter:
    """Writes a directory."""

    def __init__(self, path: str, final: str, directory_for: Callable[[str], str]) -> None:
        self._path = path
        self._final = final
        self._directory_for = directory_for
        self._given = False

    def write(self, data: bytes | bytearray | memoryview, *, text: bool = False) -> int:
        """Raise: bytes cannot be written to a directory.

        Raises
        ------
        AppError
            Always.
        """
        raise AppError(
            f"{len(data)} bytes were written to a directory drop",
            hint="write files below the output's path, or make the drop a File or Memory",
        )

    def path(self) -> str:
        """Return the path where the program makes the directory, with its final base name."""
        if not self._given:
            self._given = True
            self._path = f"{self._directory_for(self._path)}/{self._final.rpartition('/')[2]}"
        return self._path

    def finish(self) -> Handle:
        """Return the directory, or a file that a program made in its place; makes an empty directory by default."""
        path = Path(self._path)
        with storage_errors("finish writing", path):
            if not path.exists():
                path.mkdir(parents=True)
            refuse_made(self._path, path.stat().st_mode)
            is_directory = path.is_dir()
            size, checksum = tree_of(self._path) if is_directory else (measure(self._path), checksum_of(self._path))
            return Handle(
                kind="directory" if is_directory else "file",
                location=self._path,
                final=self._final,
                size=size,
                checksum=checksum,
            )

    def abandon(self) -> None:
        """Remove the directory with all its files."""
        remove_part(self._path)


class DirectoryStore:
    """Directories named by the parameters of one template."""

    persists = True
    hands_over = False
    is_directory = True
    encoding = ""
    unwritten: Handle | None = None
    growing = None

    def __init__(self, template: Template) -> None:
        self._template = template
        values = read(DIRECTORY, template)
        self._value = str(values["dirname"] or "")
        self._must_exist = bool(values["check_exists"])
        self._create = bool(values["create_if_missing"])

    @property
    def shared_name(self) -> str:
        """The name that all drops of the template share; empty if each has its own."""
        return shared_name(self._value)

    def part(self, slot: Slot) -> ContentWriter:
        """Return a writer for a directory beside its final path."""
        final = self._final(slot)
        return DirectoryWriter(temporary_path(slot, final), final, slot.workspace.part_directory)

    def initial(self, slot: Slot) -> Handle:
        """Return the existing directory, or a new, empty one.

        Raises
        ------
        BadFileError
            It must exist and does not, or is not a directory.
        """
        final = self._final(slot)
        path = Path(final)
        if path.is_dir():
            return found(final)
        if path.exists():
            raise BadFileError(
                f"{final} is a file, not a directory",
                where=self._template.name,
                hint=f"correct 'dirname' of node '{self._template.name}', or make the node a File",
            )
        if self._must_exist or not (self._create or slot.workspace.is_inside(final)):
            raise BadFileError(
                f"the directory {final} does not exist, and no application of the graph makes it",
                where=self._template.name,
                hint=f"make it, set 'create_if_missing', or correct 'dirname' of node '{self._template.name}'",
            )
        return self.part(slot).finish()

    def check(self) -> None:
        """Raise if the name is not valid for any drop."""
        check_name(self._value)

    def check_initial(self) -> None:
        """Accept all parameters: whether the directory exists is checked when the drop starts."""

    def _final(self, slot: Slot) -> str:
        value = self._value or slot.name
        return final_path(value, base=slot.workspace.files, oid=slot.oid, now=slot.now)
