"""Contents at URLs, outside of this machine: objects in buckets, pages of web servers, files in archives, tables.

The location of such a content is its URL. If options are needed to reach it, such as the address of the server, they
follow as JSON after the last ``#``. Neither has secrets, because graphs, journals and pages show them: each host has
its credentials in its environment, or where the libraries of the store look for them.

fsspec reaches most stores. The protocols of `_SERVICES` have modules of their own.

A content is written under a temporary name beside its final one, and is renamed when it is committed. Readers compare
what they read with the size and checksum of the time when it was written.
"""

import contextlib
import importlib
import io
import json
import logging
import os
import secrets
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from dropflow.data.storage_errors import storage_errors
from dropflow.data.workspace import BESIDE
from dropflow.errors import (
    BadFileError,
    BadParameterError,
    DropflowError,
    MissingDependencyError,
    StorageError,
    optional_package,
)
from dropflow.execution.content_location import Handle
from dropflow.failure import summary_of
from dropflow.ids import safe_name

COMMIT_SECONDS = 100.0
"""Seconds that a store may take to rename or remove one content: the session waits meanwhile."""

_BLOCK_BYTES = 1 << 20
"""Bytes that are read at once from a content at a URL."""
_COMPARED = 1 << 18
"""Bytes of a file that are compared at a time, in one buffer that stays in a processor's cache."""
_URL_TOKEN_BYTES = 8
"""Random bytes in the name of an uncommitted content beside its URL."""
_HINT = "see that this host reaches it, and has the credentials, in the environment or where the store's library looks"
_ABSENT = (404, 410)
"""Statuses of web servers that say that nothing is there (RFC 9110, 15.5)."""
_LOCKED_HINT = "another program locks the table: end it, or raise 'lock_timeout' of the node; then try again"
_LOCKED = ("database is locked", "lock timeout")
"""Parts of the errors of SQLite and PostgreSQL about a table that is locked."""
_SECRETS = ("password", "secret", "token", "credential", "key")
"""Parts of the names of options that have secrets."""
_INNER_SECRETS = ("password", "secret", "token", "credential", "authorization")
"""The same within an option: there, a key may be the name of one, as in ``SSEKMSKeyId``."""

_log = logging.getLogger(__name__)

T = TypeVar("T")
_SERVICES: Mapping[str, str] = {"ngas": "dropflow.data.ngas", "rdbms": "dropflow.data.database"}
"""The modules whose `SERVICE` has a protocol of its own."""
CHANGE_TIMES = ("mtime", "modified", "last_modified", "LastModified", "Last-Modified", "modify")
"""Names of the time of the last change in file systems of fsspec."""


class RemoteService(Protocol):
    """The operations on contents of one protocol. Each method takes locations, and may raise anything."""

    is_exact: bool
    """Whether the bytes that are read are those that were written."""

    def check(self, url: str) -> None:
        """Raise a `DropflowError` if the URL is not valid, or a package for it is missing. Reaches nothing."""
        ...

    def size(self, location: str) -> int:
        """Return the bytes of a content; 0 if the store does not tell. Raises FileNotFoundError if there is none."""
        ...

    def open(self, location: str) -> BinaryIO:
        """Return a stream over a content."""
        ...

    def put(self, path: str, location: str) -> None:
        """Write a file there."""
        ...

    def version(self, location: str, *, trust_times: bool) -> Sequence[str]:
        """Return what differs after each change of a content, as its store promises; nothing if it does not."""
        ...

    def rename(self, part: str, final: str) -> None:
        """Make what was written at `part` the content at `final`."""
        ...

    def remove(self, location: str) -> None:
        """Remove a content. Raises FileNotFoundError if there is none."""
        ...


# Locations.


def location_of(url: str, options: Mapping[str, Any]) -> str:
    """Return the location of a content.

    Parameters
    ----------
    url : str
        Where it is.
    options : mapping of str to object
        How to reach it; without secrets.

    Raises
    ------
    BadParameterError
        There is a password in the URL, or an option that has a secret by its name.

    Examples
    --------
    >>> location_of("s3://bucket/name", {"endpoint_url": "http://localhost:9000"})
    's3://bucket/name#{"endpoint_url":"http://localhost:9000"}'
    """
    hint = "remove it from the graph: each host takes credentials from its environment, or from files such as "
    hint += "~/.aws/credentials and ~/.pgpass"
    try:
        password = urlsplit(url).password
    except ValueError as error:
        raise BadParameterError(f"the URL {url!r} cannot be read: {error}", hint="correct the address") from error
    if password is not None:
        raise BadParameterError(f"there is a password in the URL of {url.rpartition('@')[2]}", hint=hint)
    secret = next(_secrets_in(options), None)
    if secret is not None:
        raise BadParameterError(f"the option '{secret}' of {url} is a secret", hint=hint)
    if not options and "#" not in url:
        return url
    # The last "#" is the one before the options.
    return f"{url}#{json.dumps(dict(options), separators=(',', ':')).replace('#', chr(92) + 'u0023')}"


def _secrets_in(options: Mapping[str, Any], *, parts: Sequence[str] = _SECRETS) -> Iterator[str]:
    """Yield the names of options that have secrets, or name one of the host, which stores do not look up."""
    for name, value in options.items():
        if value and (any(part in name.lower() for part in parts) or str(value).startswith("secret:")):
            yield name
        elif isinstance(value, Mapping):
            yield from _secrets_in(value, parts=_INNER_SECRETS)


def split_location(location: str) -> tuple[str, dict[str, Any]]:
    """Return the URL and the options of a location."""
    url, separator, options = location.rpartition("#")
    return (url, json.loads(options)) if separator else (location, {})


def beside(final: str, session: str) -> str:
    """Return a new location beside another one, for what a session has not committed."""
    url, options = split_location(final)
    parent, _, name = url.rpartition("/")
    return location_of(f"{parent}/{BESIDE}{safe_name(session)}-{secrets.token_hex(_URL_TOKEN_BYTES)}-{name}", options)


def url_of(location: str) -> str:
    """Return the URL of a location."""
    return split_location(location)[0]


# Access, with errors that name the URL.


def check_url(url: str) -> None:
    """Raise if there can be no content at a URL. Reaches nothing.

    Raises
    ------
    BadParameterError
        It has no protocol, or one that fsspec does not know.
    MissingDependencyError
        fsspec, or its package for the protocol, is not installed.
    """
    protocol, separator, rest = url.partition("://")
    if not (protocol and separator and rest):
        raise BadParameterError(f"{url!r} is not the URL of a store", hint="give one such as s3://bucket/name")
    _service(url).check(url)


def reach(url: str, what: str, action: Callable[[], T], *, seconds: float = 0.0) -> T:
    """Return what an action on a content gives.

    Parameters
    ----------
    url : str
        For the error.
    what : str
        What could not be done if the action fails, such as "read".
    action : callable
        It may raise anything.
    seconds : float
        After how long to give up, as the libraries of stores have limits of minutes, or none; 0 for never. The action
        then runs in another thread, which goes on.

    Raises
    ------
    StorageError
        The action failed.
    DropflowError
        As the action raised it.
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(action())
        except BaseException as error:  # noqa: BLE001 - it is raised below
            answer.set_exception(error)

    try:
        if not seconds:
            return action()
        threading.Thread(target=run, name="store", daemon=True).start()
        return answer.result(seconds)
    except DropflowError:
        raise
    except Exception as error:
        gave_up = bool(seconds) and not answer.done()
        reason = f"the store did not answer in {seconds:g} s" if gave_up else summary_of(error).partition("\n")[0]
        hint = _LOCKED_HINT if any(text in reason for text in _LOCKED) else _HINT
        raise StorageError(f"{url_of(url)} cannot be {what}: {reason}", hint=hint) from error


def existing(location: str, node: str) -> Handle:
    """Return a handle for what is at a location already.

    Parameters
    ----------
    location : str
        Path or URL of the content.
    node : str
        Name of the node in the graph.

    Raises
    ------
    BadFileError
        There is nothing.
    StorageError
        It cannot be reached.
    """

    def measure() -> int:
        try:
            return _service(location).size(location)
        except FileNotFoundError as error:
            cause = error.__cause__  # fsspec says for any answer of a web server that there is no file
            if cause is not None and location.startswith("http") and getattr(cause, "status", 0) not in _ABSENT:
                raise cause from None
            raise BadFileError(
                f"there is nothing at {url_of(location)}, and no application of the graph writes it",
                where=node,
                hint=f"put it there, or correct the fields of node '{node}'",
            ) from error

    return Handle(kind="url", location=location, size=reach(location, "found", measure))


def store_version(location: str, *, trust_times: bool = False) -> Sequence[str]:
    """Return what differs after each change of a content, without reading it; nothing if its store promises nothing.

    Parameters
    ----------
    location : str
        Path or URL of the content.
    trust_times : bool
        Whether its size and the time of its last change do, where the store has nothing better.

    Raises
    ------
    StorageError
        It cannot be reached, or there is nothing.
    """
    return reach(location, "found", lambda: _service(location).version(location, trust_times=trust_times))


def known_checksum(handle: Handle) -> int | None:
    """Return the CRC-32 of the bytes that are read from a content; None if it has none, or its store gives others."""
    is_exact = handle.kind != "url" or _service(handle.location).is_exact
    return (handle.checksum or None) if is_exact else None


def open_remote(handle: Handle) -> BinaryIO:
    """Return a stream over a content, which cannot seek. It fails at the end if the content is not as it was committed.

    Raises
    ------
    StorageError
        It cannot be opened. Reading raises it, too.
    """
    location = handle.location
    source = reach(location, "read", lambda: _service(location).open(location))
    return cast(BinaryIO, io.BufferedReader(_ComparedStream(source, handle), _BLOCK_BYTES))


def download(handle: Handle, path: Path) -> None:
    """Write a content to a new file.

    Raises
    ------
    StorageError
        It cannot be read, is not as it was committed, or the file cannot be written.
    """
    if _service(handle.location) is not _FSSPEC:
        _copy_stream(handle, path, "xb")
        return
    # In one request: a stream asks for the size first, which takes as long as the content if that is small.
    with storage_errors("write", path):
        path.open("xb").close()
    system, there = file_system(handle.location)
    try:
        reach(handle.location, "read", lambda: system.get_file(there, str(path)))
    except StorageError as problem:
        if isinstance(problem.__cause__, FileNotFoundError | PermissionError):
            raise
        # s3fs reads several parts of a large object at a time, and gives up when one connection breaks. Its streams
        # continue where they broke off.
        _log.warning("%s: it is read as a stream", problem)
        _copy_stream(handle, path, "wb")
        return
    with storage_errors("read", path), path.open("rb", buffering=0) as copy:
        size, checksum = os.fstat(copy.fileno()).st_size, 0
        if handle.checksum:  # read after the download: stores send the parts of large contents in any order
            buffer = memoryview(bytearray(_COMPARED))
            while count := copy.readinto(buffer):
                checksum = zlib.crc32(buffer[:count], checksum)
    _compare(handle, size, checksum)


def _copy_stream(handle: Handle, path: Path, mode: str) -> None:
    """Write a content, which is compared on the way, to a file."""
    with open_remote(handle) as source, storage_errors("write", path), open(path, mode) as target:  # noqa: PTH123 - bytes
        while block := source.read(_BLOCK_BYTES):
            target.write(block)


def upload(path: str, part: str, final: str) -> None:
    """Write a file to a location, from which `commit_remote` brings it to the final one.

    Raises
    ------
    StorageError
        The store does not take it.
    """
    reach(final, "written", lambda: _service(part).put(path, part))


def commit_remote(part: str, final: str) -> None:
    """Make what was written at one location the content of another one.

    Raises
    ------
    StorageError
        The store does not do it, or does not answer.
    """
    reach(final, "committed", lambda: _service(final).rename(part, final), seconds=COMMIT_SECONDS)


def remove_remote(locations: Iterable[str]) -> None:
    """Remove what is at the locations; never raises. What cannot be removed is left, with a warning in the log."""
    given = list(locations)

    def remove(location: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            _service(location).remove(location)

    def remove_each() -> None:
        for location in given:
            with _warning():
                reach(location, "removed", partial(remove, location))

    with _warning():
        if given:
            reach(given[0], "removed", remove_each, seconds=COMMIT_SECONDS)


@contextlib.contextmanager
def _warning() -> Iterator[None]:
    """Log an error."""
    try:
        yield
    except DropflowError as error:
        _log.warning("uncommitted data may be left in a store: %s", error)


class _ComparedStream(io.RawIOBase):
    """Reads a content, and compares it at its end with its size and checksum."""

    def __init__(self, source: BinaryIO, handle: Handle) -> None:
        self._source = source
        self._handle = handle
        self._size = self._checksum = 0

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        block = reach(self._handle.location, "read", lambda: self._source.read(len(target)))
        target[: len(block)] = block
        self._size += len(block)
        self._checksum = zlib.crc32(block, self._checksum)
        if not block and len(target) and _service(self._handle.location).is_exact:
            _compare(self._handle, self._size, self._checksum)
        return len(block)

    def close(self) -> None:
        if not self.closed:
            with contextlib.suppress(Exception):  # nothing is written, and libraries raise anything
                self._source.close()
        super().close()


def _compare(handle: Handle, size: int, checksum: int) -> None:
    """Raise if what was read of a content is not what was committed."""
    if handle.size and size != handle.size:
        actual = f"{size} bytes where there were {handle.size}"
    elif handle.checksum and checksum != handle.checksum:
        actual = f"CRC-32 {checksum:08x} where {handle.checksum:08x} was written"
    else:
        return
    raise StorageError(
        f"{url_of(handle.location)} has {actual}", hint="it was changed since, or the connection ended too early"
    )


def _service(location: str) -> RemoteService:
    module = _SERVICES.get(location.partition(":")[0])
    if module is None:
        return _FSSPEC
    return cast(RemoteService, importlib.import_module(module).SERVICE)


# Stores that fsspec reaches.


class _Fsspec:
    """The `RemoteService` of all protocols of fsspec, which keeps the file systems that it has made."""

    is_exact = True

    def check(self, url: str) -> None:
        protocol = url.partition("://")[0]
        try:
            _fsspec().get_filesystem_class(protocol)
        except ImportError as error:
            raise MissingDependencyError(
                f"fsspec cannot use {protocol}:// yet: {summary_of(error)}",
                hint="install that package here and in the environment of the workers",
                of_host=True,
            ) from error
        except ValueError as error:
            hint = "give the URL of a store that all workers reach, such as s3://bucket/directory"
            raise BadParameterError(f"fsspec has no protocol {protocol!r} (in {url})", hint=hint) from error

    def size(self, location: str) -> int:
        system, path = file_system(location)
        info = system.info(path)
        if info["type"] == "directory":
            raise BadFileError(
                f"{url_of(location)} is a directory", hint="name one object: directories of stores are not supported"
            )
        return int(info["size"] or 0)

    def version(self, location: str, *, trust_times: bool) -> Sequence[str]:
        system, path = file_system(location)
        info = system.info(path)
        tag = str(info.get("ETag") or "")
        match location.partition("://")[0]:
            case "s3" | "s3a" if tag:
                return tag, str(info.get("VersionId") or "")
            case "http" | "https" if tag.startswith('"'):  # others are weak: the content may differ (RFC 9110, 8.8.1)
                return str(info.get("url") or ""), tag
        time = next((info[name] for name in CHANGE_TIMES if info.get(name)), None)
        return (str(info.get("size")), str(time)) if trust_times and time else ()

    def open(self, location: str) -> BinaryIO:
        system, path = file_system(location)
        return cast(BinaryIO, system.open(path, "rb"))

    def put(self, path: str, location: str) -> None:
        system, target = file_system(location)
        system.put_file(path, target)

    def rename(self, part: str, final: str) -> None:
        system, path = file_system(part)
        target = file_system(final)[1]
        if type(system).mv is _fsspec().AbstractFileSystem.mv:  # copies, and takes names with ? or * for patterns
            system.cp_file(path, target)
            system.rm_file(path)
        else:
            system.mv(path, target)

    def remove(self, location: str) -> None:
        system, path = file_system(location)
        system.rm_file(path)


_FSSPEC = _Fsspec()


def file_system(location: str) -> tuple[Any, str]:
    """Return the file system of fsspec for a location, and the path there.

    Raises
    ------
    Exception
        Anything that fsspec and its packages raise.
    """
    url, options = split_location(location)
    protocol = url.partition("://")[0]
    if protocol == "file":
        options = {"auto_mkdir": True, **options}
    elif protocol in ("s3", "s3a"):
        options = {"use_listings_cache": False, **options}  # other processes write there, too
    place: tuple[Any, str] = _fsspec().url_to_fs(url, **options)
    return place


def _fsspec() -> Any:
    return optional_package("fsspec", "contents at URLs need", "stores", of_host=True)
