"""Owner of the committed contents of one session's data drops, on this machine.

An attempt writes parts under temporary names. The repository makes parts the content of a drop (`commit`, `assemble`)
by a rename within one file system: a reader finds the old content, the new content or none, but never half of one. The
session calls it from its thread only, and only for attempts that it has accepted, so an attempt may run twice
and its content is committed once.
"""

import contextlib
import errno
import json
import os
import secrets
import shutil
import zlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from dropflow.clock import Clock
from dropflow.data.file import remove_part, remove_part_folder
from dropflow.data.file_owners import FileOwners
from dropflow.data.memory import MemoryWriter
from dropflow.data.read import EMPTY, open_content, view
from dropflow.data.remote import commit_remote, remove_remote, url_of
from dropflow.data.storage_errors import refuse_special, storage_error, storage_errors, tree_of
from dropflow.data.store import Slot
from dropflow.data.workspace import (
    BESIDE,
    SHARED_MEMORY,
    Workspace,
    claim_shared_memory,
    discard_directory,
    release_shared_memory,
    remove_rest,
    sweep_shared_memory,
)
from dropflow.errors import DropflowError, StorageError
from dropflow.execution.content_location import Handle
from dropflow.files import (
    FITS_START,
    HDF5_START,
    NPY_START,
    PNG_START,
    ZIP_START,
    force_to_disk,
    mark_made,
    replace_directory,
)
from dropflow.graph.components import Unusable, convert, find, is_empty
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Template
from dropflow.ids import drop_file_name

_IN_MEMORY = ("bytes", "shm", "null")
_BLOCK_BYTES = 1 << 20
"""Bytes that are read at once when a content is appended to another."""
_HEAD_BYTES = 4096
"""Bytes at the beginning of a content from which its suffix is found."""
_LARGEST_JSON_BYTES = 1 << 20
"""Bytes up to which a content is parsed, to see whether it is JSON."""
_PICKLE = b"\x80"
_PROTOCOLS = (2, 3, 4, 5)
_MAGICS = (
    (NPY_START, ".npy"),
    (PNG_START, ".png"),
    (FITS_START, ".fits"),
    (HDF5_START, ".h5"),
    (ZIP_START, ".zip"),
    (b"%PDF-", ".pdf"),
)
_TAG_BYTES = 4
"""Random bytes in the tag of a workspace."""
_SMALL = 4096
"""Bytes of a content in its handle below which it does not count, and stays there: a file would take as much."""

# Rules for removing contents after use.
#
# A content is released when the last consumer of its drop is done. Then:
#
# * with `persist` set on the node it is kept;
# * else with `expireAfterUse` set it is removed;
# * else contents in memory are removed, and files only if `persist` was switched off and they are in the session
# directory.
#
# Contents that existed before the session (inputs) are never removed, and leaves are never released.


def is_removed(
    template: Template, handle: Handle, workspace: Workspace, *, ours: bool, temporary: bool = False
) -> bool:
    """Return whether the content is removed when its last consumer is done.

    Parameters
    ----------
    template : Template
        Node of the data drop.
    handle : Handle
        Its committed content.
    workspace : Workspace
        Directories of the session.
    ours : bool
        Whether the session wrote it.
    temporary : bool
        Whether it is in the session's ``tmp``, as large contents of memory drops are.
    """
    if not ours or template.persist is True:
        return False
    if temporary or handle.kind in _IN_MEMORY or _flag(template, "expireAfterUse"):
        return True
    return template.persist is False and workspace.is_inside(handle.location)


def removes_parent(template: Template) -> bool:
    """Return whether the directory of a removed file is removed too, if it is empty."""
    return _flag(template, "delete_parent_directory")


def _flag(template: Template, name: str) -> bool:
    argument = find(template.arguments, name)
    if argument is None or is_empty(argument.value, "Boolean"):
        return False
    try:
        return bool(convert(argument.value, "Boolean"))
    except Unusable:
        return False


# Join of the contents that several producers wrote to one data drop.


def join(parts: Sequence[Handle], slot: Slot) -> Handle:
    """Join the contents of `parts`, in their order, into one; the other parts are empty or removed.

    Bytes are joined, directories are merged. The result is text if all parts are.

    Parameters
    ----------
    parts : sequence of Handle
        The parts that the producers wrote, in their order. Parts of kind ``null`` are ignored.
    slot : Slot
        Where a joined content in memory is written.

    Raises
    ------
    StorageError
        A directory would be joined to a file, two directories have a file of the same name, or writing failed.
    """
    contents = [part for part in parts if part.kind != "null"]
    if not contents:
        return parts[0] if parts else EMPTY
    if len(contents) == 1:
        return contents[0]
    if any(part.kind == "url" for part in contents):
        raise StorageError(
            f"{len(contents)} producers wrote {slot.oid} to {url_of(contents[0].final)}, which takes one content",
            hint="let them write a Memory node, and copy that to the store with a CopyApp",
        )
    folders = sum(part.kind == "directory" for part in contents)
    if folders and folders < len(contents):
        raise StorageError(
            f"{folders} of {len(contents)} producers of {slot.oid} wrote a directory, the others a file",
            hint="let all of them write the same kind of content",
        )
    if folders:
        return _merge(contents)
    if contents[0].kind != "file":
        return _gather(contents, slot)
    joined = _append(contents)
    if slot.workspace.durable:
        with storage_errors("write", joined.location):
            force_to_disk(joined.location)
    return joined


def _gather(parts: Sequence[Handle], slot: Slot) -> Handle:
    joined = MemoryWriter(slot)
    try:
        for part in parts:
            if part.size:
                joined.write(view(part), text=part.text)
        return joined.finish()
    except BaseException:
        joined.abandon()
        raise


def _append(parts: Sequence[Handle]) -> Handle:
    first, *rest = parts
    size, checksum = first.size, first.checksum
    with storage_errors("append to", first.location), Path(first.location).open("ab") as target:
        for part in rest:
            with open_content(part) as source:
                while block := source.read(_BLOCK_BYTES):
                    target.write(block)
                    size += len(block)
                    checksum = zlib.crc32(block, checksum)
    return msgspec.structs.replace(first, size=size, checksum=checksum, text=all(part.text for part in parts))


def _merge(parts: Sequence[Handle]) -> Handle:
    first, *rest = parts
    for part in rest:
        for folder, folders, names in os.walk(part.location):
            target = Path(first.location, os.path.relpath(folder, part.location))
            with storage_errors("merge into", target):
                entered = {name for name in folders if not Path(folder, name).is_symlink()}
                for name in (*folders, *names):
                    if name in entered and not (target / name).is_symlink():
                        (target / name).mkdir(exist_ok=True)
                        continue
                    if os.path.lexists(target / name):
                        raise StorageError(
                            f"two producers of {first.final or first.location} wrote '{name}'",
                            hint="use a different name for each producer, for example with {uid}",
                        )
                    Path(folder, name).rename(target / name)
    with storage_errors("read", first.location):
        size, checksum = tree_of(first.location)
    return msgspec.structs.replace(first, size=size, checksum=checksum)


# The file suffix of a content, from its first bytes.


def suffix_for(content: memoryview, *, text: bool = False) -> str:
    """Return ``.npy``, ``.pkl``, ``.json``, ``.txt``, another well-known suffix, or ``.dat``.

    Parameters
    ----------
    content : memoryview
        The whole content.
    text : bool
        Whether it was declared or written as text.
    """
    head = bytes(content[:_HEAD_BYTES])
    for magic, suffix in _MAGICS:
        if head.startswith(magic):
            return suffix
    if head[:1] == _PICKLE and len(head) > 1 and head[1] in _PROTOCOLS and bytes(content[-1:]) == b".":
        return ".pkl"
    if not text and not _is_text(head, whole=len(content) <= _HEAD_BYTES):
        return ".dat"
    return ".json" if _is_json(content) else ".txt"


def _is_text(head: bytes, *, whole: bool) -> bool:
    try:
        decoded = head.decode()
    except UnicodeDecodeError as problem:
        # The head may end in the middle of a character of at most four bytes.
        if whole or problem.start < len(head) - 3:
            return False
        decoded = head[: problem.start].decode()
    return all(character.isprintable() or character.isspace() for character in decoded)


def _is_json(content: memoryview) -> bool:
    if bytes(content[:1]) not in (b"{", b"[") or len(content) > _LARGEST_JSON_BYTES:
        return False
    try:
        json.loads(bytes(content))
    except (ValueError, RecursionError):
        return False
    return True


def remove_uncommitted(workspace: Workspace, settled: Collection[str] = ()) -> None:
    """Remove ``tmp`` of a session, and the parts elsewhere that its register names, but for the `settled` ones."""
    try:
        noted = workspace.outside.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    except OSError:
        noted = []
    # A crash can cut a line short: it must not name something else.
    parts = [path for path in noted if path.partition("#")[0].rpartition("/")[2].startswith(BESIDE)]
    if remote := [path for path in parts if "://" in path and path not in settled]:
        remove_remote(remote)
    for path in parts:
        if "://" not in path:
            remove_part(path)
    discard_directory(workspace.tmp)
    remove_rest(Path(workspace.directory))


class LocalRepository:
    """Contents on this machine: in handles, in shared memory, and in files.

    Parameters
    ----------
    directory : str or Path
        Session directory; created if it is missing. What an earlier session left in its ``tmp`` is removed.
    session : str
        Session id.
    clock : Clock
        Tells the time.
    graph : PhysicalGraph, optional
        Graph of the session: its edges decide which drop may replace the file of another one.
    durable : bool
        Whether contents are forced to the disk when they are committed.
    shared_memory : Path or None
        Where the session gets a directory in shared memory. None if attempts run on other machines: on the disk.

    Raises
    ------
    StorageError
        The session directory cannot be created.
    """

    def __init__(
        self,
        directory: str | Path,
        session: str,
        clock: Clock,
        graph: PhysicalGraph | None = None,
        *,
        durable: bool = False,
        shared_memory: Path | None = SHARED_MEMORY,
    ) -> None:
        path = os.path.abspath(directory)  # noqa: PTH100 - resolve() would follow links
        self.workspace = Workspace(path, session, durable, secrets.token_hex(_TAG_BYTES))
        self.notes: list[str] = []
        """Messages to users: directories that were put aside."""
        self._clock = clock
        self.set_graph(graph)
        self._segment: Path | None = None
        self._tmp = f"{self.workspace.tmp}/"
        self._results = f"{self.workspace.results}/"
        self._copies = f"{self.workspace.copies}/"
        remove_uncommitted(self.workspace)
        self.workspace.prepare()
        if shared_memory is not None:
            sweep_shared_memory(shared_memory)
        self._claim(shared_memory)
        self._open_directories = self._hold_directories()
        self._settled: set[str] = set()
        """Parts in stores that are committed or removed."""

    def set_graph(self, graph: PhysicalGraph | None) -> None:
        """Use another graph from now on. The contents of its drops must be adopted again."""
        self._graph = graph
        self._owners = FileOwners(graph)

    def adopt(self, contents: Mapping[int, Handle]) -> None:
        """Take over contents that an earlier process of the session has committed, in the order of their commits.

        Files belong to the applications that wrote them, as after their commit.
        """
        latest: dict[str, Handle] = {}
        for drop, content in contents.items():
            path = content.location
            if content.kind in ("file", "directory") and self._is_written(drop):
                before = latest.get(path)
                is_same = before is not None and (before.size, before.checksum) == (content.size, content.checksum)
                self._owners.add(path, drop, self._owners.of(path) if is_same else ())
                latest[path] = content

    def commit(self, drop: int, attempt: int, template: Template, part: Handle) -> Handle:
        """Make `part` the content of a drop with one producer: atomic, under its final name.

        If a drop that depends on this one has written there since, this one runs again: its content stays in ``tmp``.

        Raises
        ------
        StorageError
            The rename failed; the part is gone.
        BadFileError
            A FIFO, a socket or a device is there, or a directory in place of a file; the part is gone.
        ConflictError
            A drop that is independent of this one wrote something else there; the part is gone.
        """
        if not part.final:
            return part
        if part.kind == "url":
            return self._commit_remote(part)
        try:
            refuse_special(part.final)
            beside = self._owners.before(drop, part)
            final = part.final if beside is not None else self.workspace.part_name(drop, attempt, "earlier")
            if part.kind == "directory" and not self.workspace.is_inside(final):
                mark_made(part.location)
            self._place(part.location, final)
        except (OSError, DropflowError) as error:
            remove_part(part.location)
            if isinstance(error, DropflowError):
                raise
            raise storage_error("put the content in its place at", part.final, error) from error
        remove_part_folder(part.location)
        if beside is not None:
            self._owners.add(final, drop, beside)
        return msgspec.structs.replace(part, location=final, final="")

    def is_replaced(self, drop: int, handle: Handle) -> bool:
        """Return whether another drop has written something else since at the place of a content."""
        return handle.kind in ("file", "directory") and self._owners.is_replaced(handle.location, drop)

    def assemble(self, drop: int, template: Template, parts: Sequence[Handle]) -> Handle:
        """Make `parts`, in the order of the producers, the content of one drop.

        Raises
        ------
        StorageError
            They cannot be joined or written; the parts are gone.
        """
        slot = Slot(self.workspace, template.name, drop, 0, 0, self._clock.now())
        try:
            joined = join(parts, slot)
            lost = sum(part.missing for part in parts) / len(parts) if parts else 0.0
            joined = msgspec.structs.replace(joined, missing=lost) if lost else joined
            content = self.commit(drop, 0, template, joined)
        except BaseException:
            for part in parts:
                self.discard(part)
            raise
        for part in parts:
            if part.location != joined.location:
                self.discard(part)
        return content

    def discard(self, part: Handle) -> None:
        """Remove an uncommitted part; never raises. Contents that existed before the session stay."""
        if part.kind == "url":
            if part.final and part.final != part.location:
                self._remove_remote(part.location)
        elif part.location and (part.final or self._is_temporary(part)):
            remove_part(part.location)

    def discard_attempt(self, drop: int, attempt: int) -> None:
        """Remove the uncommitted parts of an attempt whose process ended before it could do so; never raises.

        Its streams are removed by the session, which stops their readers first. Parts beside targets elsewhere are
        removed when the repository is closed.
        """
        for folder in (self.workspace.tmp, self.workspace.shared):
            with contextlib.suppress(OSError):
                for path in self.workspace.parts_of(folder, drop, attempt):
                    remove_part(path)

    def release(self, drop: int, template: Template, handle: Handle) -> bool:
        """Remove the content after its last use, unless it is to persist; return whether it was removed.

        Raises
        ------
        StorageError
            It cannot be removed.
        """
        temporary = self._is_temporary(handle)
        ours = temporary or handle.kind in ("bytes", "null") or self._owners.is_only(handle.location, drop)
        if not ours:
            self._owners.leave(handle.location, drop)
        if not is_removed(template, handle, self.workspace, ours=ours, temporary=temporary):
            return False
        if temporary:
            remove_part(handle.location)
        elif handle.location:
            with storage_errors("remove", handle.location):
                _remove(handle.location)
            self._owners.remove(handle.location)
            if removes_parent(template):
                _remove_if_empty(Path(handle.location).parent, self.workspace.files)
        return True

    def keep_result(self, drop: int, oid: str, template: Template, handle: Handle) -> Handle:
        """Move a content that is in memory to ``results/``.

        The file is named after the drop, with a suffix for its format. Files and directories stay where they are, and
        an empty content makes no file.

        Raises
        ------
        StorageError
            It cannot be written; the content is gone.
        """
        if not handle.size or not (handle.kind == "bytes" or self._is_temporary(handle)):
            return handle
        name = drop_file_name(oid)
        passing = handle.location or self._tmp + name
        try:
            suffix = "" if handle.kind == "directory" else suffix_for(view(handle), text=handle.text)
            target = f"{self._results}{name}{suffix}"
            with storage_errors("write the result", target):
                if handle.kind == "bytes":
                    with open(passing, "wb") as stream:  # noqa: PTH123 - once a leaf: Path doubles its cost
                        stream.write(handle.body)
                if self.workspace.durable and handle.kind != "directory":
                    force_to_disk(passing)
                self._place(passing, target)
        except BaseException:
            remove_part(passing)
            raise
        if handle.kind != "bytes":
            remove_part_folder(passing)
        kind = "directory" if handle.kind == "directory" else "file"
        return msgspec.structs.replace(handle, kind=kind, body=b"", location=target)

    def adopt_copy(self, drop: int, oid: str, template: Template, copy: Handle, *, is_kept: bool) -> Handle:
        """Make the copy of the content of another node the content of a drop that is now here.

        It goes where the content was. If something is there, or nothing can be written there, a result goes to
        ``results/``, and another content stays where the copy is.

        Raises
        ------
        StorageError
            It cannot be put there; the copy is gone.
        """
        if copy.final and not os.path.lexists(copy.final) and self._can_write(copy.final):
            return self.commit(drop, 0, template, copy)
        content = msgspec.structs.replace(copy, final="")
        return self.keep_result(drop, oid, template, content) if is_kept else content

    def revoke(self, drop: int, handle: Handle) -> None:
        """Remove a committed content because another output of the same attempt cannot be stored; never raises.

        Contents that existed before the session stay.
        """
        if handle.kind == "url":
            self._remove_remote(handle.location)
            return
        is_result = handle.location.startswith(self._results)
        if is_result or self._is_temporary(handle) or self._owners.is_only(handle.location, drop):
            remove_part(handle.location)
        self._owners.leave(handle.location, drop)

    def confirm(self) -> None:
        """Check that the session directory, and what was kept in it, has not been removed or replaced.

        Raises
        ------
        StorageError
            It was removed or replaced.
        """
        for path, descriptor in self._open_directories.items():
            try:
                is_there = os.path.samestat(os.stat(path), os.fstat(descriptor))  # noqa: PTH116 - text
            except OSError:
                is_there = False
            if not is_there:
                raise StorageError(
                    f"the directory {path} was removed or replaced while the session ran: the files in it are lost",
                    hint="do not change the session directory before the session is over; run the graph again",
                )

    def close(self) -> None:
        """Remove everything that is not committed, here, beside targets elsewhere and in shared memory; idempotent."""
        try:
            remove_uncommitted(self.workspace, self._settled)
        finally:
            for descriptor in self._open_directories.values():
                os.close(descriptor)
            self._open_directories.clear()
            if self._segment is not None:
                release_shared_memory(self._segment)
                self._segment = None

    def _commit_remote(self, part: Handle) -> Handle:
        if part.final != part.location:
            try:
                commit_remote(part.location, part.final)
            except DropflowError:
                self._remove_remote(part.location)
                raise
            self._settled.add(part.location)
        return msgspec.structs.replace(part, location=part.final, final="")

    def _remove_remote(self, location: str) -> None:
        remove_remote([location])
        self._settled.add(location)

    def _hold_directories(self) -> dict[str, int]:
        """Open the directories of the session: while they are open, no other directory gets the same inode."""
        held = {}
        for path in (self.workspace.directory, str(self.workspace.files), str(self.workspace.results)):
            with storage_errors("open the directory", path):
                held[path] = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return held

    def _claim(self, shared_memory: Path | None) -> None:
        if shared_memory is not None:
            self._segment = claim_shared_memory(self.workspace.session, shared_memory)
        shared = self.workspace.shared
        with storage_errors("make the directory", shared):
            if self._segment is None:
                shared.mkdir()
            else:
                shared.symlink_to(self._segment)

    def _is_written(self, drop: int) -> bool:
        """Return whether an application writes a drop, so that its content did not exist before the session."""
        if self._graph is None:
            return False
        ptr = self._graph.predecessors.ptr
        return bool(ptr[drop] < ptr[drop + 1])

    def _is_temporary(self, handle: Handle) -> bool:
        return handle.kind == "shm" or handle.location.startswith((self._tmp, self._copies))

    def _can_write(self, path: str) -> bool:
        """Return whether a file can be made beside a path."""
        if not self.workspace.is_inside(path):
            try:
                remove_part_folder(self.workspace.part_beside(path))
            except StorageError:
                return False
        return True

    def _place(self, location: str, final: str) -> None:
        """Rename, replacing what is there; a directory there is first renamed."""
        try:
            os.replace(location, final)  # noqa: PTH105 - once a file drop: Path doubles its cost
            if self.workspace.durable:
                force_to_disk(os.path.dirname(final))  # noqa: PTH120 - text, as everywhere here
        except OSError:
            if not os.path.lexists(location):
                raise
            Path(final).parent.mkdir(parents=True, exist_ok=True)
            if _is_directory(final):
                self._replace_directory(location, final)
            else:
                if os.path.isdir(location) and os.path.lexists(final):  # noqa: PTH112
                    os.unlink(final)  # noqa: PTH108
                self._move(location, final)
            if self.workspace.durable:
                force_to_disk(os.path.dirname(final))  # noqa: PTH120

    def _replace_directory(self, location: str, final: str) -> None:
        """Replace a directory. If it was there before the session, and dropflow did not make it, it is put aside."""
        former, is_own = replace_directory(
            final,
            lambda: self._move(location, final),
            aside=lambda: self.workspace.part_beside(final),
            kept=f"{final}.before-{self.workspace.session}",
            is_own=bool(self.workspace.is_inside(final) or self._owners.of(final)),
            is_directory=os.path.isdir(location),  # noqa: PTH112 - text, as in _place
        )
        if is_own:
            remove_part(former)
        else:
            self.notes.append(f"{final} was there before the session: its files are in {former}")

    def _move(self, location: str, final: str) -> None:
        """Rename; from another file system (shared memory) copy beside the target first."""
        try:
            os.replace(location, final)  # noqa: PTH105 - text, as in _place
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            beside = self.workspace.part_beside(final)
            try:
                shutil.move(location, beside)
                if self.workspace.durable and not os.path.isdir(beside):  # noqa: PTH112
                    force_to_disk(beside)
                os.replace(beside, final)  # noqa: PTH105
            except OSError:
                remove_part(beside)  # a full disk cuts the copy short
                raise
            remove_part_folder(beside)


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114 - text, as in _place


def _remove(path: str) -> None:
    if _is_directory(path):
        shutil.rmtree(path)
    else:
        Path(path).unlink(missing_ok=True)


def _remove_if_empty(folder: Path, files: Path) -> None:
    if folder == files or files not in folder.parents:
        return
    with contextlib.suppress(OSError):  # not empty: others use it
        folder.rmdir()


# A repository that keeps contents of memory drops in memory up to a limit; those that come after go to the disk.


class MemoryLimitedRepository(LocalRepository):
    """A `LocalRepository` with a limit for the bytes of its contents in shared memory and in handles.

    The writers of contents, in worker processes, write to the disk while a marker file exists. So the limit is exceeded
    at most by the bytes that they are writing, and have written since the last results that the session received.

    Parameters
    ----------
    *arguments, **options :
        Of `LocalRepository`.
    limit : int
        Bytes.
    """

    def __init__(self, *arguments: Any, limit: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limit = limit
        self._sizes: dict[int, int] = {}
        """Bytes in memory of each drop that counts."""
        self.held = 0
        """Sum of them."""
        self._is_full = False
        self._in_memory = f"{self.workspace.shared}/"

    def commit(self, drop: int, attempt: int, template: Template, part: Handle) -> Handle:
        """Make `part` the content of a drop, as a `LocalRepository` does. If memory is full, it goes to the disk.

        Raises
        ------
        StorageError
            It cannot be written.
        """
        content = super().commit(drop, attempt, template, part)
        if content.kind == "bytes" and content.size >= _SMALL and self.held + content.size > self._limit:
            path = self.workspace.part_name(drop, attempt, "large")
            with storage_errors("write", path):
                Path(path).write_bytes(content.body)
            return msgspec.structs.replace(content, kind="shm", body=b"", location=path)
        if (content.kind == "bytes" and content.size >= _SMALL) or content.location.startswith(self._in_memory):
            self._count(drop, content.size)
        return content

    def release(self, drop: int, template: Template, handle: Handle) -> bool:
        """Remove the content after its last use, as a `LocalRepository` does."""
        is_removed = super().release(drop, template, handle)
        if is_removed:
            self._count(drop, 0)
        return is_removed

    def keep_result(self, drop: int, oid: str, template: Template, handle: Handle) -> Handle:
        """Move a content that is in memory to ``results/``, as a `LocalRepository` does."""
        self._count(drop, 0)
        return super().keep_result(drop, oid, template, handle)

    def revoke(self, drop: int, handle: Handle) -> None:
        """Remove a committed content, as a `LocalRepository` does."""
        self._count(drop, 0)
        super().revoke(drop, handle)

    def _count(self, drop: int, size: int) -> None:
        """Count the bytes of a drop, and tell writers whether memory is full."""
        self.held += size - self._sizes.pop(drop, 0)
        if size:
            self._sizes[drop] = size
        is_full = self.held >= self._limit
        if is_full != self._is_full:
            self._is_full = is_full
            with suppress(OSError):  # without the file, contents go to shared memory, and from a full one to the disk
                if is_full:
                    Path(self.workspace.full).touch()
                else:
                    Path(self.workspace.full).unlink(missing_ok=True)
