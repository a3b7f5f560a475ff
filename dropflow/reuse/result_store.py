"""The result store, which later runs take from: contents by digest, and records of what an application wrote.

::

    <store>/contents/<2 digits>/<digest>   one content; never changed after the rename that makes it
            records/<2 digits>/<key>       what an application with this key wrote, and from what
            drops/<2 digits>/<name>        the last record of a drop, whatever its key: to say what has changed
            tmp/                           what is being written

Several processes and hosts may write at the same time, also on NFS: a file appears by a rename, and two files of the
same name have the same content. What is read is compared with its digest, so a damaged content is not used; it is
removed, and made again. Each record carries a keyed digest. The key is in a file of this user outside of the store, or
it is the cluster key of this host, if there is one and others may use the store. So what another user has put there is
never used, and never unpickled.

A store at an address, such as ``s3://bucket/results``, has the same files there, and copies of those that this host has
read or written in a directory (`dropflow.reuse.remote_result_store`).
"""

import errno
import hashlib
import hmac
import logging
import os
import re
import secrets
import shutil
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import platformdirs

from dropflow.api.signing import default_key_file
from dropflow.clock import SystemClock
from dropflow.data.read import open_file, view
from dropflow.data.storage_errors import below, storage_errors
from dropflow.errors import DropflowError, StorageError, UsageError
from dropflow.execution.content_location import Handle
from dropflow.execution.executor_spec import KeyPart
from dropflow.files import (
    content_digest,
    make_directories,
    make_once,
    private_directory,
    private_opener,
    shares_blocks,
)
from dropflow.formatting import MEMORY, quantity

if TYPE_CHECKING:
    from dropflow.reuse.remote_result_store import RemoteFile, RemoteResultStore

_log = logging.getLogger(__name__)

DIRECTORY_VARIABLE, LIMIT_VARIABLE = "DROPFLOW_STORE", "DROPFLOW_STORE_LIMIT"
DEFAULT_LIMIT_BYTES = 20 << 30
"""Bytes of the store above which old results are removed, if the environment gives no other limit."""
_INLINE = 4096
"""Contents up to this size are in the record: one file less to read for each small result."""
_BLOCK_BYTES = 1 << 20
"""Bytes that are copied at once."""
_GRACE_SECONDS = 3600.0
"""Contents younger than this are kept though no record has them: their record may be about to be written."""
_MAC_BYTES = 32
"""Bytes of a signature of a record, and of the key for it."""
_CLUSTER_SECRET = re.compile(rb"^secret (\S{40})$", re.MULTILINE)
_MEMORY = ("bytes", "shm")
_FILE = "file"
_KNOWN_DIGESTS: dict[tuple[str, int, int, int, int], str] = {}
"""Digests of files that this process has read, by path, inode, size, and the times when bytes and state were changed
last. A program can set the first of these times, and not the second."""
_MOST_KNOWN_DIGESTS = 100_000
"""Digests of unchanged files that are remembered."""


def store_place(given: str = "") -> str:
    """Return where the store is: the given directory or address, that of ``DROPFLOW_STORE``, or the user's cache."""
    place = given or os.environ.get(DIRECTORY_VARIABLE, "")
    if "://" in place:
        return place
    return str(Path(place).expanduser().absolute()) if place else platformdirs.user_cache_dir("dropflow")


def key_of(*parts: object) -> str:
    """Return the digest of values that can be written as MessagePack, as 32 hexadecimal digits."""
    return hashlib.blake2b(msgspec.msgpack.encode(parts, order="deterministic"), digest_size=16).hexdigest()


class StoredContent(msgspec.Struct, frozen=True, array_like=True):
    """A content in the store.

    Attributes
    ----------
    kind : str
        ``null`` for a drop to which nothing was written; ``bytes``; ``file``; or ``directory``, whose content is a list
        of what is in it.
    body : bytes
        The content itself if it is small; otherwise it is in a file of the store.
    executable : bool
        Whether its owner can execute the file.
    """

    kind: str
    digest: str = ""
    size: int = 0
    text: bool = False
    body: bytes = b""
    executable: bool = False

    @property
    def input_digest(self) -> str:
        """The result of `digest_of` for it where it is an input."""
        return _executable(self.digest) if self.executable else self.digest

    @property
    def is_apart(self) -> bool:
        """Whether it is in a file of the store, and not in the record."""
        return self.kind != "null" and self.size > len(self.body)


class Record(msgspec.Struct, frozen=True, array_like=True):
    """The outputs of an application, where and when it wrote them, and the parts of its key.

    Attributes
    ----------
    keys : tuple of str
        Its keys: from the contents of its inputs, and from what these are made from.
    outputs : tuple of StoredContent
        In the order of its outputs.
    skipped : tuple of int
        Places of the outputs that it chose to skip.
    parts : tuple of KeyPart
        The parts of its key.
    name : str
        Under which the store has the last record of the drop, from `dropflow.reuse.attempt.drop_name`.
    session, host : str
        Where it ran.
    ended, seconds : float
        When it ended, in seconds since the epoch, and how long it took.
    """

    keys: tuple[str, ...]
    outputs: tuple[StoredContent, ...]
    skipped: tuple[int, ...]
    parts: tuple[KeyPart, ...]
    name: str
    session: str
    host: str
    ended: float
    seconds: float


class _Entry(NamedTuple):
    """An entry of a directory: whether it is executable or where a link leads, and a digest of a file.

    For a link out of the directory, `behind` is a digest of its target.
    """

    path: str
    kind: str
    target: str
    size: int
    behind: str = ""


class StoreUse(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a store, or changes to it by a command. Sizes are in bytes."""

    records: int = 0
    contents: int = 0
    size: int = 0
    removed_records: int = 0
    removed_contents: int = 0
    removed_size: int = 0
    damaged: tuple[str, ...] = ()


class ResultStore:
    """The store at one place, a directory or an address. Any number of threads, processes and hosts may use it.

    Raises
    ------
    BadParameterError, MissingDependencyError
        fsspec does not know the protocol of the address, or its package is not installed.
    StorageError
        The directory cannot be made, or other users can write to it.
    """

    def __init__(self, place: str | Path) -> None:
        self.where = str(place)
        self._remote: RemoteResultStore | None = None
        directory = Path(place)
        self._limit = _limit_of_user()
        if "://" in self.where:
            from dropflow.reuse import remote_result_store  # noqa: PLC0415 - most stores are directories

            self._remote = remote_result_store.RemoteResultStore(self.where)
            directory = Path(platformdirs.user_cache_dir("dropflow"), "copies", key_of(self._remote.address))
        self.directory = private_directory(directory)
        self._shared: set[str] = set()
        """Contents that are at the address."""
        is_shared = self.where != platformdirs.user_cache_dir("dropflow")
        cluster = _cluster_secret() if is_shared else b""
        self._secrets = (cluster, _user_key()) if cluster else (_user_key(),)
        """The first one signs what is written here; what any of them has signed is used."""
        for name in ("contents", "records", "drops", "tmp"):
            with storage_errors("make the directory", self.directory / name):
                (self.directory / name).mkdir(mode=0o700, exist_ok=True)

    def check(self) -> None:
        """Raise if the address of the store cannot be written.

        Raises
        ------
        StorageError
            It cannot.
        """
        if self._remote is not None:
            name = secrets.token_hex(16)
            part = self._part()
            with storage_errors("write", part):
                self._write(part, b"")
            self._remote.put("tmp", name, part)
            self._remote.remove("tmp", name)
            _remove(part)

    # Records.

    def find(self, key: str, *, last: bool = False, is_use: bool = True) -> Record | None:
        """Return the record of a key, or with `last` the last record of a drop; None if there is none of this user.

        It counts as used now, if it `is_use`.
        """
        kind = "drops" if last else "records"
        path = self._path(kind, key)
        there = _read_record(path)
        if there is None and self._fetch(kind, key):
            there = _read_record(path)
        if there is None:
            return None
        signed, changed = there
        body = signed[_MAC_BYTES:]
        if not any(hmac.compare_digest(signed[:_MAC_BYTES], _mac(body, secret)) for secret in self._secrets):
            return None
        try:
            record = msgspec.msgpack.decode(body, type=Record)
        except msgspec.DecodeError:  # written by another version
            return None
        if key != record.name if last else key not in record.keys:
            return None  # a file with another name
        if is_use and not last and changed < SystemClock().now() - _GRACE_SECONDS:
            with suppress(OSError):
                os.utime(path)
        return record

    def add(self, record: Record) -> None:
        """Write a record under its keys, and as the last one of its drop.

        Raises
        ------
        StorageError
            It cannot be written.
        """
        body = msgspec.msgpack.encode(record)
        paths = [*(self._path("records", key) for key in record.keys if key), self._path("drops", record.name)]
        part = self._part()
        with storage_errors("write", part):
            try:
                with open(part, "wb", opener=private_opener) as stream:
                    stream.write(_mac(body, self._secrets[0]) + body)
                # One file with several names: to make a file takes longer than to give it a name.
                for path in paths[1:]:
                    self._name_too(part, path)
                self._rename(part, paths[0])
            except OSError:
                _remove(part)
                raise
        if self._remote is not None:
            for path in paths:
                kind, _, name = path.split("/")[-3:]
                self._remote.put(kind, name, path)

    def _name_too(self, part: str, path: str) -> None:
        """Give a file another name, in place of a file that has it."""
        try:
            os.link(part, path)
        except FileExistsError:
            beside = self._part()
            os.link(part, beside)
            self._rename(beside, path)
        except OSError:  # there is no directory for it, or the file system has no links
            beside = self._part()
            shutil.copyfile(part, beside)
            self._rename(beside, path)

    # Contents.

    def keep(self, handle: Handle, *, linked: bool = True) -> StoredContent:
        """Put a content into the store that nothing changes meanwhile; return how to get it back.

        Unless `linked`, the content may be changed later where it is, so that the store needs a copy.

        Raises
        ------
        DropflowError
            It cannot be read or written.
        """
        if handle.kind == "null" or (handle.kind in _MEMORY and not handle.size):
            return StoredContent("null", text=handle.text)
        if handle.kind == "directory":
            listing = _listed(handle.location, self._entries(handle.location, linked=linked))
            return StoredContent("directory", self.keep_bytes(listing), len(listing))
        digest = _content_digest(handle)
        if digest is None:
            raise StorageError(f"contents of the kind {handle.kind} cannot be stored", where=handle.location)
        kind = _FILE if handle.kind == _FILE else "bytes"
        body = b""
        if handle.size <= _INLINE:
            body = bytes(view(handle))
        elif handle.kind == _FILE:
            self._keep_file(handle.location, digest, handle.size, linked=linked)
        else:
            self.keep_bytes(view(handle))
        return StoredContent(kind, digest, handle.size, handle.text, body, _is_executable(handle))

    def keep_bytes(self, content: bytes | memoryview) -> str:
        """Put bytes into the store; return their digest."""
        digest = _digest(content)
        path = self._path("contents", digest)
        if not self._has_here(digest, len(content), checked=False):
            with storage_errors("write", path):
                self._write(path, content)
        self._share(digest, len(content))
        return digest

    def read(self, digest: str) -> bytes | None:
        """Return a content of the store; None if it is not there, or damaged."""
        path = self._path("contents", digest)
        self._bring(digest)
        try:
            with open_file(path) as stream:
                content = stream.read()
        except OSError:
            return None
        return content if self._is_whole(path, _digest(content) == digest) else None

    def is_there(self, content: StoredContent, *, checked: bool = True) -> bool:
        """Return whether a content is available; unless `checked`, whether it seems so by its name and size."""
        if not content.is_apart:
            return content.kind == "null" or _digest(content.body) == content.digest
        if content.kind == "directory":
            listing = self._listing(content)
            return listing is not None and all(
                self._has(entry.target, entry.size, checked=checked) for entry in listing if entry.kind in "fx"
            )
        return self._has(content.digest, content.size, checked=checked)

    def _has(self, digest: str, size: int, *, checked: bool) -> bool:
        if checked:
            self._bring(digest)
        elif self._is_away(digest):
            with suppress(StorageError):
                return self._remote is not None and self._remote.size("contents", digest) == size
        return self._has_here(digest, size, checked=checked)

    def _has_here(self, digest: str, size: int, *, checked: bool) -> bool:
        path = self._path("contents", digest)
        try:
            actual = os.stat(path).st_size  # noqa: PTH116 - text
            return self._is_whole(path, actual == size and (not checked or _file_digest(path) == digest))
        except OSError:
            return False

    def body(self, content: StoredContent) -> bytes:
        """Return the bytes of a content that is not a directory.

        Raises
        ------
        StorageError
            It is gone or damaged.
        """
        stored = self.read(content.digest) if content.is_apart else content.body
        if stored is None:
            raise _gone(content.digest)
        return stored

    def place(self, content: StoredContent, path: str, *, linked: bool = True) -> None:
        """Make a file or directory with a content, which `is_there`, at a path where nothing is.

        Parameters
        ----------
        linked : bool
            Whether a file may be the same one as in the store, if the file system cannot copy it on write.

        Raises
        ------
        StorageError
            It is gone, or cannot be written.
        """
        with storage_errors("write", path):
            if content.kind != "directory":
                self._place_file(content, path, linked=linked)
                return
            listing = self._listing(content)
            if listing is None:
                raise _gone(content.digest)
            Path(path).mkdir(parents=True, exist_ok=True)
            for entry in listing:
                inner = f"{path}/{entry.path}"
                if entry.kind == "d":
                    os.mkdir(inner)  # noqa: PTH102 - text, as everywhere here
                elif entry.kind == "l":
                    os.symlink(entry.target, inner)  # noqa: PTH211
                else:
                    # A link would have the mode in the store, and in all other sessions, too.
                    self._copy(self._path("contents", entry.target), inner, linked=linked and entry.kind != "x")
                    if entry.kind == "x":
                        _make_executable(inner)

    def _place_file(self, content: StoredContent, path: str, *, linked: bool) -> None:
        if content.is_apart:
            self._copy(self._path("contents", content.digest), path, linked=linked and not content.executable)
        else:
            Path(path).write_bytes(content.body)
        if content.executable:
            _make_executable(path)

    def _copy(self, source: str, target: str, *, linked: bool) -> None:
        self._bring(source.rpartition("/")[2])
        try:
            _copy(source, target, linked=linked)
        except FileNotFoundError as error:
            raise _gone(source.rpartition("/")[2]) from error

    def _listing(self, content: StoredContent) -> list[_Entry] | None:
        listing = self.read(content.digest)
        return None if listing is None else msgspec.msgpack.decode(listing, type=list[_Entry])

    def _entries(self, folder: str, *, linked: bool) -> Iterator[_Entry]:
        for path, entry in _walk(folder):
            if entry.kind in "fx":
                self._keep_file(path, entry.target, entry.size, linked=linked)
            yield entry

    def _keep_file(self, location: str, digest: str, size: int, *, linked: bool) -> None:
        path = self._path("contents", digest)
        if not self._has_here(digest, size, checked=False):
            with storage_errors("write", path):
                part = self._part()
                try:
                    _copy(location, part, linked=linked)
                    self._rename(part, path)
                    _KNOWN_DIGESTS[_version_of(location)] = digest  # a link changes the time
                finally:
                    _remove(part)  # of two names of one file, a rename removes none
        self._share(digest, size)

    # What is at the address.

    def _bring(self, digest: str) -> None:
        """Bring a content here, if there is one at the address."""
        if self._is_away(digest):
            self._fetch("contents", digest)

    def _is_away(self, digest: str) -> bool:
        """Return whether only the address may have a content."""
        return self._remote is not None and not os.path.exists(self._path("contents", digest))  # noqa: PTH110 - text

    def _fetch(self, kind: str, name: str) -> bool:
        """Copy a file from the address to this host; return whether it was there."""
        if self._remote is None:
            return False
        path = self._path(kind, name)
        try:
            with storage_errors("write", path):
                make_directories(Path(path).parent)
                return self._remote.fetch(kind, name, path)
        except StorageError as error:
            _log.warning("a result is not taken: %s", error.text)
            return False

    def _share(self, digest: str, size: int) -> None:
        """Put a content at the address."""
        if self._remote is None or digest in self._shared:
            return
        if self._remote.size("contents", digest) != size:
            self._remote.put("contents", digest, self._path("contents", digest))
        self._shared.add(digest)

    def _is_whole(self, path: str, is_whole: bool) -> bool:  # noqa: FBT001 - the only argument beside the path
        """Return `is_whole`; remove a damaged content here, and at the address if it is damaged there."""
        if not is_whole:
            digest = path.rpartition("/")[2]
            _remove(path)
            self._shared.discard(digest)
            if self._remote is not None:
                with suppress(StorageError):
                    if self._remote.digest(digest) != digest:
                        self._remote.remove("contents", digest)
        return is_whole

    def _path(self, kind: str, name: str) -> str:
        return f"{self.directory}/{kind}/{name[:2]}/{name}"

    def _part(self) -> str:
        return f"{self.directory}/tmp/{secrets.token_hex(12)}"  # noqa: S108 - our own tmp

    def _write(self, path: str, content: bytes | memoryview) -> None:
        part = self._part()
        try:
            with open(part, "wb", opener=private_opener) as stream:
                stream.write(content)
            self._rename(part, path)
        except OSError:
            _remove(part)
            raise

    @staticmethod
    def _rename(part: str, path: str) -> None:
        try:
            os.replace(part, path)  # noqa: PTH105
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
            os.replace(part, path)  # noqa: PTH105

    # The store as a whole.

    def use(self) -> StoreUse:
        """Return how much is in it: at the address, if it has one.

        Raises
        ------
        StorageError
            The address cannot be reached.
        """
        return self._use_here() if self._remote is None else _use_of(self._remote.files())

    def _use_here(self) -> StoreUse:
        contents, records = list(_files(self.directory / "contents")), list(_files(self.directory / "records"))
        size = sum(status.st_size for _, status in (*contents, *records))
        return StoreUse(records=len(records), contents=len(contents), size=size)

    def verify(self) -> StoreUse:
        """Read all contents, and remove those that are damaged. Raises as `use`."""
        damaged = []
        for path, _ in _files(self.directory / "contents"):
            digest = path.rpartition("/")[2]
            try:
                is_whole = _file_digest(path) == digest
            except OSError:
                continue  # removed meanwhile
            if not self._is_whole(path, is_whole):
                damaged.append(digest)
        for file in [] if self._remote is None else self._remote.files():
            if file.kind == "contents" and self._remote is not None and self._remote.digest(file.name) != file.name:
                self._remote.remove(file.kind, file.name)
                damaged.append(file.name)
        return msgspec.structs.replace(self.use(), damaged=tuple(damaged), removed_contents=len(damaged))

    def prune(self, limit: int) -> StoreUse:
        """Remove the records that were not used for longest, and contents that no record has, down to `limit` bytes.

        At an address, what was written first is removed, as stores do not tell when a file was read. Raises as `use`.
        """
        here = self._prune_here(limit)
        return here if self._remote is None else _prune_at(self._remote, limit)

    def _prune_here(self, limit: int, *, keeps_young: bool = False) -> StoreUse:
        before = self._use_here()
        sizes = {path.rpartition("/")[2]: status.st_size for path, status in _files(self.directory / "contents")}
        kept: set[str] = set()
        total = removed = 0
        for folder in ("records", "drops"):
            is_full = False
            for path, status in sorted(_files(self.directory / folder), key=lambda file: -file[1].st_mtime):
                new = self._contents_of(path, sources=folder == "drops") - kept
                size = status.st_size + sum(sizes.get(digest, 0) for digest in new)
                # What is larger than the limit by itself does not drive out the others.
                is_full = is_full or limit - total < size <= limit
                if is_full or size > limit:
                    is_removed = _remove(path)
                    removed += is_removed and folder == "records"
                    continue
                total += size
                kept |= new
        young = SystemClock().now() - _GRACE_SECONDS
        for path, status in list(_files(self.directory / "contents")):
            if path.rpartition("/")[2] in kept:
                continue
            if status.st_ctime < young or (total + status.st_size > limit and not keeps_young):
                _remove(path)
            else:
                total += status.st_size
        for path, status in list(_files(self.directory / "tmp")):
            if status.st_ctime < young:
                _remove(path)
        after = self._use_here()
        return msgspec.structs.replace(
            after,
            removed_records=removed,
            removed_contents=before.contents - after.contents,
            removed_size=max(before.size - after.size, 0),
        )

    def prune_if_due(self) -> None:
        """Remove what is above the limit, at most once in an hour; never raises."""
        stamp = self.directory / "pruned"
        with suppress(OSError, DropflowError):
            is_new = not stamp.exists()
            # If the clock was set back, the stamp may be in the future.
            if not is_new and abs(SystemClock().now() - stamp.stat().st_mtime) < _GRACE_SECONDS:
                return
            with open(stamp, "wb", opener=private_opener):
                pass
            if is_new:
                return
            self._prune_here(self._limit, keeps_young=True)

    def _contents_of(self, path: str, *, sources: bool = False) -> set[str]:
        """Return the digests of the contents that a record has, and of the sources that its key was made from."""
        record = self.find(path.rpartition("/")[2], last="/drops/" in path, is_use=False)
        if record is None:
            return set()
        digests = {part.detail for part in record.parts if part.detail}
        for content in () if sources else record.outputs:
            if content.is_apart:
                digests.add(content.digest)
            if content.kind == "directory":
                digests |= {entry.target for entry in self._listing(content) or () if entry.kind in "fx"}
        return digests


def _limit_of_user() -> int:
    """Return how large the store may become, in bytes.

    Raises
    ------
    UsageError
        The variable for it has no size.
    """
    text = os.environ.get(LIMIT_VARIABLE, "")
    size = quantity(text, MEMORY) if text else DEFAULT_LIMIT_BYTES
    if size is None or not 0 <= size < inf:
        hint = "give a number of bytes, or a text such as 20 GiB"
        raise UsageError(f"{text!r} is not a size", where=LIMIT_VARIABLE, hint=hint)
    return int(size)


def _use_of(files: Sequence["RemoteFile"]) -> StoreUse:
    counts = Counter(file.kind for file in files)
    size = sum(file.size for file in files if file.kind != "drops")
    return StoreUse(records=counts["records"], contents=counts["contents"], size=size)


def _prune_at(remote: "RemoteResultStore", limit: int) -> StoreUse:
    files = remote.files()
    total = sum(file.size for file in files)
    removed: set[RemoteFile] = set()
    for file in files:
        if total <= limit:
            break
        remote.remove(file.kind, file.name)
        removed.add(file)
        total -= file.size
    gone = _use_of([*removed])
    return msgspec.structs.replace(
        _use_of([file for file in files if file not in removed]),
        removed_records=gone.records,
        removed_contents=gone.contents,
        removed_size=gone.size,
    )


def _read_record(path: str) -> tuple[bytes, float] | None:
    """Return a record, and when it was used last; None if it is not there."""
    try:
        # Once for each application: `open` takes twice as long.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        return os.read(descriptor, status.st_size), status.st_mtime
    except OSError:
        return None
    finally:
        os.close(descriptor)


# Digests of contents.


def digest_of(handle: Handle) -> str | None:
    """Return the digest of a content, and of an executable file another one; None for open streams and URLs.

    Raises
    ------
    DropflowError
        It cannot be read.
    """
    digest = _content_digest(handle)
    return _executable(digest) if digest and _is_executable(handle) else digest


def _content_digest(handle: Handle) -> str | None:
    if handle.kind in ("null", "bytes"):
        return _digest(handle.body)
    if handle.kind == "directory":
        with storage_errors("read", handle.location):
            return _digest(_listed(handle.location, (entry for _, entry in _walk(handle.location))))
    if handle.kind not in (_FILE, "shm"):
        return None
    with storage_errors("read", handle.location):
        return _file_digest(handle.location)


def _executable(digest: str) -> str:
    return key_of("executable", digest)


def _is_executable(handle: Handle) -> bool:
    with storage_errors("read", handle.location):
        return handle.kind == _FILE and bool(os.stat(handle.location).st_mode & stat.S_IXUSR)  # noqa: PTH116


def _digest(content: bytes | memoryview) -> str:
    digester = content_digest()
    digester.update(content)
    return digester.hexdigest()


def _version_of(path: str) -> tuple[str, int, int, int, int]:
    status = os.stat(path)  # noqa: PTH116 - text
    return path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _file_digest(path: str) -> str:
    key = _version_of(path)
    digest = _KNOWN_DIGESTS.get(key)
    if digest is None:
        with open_file(path) as stream:
            computed = hashlib.file_digest(stream, content_digest).hexdigest()
        if len(_KNOWN_DIGESTS) >= _MOST_KNOWN_DIGESTS:
            _KNOWN_DIGESTS.clear()
        digest = _KNOWN_DIGESTS[key] = computed
    return digest


def _listed(folder: str, entries: Iterator[_Entry]) -> bytes:
    try:
        return msgspec.msgpack.encode(list(entries))
    except UnicodeEncodeError as error:
        raise StorageError(
            f"{folder} has the name {error.object!a}, which is not UTF-8",
            hint="rename it: a directory with such names is not stored for later runs",
        ) from error


def _walk(folder: str, known: dict[str, str] | None = None) -> Iterator[tuple[str, _Entry]]:
    """Yield what is below a directory, in order: paths, and entries whose paths are relative to it.

    `known` has the digests of what links out of the directory lead to.
    """
    root = os.path.realpath(folder)
    known = {root: ""} if known is None else known
    for inner, path, status in below(folder):
        if stat.S_ISLNK(status.st_mode):
            yield path, _Entry(inner, "l", os.readlink(path), 0, _behind(path, root, known))  # noqa: PTH115
        elif stat.S_ISDIR(status.st_mode):
            yield path, _Entry(inner, "d", "", 0)
        else:
            kind = "x" if status.st_mode & stat.S_IXUSR else "f"
            yield path, _Entry(inner, kind, _file_digest(path), status.st_size)


def _behind(link: str, root: str, known: dict[str, str]) -> str:
    """Return a digest of what a link leads to; empty if that is in the directory `root` or around it, or not readable.

    Programs follow links, so that the name alone does not tell what they read.
    """
    target = os.path.realpath(link)
    if os.path.commonpath((target, root)) in (target, root) or not os.access(target, os.R_OK):
        return ""
    if target not in known:
        known[target] = ""  # if links lead back to it
        if os.path.isdir(target):  # noqa: PTH112 - text
            known[target] = _digest(_listed(target, (entry for _, entry in _walk(target, known))))
        elif os.path.isfile(target):  # noqa: PTH113 - text
            known[target] = digest_of(Handle(kind=_FILE, location=target)) or ""
    return known[target]


# Files.


def _copy(source: str, target: str, *, linked: bool) -> None:
    """Make a file with the content of another one: sharing its blocks, else as the same file, else by copying."""
    with open(source, "rb") as reader, open(target, "xb") as writer:  # noqa: PTH123
        if shares_blocks(writer.fileno(), reader.fileno()):
            return
        if not linked:
            shutil.copyfileobj(reader, writer, _BLOCK_BYTES)
            return
    os.unlink(target)  # noqa: PTH108
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise
        shutil.copyfile(source, target)


def _make_executable(path: str) -> None:
    """Let those execute a file who may read it: what a new file may be to others is the choice of this user."""
    mode = os.stat(path).st_mode  # noqa: PTH116
    os.chmod(path, mode | (mode & 0o444) >> 2)  # noqa: PTH101


def _remove(path: str) -> bool:
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:
        return False
    return True


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                yield f"{place}/{name}", os.lstat(f"{place}/{name}")


def _gone(digest: str) -> StorageError:
    return StorageError(
        f"the content {digest} of the result store is gone or damaged",
        hint="run it again: it is computed, and stored again; 'dropflow cache verify' looks for others",
    )


def _mac(body: bytes, secret: bytes) -> bytes:
    return hashlib.blake2b(body, key=secret, digest_size=_MAC_BYTES).digest()


def _cluster_secret() -> bytes:
    """Return a key that is derived from the cluster key of this host; empty if there is none."""
    given = os.environ.get("DROPFLOW_KEY")
    path = Path(given) if given else default_key_file()
    try:
        with path.open("rb") as file:
            is_private = not os.fstat(file.fileno()).st_mode & 0o077
            match = _CLUSTER_SECRET.search(file.read(_INLINE)) if is_private else None
    except OSError:
        return b""
    return hmac.new(match[1], b"dropflow results 1", hashlib.sha256).digest() if match else b""


def _write_key(path: Path) -> None:
    with open(path, "wb", opener=private_opener) as stream:
        stream.write(secrets.token_bytes(_MAC_BYTES))


def _user_key() -> bytes:
    """Return the key by which the records of this user are known; it is made when it is first needed."""
    path = private_directory(Path(platformdirs.user_config_dir("dropflow"))) / "results.key"
    with storage_errors("make the key of the store", path):
        if not path.exists():
            make_once(path, _write_key)
    with storage_errors("read the key of the store", path):
        return path.read_bytes()
