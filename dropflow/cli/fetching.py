"""The bodies of ``dropflow log`` and ``dropflow fetch``. Nothing that a manager answers leads out of the directory."""

import secrets
import shutil
import sys
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from dropflow.cli.exits import Exit
from dropflow.cli.manager_replies import FetchedFile, FetchReply
from dropflow.cli.output import Output, OutputKind
from dropflow.cli.suggestion import suggestion
from dropflow.errors import BadFileError, DropflowError, MissingDependencyError, NotFoundError, StorageError
from dropflow.ids import drop_file_name, safe_name
from dropflow.rest.client import Client
from dropflow.rest.schema import Download, ResultInfo

__all__ = ["fetch_results", "print_log"]

_OUTSIDE = "outside"


class LogReply(msgspec.Struct, frozen=True, kw_only=True):
    """The log of one drop."""

    ok: bool = True
    session: str
    drop: str
    log: str

    def lines(self) -> Iterator[str]:
        """The log as it is."""
        yield from self.log.splitlines()


def print_log(output: Output, client: Client, session: str, drop: str) -> Exit:
    """Print a drop's log to standard output, piece by piece; as JSON in one piece."""
    download = client.log(session, drop)
    if output.kind is OutputKind.TABLE:
        for chunk in download.chunks:
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        return Exit.FINISHED
    text = b"".join(download.chunks).decode(errors="replace")
    output.answer(LogReply(session=session, drop=drop, log=text))
    return Exit.FINISHED


def fetch_results(output: Output, client: Client, session: str, drop: str | None, directory: str | None) -> Exit:
    """Bring all results of a session, or one drop, into a directory.

    Raises
    ------
    NotFoundError
        There is no such session, or no such drop.
    StorageError
        The directory cannot be written.
    """
    wanted = list(client.results(session)) if drop is None else [_one(client, session, drop)]
    root = Path(directory or safe_name(session, fallback="session")).absolute()
    files, missing = [], []
    try:
        root.mkdir(parents=True, exist_ok=True)
        for result, path in _named(wanted):
            try:
                download = client.data(session, result.oid)
                size = _store(download, root, path, is_directory=result.is_directory)
            except DropflowError as error:
                if isinstance(error, StorageError) and error.where.startswith(str(root)):
                    raise
                missing.append(f"{result.path} of {result.oid}: {error}")
                continue
            files.append(FetchedFile(drop=result.oid, node=result.node, path=str(path), size=size))
    except OSError as error:
        raise StorageError(f"results cannot be stored: {error.strerror}", where=str(root)) from error
    output.answer(
        FetchReply(ok=not missing, session=session, output=str(root), files=tuple(files), missing=tuple(missing))
    )
    return Exit.FAILED if missing else Exit.FINISHED


def _one(client: Client, session: str, drop: str) -> ResultInfo:
    """The drop as a result: under its path if it is one, else under its id."""
    detail = client.drop(session, drop)
    if detail.is_app:
        raise NotFoundError(
            f"{detail.oid} is an application, and has no content", hint=f"see {suggestion('log', session, detail.oid)}"
        )
    found = next((result for result in client.results(session) if result.oid == detail.oid), None)
    return found or ResultInfo(
        drop=detail.drop,
        oid=detail.oid,
        name=detail.name,
        node=detail.node,
        path=f"results/{drop_file_name(detail.oid)}",
        size=detail.size or 0,
        is_directory=detail.category == "Directory",
    )


def _named(results: Iterable[ResultInfo]) -> Iterator[tuple[ResultInfo, PurePosixPath]]:
    """Each result with a path of its own below the directory; what two nodes call the same is told apart by node."""
    taken: set[PurePosixPath] = set()
    for result in results:
        path = _confined(result.path)
        if path in taken:
            path = path.with_name(f"{path.name}~{safe_name(result.node, fallback='node')}")
        while path in taken:
            path = path.with_name(f"{path.name}~{result.drop}")
        taken.add(path)
        yield result, path


def _confined(path: str) -> PurePosixPath:
    """`path` below the directory, whatever it says: absolute ones below ``outside``, and no way up."""
    given = PurePosixPath(path)
    parts = [part for part in given.parts if part not in ("/", "//", "..", ".")]
    if given.is_absolute() or ".." in given.parts:
        parts.insert(0, _OUTSIDE)
    return PurePosixPath(*parts) if parts else PurePosixPath(_OUTSIDE, "unnamed")


def _store(download: Download, root: Path, path: PurePosixPath, *, is_directory: bool) -> int:
    """Write one download under a hidden name, then put it in its place; its size in bytes."""
    target = root / path
    if not target.parent.resolve().is_relative_to(root.resolve()):
        raise BadFileError("a link in the directory leads out of it", where=str(target.parent))
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with closing(_Reader(download)) as stream:
            if is_directory:
                unfinished.mkdir()
                _unpack(stream, unfinished)
            else:
                with unfinished.open("xb") as file:
                    shutil.copyfileobj(stream, file, 1 << 20)
            if download.size is not None and stream.count != download.size:
                text = f"the content is cut off: {stream.count} of {download.size} bytes came"
                raise BadFileError(text, where=str(path))
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        unfinished.replace(target)
    finally:
        if unfinished.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
        else:
            unfinished.unlink(missing_ok=True)
    return stream.count


def _unpack(stream: Any, directory: Path) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise MissingDependencyError(
            "this Python cannot unpack directories safely", hint="use Python 3.11.4 or newer, or run fetch elsewhere"
        )
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            archive.extractall(directory, filter="data")
        while stream.read(1 << 20):  # the padding behind the archive counts, too
            pass
    except (tarfile.TarError, EOFError) as error:
        raise BadFileError(f"the directory cannot be unpacked: {error}") from error


class _Reader:
    """The chunks of a download as a file that is read once, and how many bytes they were."""

    def __init__(self, download: Download) -> None:
        self._chunks = download.chunks
        self._rest = b""
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; fewer only at the end, as `tarfile` wants it."""
        pieces, length = [self._rest], len(self._rest)
        while size < 0 or length < size:
            piece = next(self._chunks, b"")
            if not piece:
                break
            self.count += len(piece)
            pieces.append(piece)
            length += len(piece)
        whole = b"".join(pieces)
        cut = len(whole) if size < 0 else size
        self._rest = whole[cut:]
        return whole[:cut]

    def close(self) -> None:
        """Let the connection go."""
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()
