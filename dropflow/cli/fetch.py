"""``dropflow fetch``: copy the results of a session into a directory."""

import errno
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.incoming_files import IncomingFile, ResultDirectory, result_paths
from dropflow.cli.options import ConnectionOptions, connection_options, output_options, session_argument
from dropflow.cli.output import CommandOutput, OutputKind
from dropflow.cli.progress import CountFile, transfer_progress
from dropflow.cli.tables import shell_command
from dropflow.data.storage_errors import storage_error
from dropflow.errors import DropflowError, NotFoundError, ProtocolError, StorageError
from dropflow.formatting import format_size, plural
from dropflow.ids import drop_file_name, safe_name
from dropflow.rest.content_records import (
    ContentBegin,
    ContentEnd,
    ContentError,
    ContentPiece,
    ContentRecord,
    ContentRequest,
    ContentsRequest,
    ContentUnchanged,
    read_records,
)
from dropflow.rest.error_body import from_body
from dropflow.rest.operation_records import ResultList
from dropflow.rest.schema import ResultInfo

if TYPE_CHECKING:
    from dropflow.rest.client import Client

__all__ = ["command"]

_REQUESTS = 8
"""Concurrent requests."""
_BATCH_FILES = 250
_BATCH_BYTES = 64 << 20
_BAD_NAME = frozenset(
    {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.EILSEQ, errno.EINVAL}
)
_SHOWN_FILES = 12
_SHOWN_MISSING = 50


class FetchedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One result that is here now; `was_there` if it was here before, with the same content."""

    drop: str
    node: str
    path: str
    size: int
    was_there: bool = False


class MissedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One result that could not be fetched, and why."""

    drop: str
    node: str
    path: str
    code: str
    text: str
    size: int = 0


class FetchReply(msgspec.Struct, frozen=True, kw_only=True):
    """The results that are here, and those that could not be fetched.

    Attributes
    ----------
    fetched, were_there, missed : int
        How many results were fetched, were here already, and could not be fetched.
    bytes : int
        Of the results that were fetched.
    missing : tuple of MissedFile
        What could not be fetched.
    silent : tuple of str
        Nodes that did not answer the request for their results.
    """

    ok: bool
    session: str
    output: str
    fetched: int
    were_there: int
    missed: int
    bytes: int
    files: tuple[FetchedFile, ...]
    missing: tuple[MissedFile, ...] = ()
    silent: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, session: str, output: str, results: Sequence[FetchedFile | MissedFile], silent: tuple[str, ...]
    ) -> "FetchReply":
        """Return the reply for results that were fetched or missed."""
        files = tuple(one for one in results if isinstance(one, FetchedFile))
        missing = tuple(one for one in results if isinstance(one, MissedFile))
        fresh = [file for file in files if not file.was_there]
        return cls(
            ok=not missing and not silent,
            session=session,
            output=output,
            fetched=len(fresh),
            were_there=len(files) - len(fresh),
            missed=len(missing),
            bytes=sum(file.size for file in fresh),
            files=files,
            missing=missing,
            silent=silent,
        )

    def lines(self) -> Iterator[str]:
        """The files, then what is missing and why."""
        there = f", {self.were_there:,} were there already" if self.were_there else ""
        yield f"{plural(self.fetched, 'result')} ({format_size(self.bytes)}) in {self.output}{there}"
        shown = [file for file in self.files if not file.was_there]
        yield from (f"  {file.path}" for file in shown[:_SHOWN_FILES])
        if len(shown) > _SHOWN_FILES:
            yield f"  ... and {len(shown) - _SHOWN_FILES:,} more (--output json has them all)"
        for one in self.missing[:_SHOWN_MISSING]:
            yield f"missing: {one.path} of {one.drop} on {one.node}: {one.text}"
        if len(self.missing) > _SHOWN_MISSING:
            yield f"missing: {len(self.missing) - _SHOWN_MISSING:,} more (--output json has them all)"
        yield from (f"missing: the results on node {node}, which did not answer" for node in self.silent)
        if not self.ok:
            yield f"to fetch what is missing: {shell_command('fetch', self.session)} again, with the same -o"


@click.command("fetch")
@output_options
@session_argument
@click.argument("drop", metavar="[DROP]", required=False)
@connection_options
@click.option(
    "-o", "directory", metavar="DIR", help="Where to put them; a directory with the session's name by default."
)
def command(
    output: CommandOutput, *, manager: ConnectionOptions, session: str, drop: str | None, directory: str | None
) -> Exit:
    """Copy the results of SESSION here, or the content of one DROP of it.

    DIR gets the same results/ and files/ as with 'dropflow run --keep DIR'. A file that is there already with the same
    content stays, and another one of that name is replaced, so that an interrupted fetch can be continued. Exit status
    1 if something could not be fetched: the answer lists what, and why.
    """
    from dropflow.cli.connection import connect

    root = Path(directory or safe_name(session, fallback="session")).absolute()
    with connect(manager) as client:
        found = client.results(session) if drop is None else _one_result(client, session, drop)
        files = [_File(result, path) for result, path in result_paths(found.results)]
        quiet = output.kind is OutputKind.QUIET
        try:
            with ResultDirectory(root) as results, transfer_progress(len(files), quiet=quiet) as count:
                fetched = _Fetch(client, session, results, count).run(files)
        except OSError as error:
            raise StorageError(f"results cannot be stored: {error.strerror}", where=str(root)) from error
    reply = FetchReply.of(session, str(root), [fetched[file] for file in files], silent=found.missing)
    output.answer(reply)
    return Exit.FINISHED if reply.ok else Exit.FAILED


def _one_result(client: "Client", session: str, drop: str) -> ResultList:
    """Return the drop as a result: under its path if it is a result, else under its id."""
    detail = client.drop(session, drop)
    if detail.is_app:
        hint = f"see {shell_command('log', session, detail.oid)}"
        raise NotFoundError(f"{detail.oid} is an application, and has no content", hint=hint)
    known = next((result for result in client.results(session).results if result.oid == detail.oid), None)
    return ResultList(
        results=(
            known
            or ResultInfo(
                drop=detail.drop,
                oid=detail.oid,
                name=detail.name,
                node=detail.node,
                path=f"results/{drop_file_name(detail.oid)}",
                size=detail.size or 0,
                is_directory=detail.category == "Directory",
            ),
        )
    )


class _File(NamedTuple):
    """A result, and its path in the directory."""

    result: ResultInfo
    path: PurePosixPath

    def fetched(self, size: int, *, was_there: bool = False) -> FetchedFile:
        return FetchedFile(
            drop=self.result.oid, node=self.result.node, path=str(self.path), size=size, was_there=was_there
        )

    def missed(self, error: DropflowError) -> MissedFile:
        return MissedFile(
            drop=self.result.oid, node=self.result.node, path=str(self.path), code=error.code, text=str(error)
        )


class _Fetch:
    """Fetches files, many in one request and several requests at a time."""

    def __init__(self, client: "Client", session: str, directory: ResultDirectory, count: CountFile) -> None:
        self._client = client
        self._session = session
        self._directory = directory
        self._count = count
        self._stop = threading.Event()

    def run(self, files: Sequence[_File]) -> dict[_File, FetchedFile | MissedFile]:
        """Return the result for each file.

        Raises
        ------
        OSError
            The directory cannot be written; all other requests are stopped.
        """
        found: dict[_File, FetchedFile | MissedFile] = {}
        with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="fetch") as pool:
            try:
                for results in pool.map(self._fetch_batch, _batches(files)):
                    found |= results
            except BaseException:
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return found

    def _fetch_batch(self, files: Sequence[_File]) -> dict[_File, FetchedFile | MissedFile]:
        """Fetch files of one node by one request."""
        found: dict[_File, FetchedFile | MissedFile] = {}
        error: DropflowError = ProtocolError("the response ends before this content", where=self._client.url)
        try:
            wanted = [
                ContentRequest(row=file.result.drop, digest=self._directory.digest(file.path, file.result.size))
                for file in files
            ]
            request = ContentsRequest(node=files[0].result.node, wanted=tuple(wanted))
            chunks = self._client.contents(self._session, request).chunks
            for file, result in self._write(files, read_records(chunks)):
                found[file] = result
                self._count(result.size)
        except DropflowError as raised:
            error = raised
        return {file: found.get(file) or file.missed(error) for file in files}

    def _write(
        self, files: Sequence[_File], records: Iterator[ContentRecord]
    ) -> Iterator[tuple[_File, FetchedFile | MissedFile]]:
        """Write the contents that arrive, and yield the result for each file."""
        file, incoming, error = files[0], None, None
        try:
            for record in records:
                if self._stop.is_set():
                    return
                if isinstance(record, ContentPiece):
                    if incoming is not None:
                        incoming.write(record.data)
                    continue
                if not isinstance(record, ContentEnd):
                    file = self._file(files, record.index)
                if isinstance(record, ContentBegin):
                    incoming, error = self._begin(file, is_directory=record.is_directory)
                elif isinstance(record, ContentUnchanged):
                    yield file, file.fetched(file.result.size, was_there=True)
                else:
                    if isinstance(record, ContentError):
                        error = from_body(500, {"error": msgspec.to_builtins(record.error)})
                    digest = record.digest if isinstance(record, ContentEnd) else ""
                    yield file, _end(file, incoming, digest, error)
                    incoming = error = None
        finally:
            if incoming is not None:
                incoming.close()

    def _file(self, files: Sequence[_File], index: int) -> _File:
        if not 0 <= index < len(files):
            raise ProtocolError(f"content {index} was not requested", where=self._client.url)
        return files[index]

    def _begin(self, file: _File, *, is_directory: bool) -> tuple[IncomingFile | None, DropflowError | None]:
        try:
            return self._directory.begin(file.path, is_directory=is_directory), None
        except DropflowError as error:
            return None, error
        except OSError as error:
            return None, _error_of_name(file, error)


def _end(
    file: _File, incoming: IncomingFile | None, digest: str, error: DropflowError | None
) -> FetchedFile | MissedFile:
    """Move a content to its path, and return the result for its file."""
    if incoming is None:
        return file.missed(error or ProtocolError("the end of the content came before its beginning"))
    try:
        if error is None:
            incoming.finish(digest)
            return file.fetched(incoming.size)
    except DropflowError as raised:
        error = raised
    except OSError as raised:
        error = _error_of_name(file, raised)
    finally:
        incoming.close()
    return file.missed(error)


def _error_of_name(file: _File, error: OSError) -> DropflowError:
    """Return the error for a file whose name is not possible here; raise errors that concern all files."""
    if error.errno not in _BAD_NAME:
        raise error
    return storage_error("write", str(file.path), error)


def _batches(files: Sequence[_File]) -> Iterator[Sequence[_File]]:
    """Yield batches of files, each of one node, the nodes in turns."""
    by_node: dict[str, list[_File]] = defaultdict(list)
    for file in files:
        by_node[file.result.node].append(file)
    for turn in zip_longest(*(_batches_of_node(mine) for mine in by_node.values())):
        yield from (batch for batch in turn if batch is not None)


def _batches_of_node(files: Sequence[_File]) -> Iterator[Sequence[_File]]:
    batch: list[_File] = []
    size = 0
    for file in files:
        if batch and (len(batch) == _BATCH_FILES or size + file.result.size > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.result.size
    if batch:
        yield batch
