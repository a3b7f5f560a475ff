"""File drops: content in a file with a chosen name."""

import contextlib
import glob
import io
import logging
import os
import shutil
import stat
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from dropflow.data.file_names import check_name, final_path, is_blank, shared_name
from dropflow.data.read import measure
from dropflow.data.storage_errors import (
    checksum_of,
    refuse_made,
    refuse_special,
    storage_error,
    storage_errors,
    tree_of,
)
from dropflow.data.store import IO, ContentWriter, Shield, Slot, common
from dropflow.data.workspace import PART_FOLDER, Workspace
from dropflow.errors import BadFileError, BadParameterError, StorageError
from dropflow.execution.content_location import Handle
from dropflow.files import DISK_FULL, force_to_disk
from dropflow.graph.components import Component, Parameter, Port, find, read
from dropflow.graph.templates import Kind, Template

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o666
"""Mode of new files, before the umask: the files get their final names when they are committed."""
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
_log = logging.getLogger(__name__)
JSON = Component(
    name="JSON",
    kind=Kind.DATA,
    category="File",
    dropclass="dlg.data.drops.json_drop.JsonDROP",
    aliases=("dlg.data.drops.JsonDROP", "dlg.drop.JsonDROP"),
    description="A file with one JSON value: functions receive and return the value itself.",
    parameters=FILE.parameters,
    ports=tuple(msgspec.structs.replace(port, encoding="json") for port in IO),
)
FILES = Component(
    name="Files",
    kind=Kind.DATA,
    category="File",
    dropclass="dropflow.data.file.FilesStore",
    description="The existing files or directories that match a pattern, one for each copy of the scatter around the "
    "node, sorted by name. It is an error if there are not as many as copies.",
    parameters=(
        Parameter(
            name="pattern",
            description="Such as /data/*.fits; ** stands for directories of any depth. A relative one is below the "
            "session's files.",
        ),
        *common(persists=True),
    ),
    ports=(Port(name="io", usage="OutputPort", description="Data for consumers."),),
)

# Writers to files, under temporary names.


def temporary_path(slot: Slot, final: str) -> str:
    """Return a unique temporary path on the file system of `final`.

    Raises
    ------
    BadFileError
        There is a FIFO, a socket or a device at `final`.
    StorageError
        Nothing can be written there.
    """
    return part_for(slot.workspace, slot.workspace.part_name(slot.drop, slot.attempt, slot.number), final)


def part_for(workspace: Workspace, part: str, final: str) -> str:
    """Return a temporary path for a content: `part`, or one beside `final` if that is outside of the session directory.

    Parameters
    ----------
    part : str
        From `Workspace.part_name`.
    final : str
        Path of the content after its commit; empty if it is not known.

    Raises
    ------
    BadFileError, StorageError
        As `temporary_path`.
    """
    if not final or workspace.is_detached:
        return part
    refuse_special(final)
    return part if workspace.is_inside(final) else workspace.part_beside(final)


class FileWriter:
    """Writes a content to a file, with `write`, by a program at `path`, or both.

    Parameters
    ----------
    path : str
        Temporary path.
    final : str
        Path of the content after its commit; empty if it stays.
    kind : str
        Kind of the handle.
    durable : bool
        Whether to force the file to disk (fsync) at the end.
    directory_for : callable, optional
        Makes a directory for a temporary path. Programs get a path in it with the final base name, because they use
        file extensions. Not called if no program writes the content.
    overflow : callable, optional
        Returns a temporary path on another file system, for the case that the first one is full.
    shielded : Shield
        Shield of the attempt that writes: an interruption just after a file is opened would leave it open.
    """

    def __init__(
        self,
        path: str,
        *,
        final: str = "",
        kind: str = "file",
        durable: bool = False,
        directory_for: Callable[[str], str] | None = None,
        overflow: Callable[[], str] | None = None,
        shielded: Shield = contextlib.nullcontext,
    ) -> None:
        self._path = path
        self._final = final
        self._kind = kind
        self._durable = durable
        self._directory_for = directory_for
        self._overflow = overflow
        self._shielded = shielded
        self._stream: io.FileIO | None = None
        self._size = 0
        self._checksum = 0
        self._text = True
        self._begun = False
        self._given = False

    @property
    def location(self) -> str:
        """Present path of the file."""
        return self._path

    @property
    def final(self) -> str:
        """Path of the content after its commit; empty if it stays."""
        return self._final

    def write(self, data: bytes | bytearray | memoryview, *, text: bool = False) -> int:
        """Append to the file.

        Raises
        ------
        StorageError
            The file cannot be written.
        """
        view = memoryview(data)
        # Each second element of an array, for example, is not contiguous, and is copied.
        block = view.cast("B") if view.c_contiguous and view.nbytes else memoryview(view.tobytes())
        done = 0
        while done < len(block):
            try:
                done += self._open().write(block[done:])
            except OSError as error:
                if error.errno not in DISK_FULL or self._overflow is None:
                    raise storage_error("write", self._path, error) from error
                self._move(self._overflow())
        self._size += done
        self._checksum = zlib.crc32(block, self._checksum)
        self._text = self._text and text
        return done

    def path(self) -> str:
        """Return the temporary path, for a program. There is no file unless something was written.

        Raises
        ------
        StorageError
            Its directory cannot be made.
        """
        if not self._given:
            self._given = True
            if self._directory_for is not None:
                self._rename(f"{self._directory_for(self._path)}/{self._final.rpartition('/')[2]}")
            else:
                Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        return self._path

    def finish(self) -> Handle:
        """Return the file, or a directory that a program made in its place; makes an empty file by default."""
        with storage_errors("finish writing", self._path):
            self._close()
            if not self._given and self._size:
                size, checksum = self._size, self._checksum
                kind = self._kind
            else:
                kind, size, checksum = self._look()
            if self._durable and kind != "directory":
                force_to_disk(self._path)
        text = self._text and bool(self._size) and not self._given
        return Handle(kind=kind, location=self._path, final=self._final, size=size, checksum=checksum, text=text)

    def abandon(self) -> None:
        """Remove the file and its directory; never raises."""
        with contextlib.suppress(OSError):
            self._close()
        remove_part(self._path)

    def _look(self) -> tuple[str, int, int]:
        try:
            mode = Path(self._path).stat().st_mode
        except FileNotFoundError:
            self._open()
            self._close()
            return self._kind, 0, 0
        refuse_made(self._path, mode)
        if stat.S_ISDIR(mode):
            return "directory", *tree_of(self._path)
        return self._kind, measure(self._path), checksum_of(self._path)

    def _open(self) -> io.FileIO:
        if self._stream is None:
            with self._shielded():
                self._stream = io.FileIO(self._descriptor(), "ab")
            self._begun = True
        return self._stream

    def _descriptor(self) -> int:
        # Fails if another program made the file.
        flags = _APPEND if self._begun or self._given else _APPEND | os.O_EXCL
        try:
            return os.open(self._path, flags, _MODE)
        except FileNotFoundError:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            return os.open(self._path, flags, _MODE)

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _rename(self, path: str) -> None:
        if self._size:
            with storage_errors("move unfinished data to", path):
                self._close()
                Path(self._path).rename(path)
        self._path = path

    def _move(self, path: str) -> None:
        self._close()
        try:
            with storage_errors("move unfinished data to", path):
                shutil.copyfile(self._path, path)
                Path(self._path).unlink()
        except StorageError:
            remove_part(path)  # incomplete copy
            raise
        self._path, self._overflow = path, None


def remove_part(path: str) -> None:
    """Remove an uncommitted content, and the directory that was made for it; never raises."""
    try:
        os.unlink(path)  # noqa: PTH108 - many of these in a session; unlinking refuses directories
    except FileNotFoundError:
        pass  # committed
    except OSError:
        shutil.rmtree(path, ignore_errors=True)
    remove_part_folder(path)


def remove_part_folder(path: str) -> None:
    """Remove the directory that was made for `path`, if it is empty; never raises."""
    folder = path.rpartition("/")[0]
    if folder.endswith(PART_FOLDER):
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106 - text, once a file


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
        _log.warning("%s does not exist and has no producer: an empty file is made", final)
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


# JSON drops: file drops whose content is JSON, independent of the encodings of ports.


class JsonStore(FileStore):
    """JSON files named by the parameters of one template."""

    component = JSON
    encoding = "json"
    suffix = ".json"


# Many files at a time: the copies of a drop in a scatter have the files that match a pattern.


def matching_files(pattern: str) -> list[str]:
    """Return the files and directories that match an absolute pattern, sorted by name."""
    return sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - text, as everywhere here


class FilesStore(FileStore):
    """The files that match a pattern."""

    component = FILES

    def __init__(self, template: Template) -> None:
        self._template = template
        value = read(FILES, template)["pattern"]
        self._value = "" if is_blank(value) else str(value)
        self._matched: tuple[str, list[str]] = ("", [])
        """The last pattern, and its files: the search for each copy would take as long as there are files."""

    def part(self, slot: Slot) -> ContentWriter:
        """Refuse: applications do not write existing files.

        Raises
        ------
        BadParameterError
            Always.
        """
        raise BadParameterError(
            f"drop {slot.oid} of '{self._template.name}' has a producer, and stands for existing files",
            where=self._template.name,
            hint="make it a File",
        )

    def initial(self, slot: Slot) -> Handle:
        """Return the file of a copy.

        Raises
        ------
        BadFileError
            There are not as many files as copies.
        """
        pattern = final_path(self._value, base=slot.workspace.files, oid=slot.oid, now=slot.now)
        known, paths = self._matched
        if known != pattern:
            paths = matching_files(pattern)
        copies = self._template.axes[-1].size if self._template.axes else 1
        if len(paths) != copies:
            raise BadFileError(
                f"{len(paths)} files match {pattern}, and the graph was translated for {copies}",
                where=self._template.name,
                hint="files were added or removed since: make the graph again, or correct the number of copies",
            )
        self._matched = (pattern, paths)
        return found(paths[slot.index[-1] if slot.index else 0])

    def check(self) -> None:
        """Raise if there is no pattern, or it is not valid."""
        if not self._value:
            raise BadParameterError(
                f"node '{self._template.name}' has no pattern",
                where=self._template.name,
                fields=("pattern",),
                hint="give one such as /data/*.fits",
            )
        check_name(self._value)
