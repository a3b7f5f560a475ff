"""Places that hold the chunks of persisted collections: a manager, or a directory of this machine."""

import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from dropflow.api.client import Client
from dropflow.api.contents_answer import (
    MAX_CONTENTS,
    ContentBegin,
    ContentEnd,
    ContentError,
    ContentPiece,
    ContentRequest,
    ContentsRequest,
    read_records,
)
from dropflow.api.error_body import from_body
from dropflow.api.patience import PATIENCE, PatientClient
from dropflow.api.requests import ResultList
from dropflow.builder.results import connected
from dropflow.dask.persist import PERSIST_AGAIN, ChunkPlace, ChunkSource, LostContentsError
from dropflow.dask_tasks.value_encoding import decode_value, read_value
from dropflow.data.kept_content import KeptContent
from dropflow.data.read import open_content
from dropflow.errors import BadFileError, DropflowError, GoneError, LinkError, NotFoundError
from dropflow.execution.content_location import Handle
from dropflow.formatting import plural

_SCHEMES = ("http://", "https://")


class ManagerChunks:
    """Sessions of a manager, whose nodes have the contents.

    Parameters
    ----------
    address : str
        Address of the manager.
    token, key :
        As in `dropflow.dask.Scheduler`. Chunks that were pickled have none: credentials do not travel.
    patience : float
        Seconds for which a manager that does not answer is asked again.
    """

    def __init__(self, address: str, *, token: str | None = None, key: Any = None, patience: float = PATIENCE) -> None:
        self.address = address
        self._patience = patience
        self._token, self._key = token, key

    def connect(self) -> Client:
        """Return a connection to the manager."""
        return connected(url=self.address, token=self._token, key=self._key)

    def read(self, session: str, places: Mapping[int, ChunkPlace]) -> Mapping[int, Any]:
        """Return the values of drops of a session, by row.

        Raises
        ------
        LostContentsError
            The session was deleted, or a content is lost.
        LinkError
            The manager, or a node that is not lost, has not answered for a while.
        """

        def read(client: Client) -> Mapping[int, Any]:
            try:
                return fetched(client, session, {row: place.node for row, place in places.items()})
            except (GoneError, LinkError, NotFoundError):
                # Copies may be on other nodes.
                places_now = located(client, session, places)
                if all(places_now[row].node == place.node for row, place in places.items()):
                    raise  # nothing is known of other places
                return fetched(client, session, {row: place.node for row, place in places_now.items()})

        with closing(PatientClient(self.connect, seconds=self._patience)) as manager:
            return manager.ask(read)


class DirectoryChunks:
    """Sessions in a directory of this machine.

    Parameters
    ----------
    address : str
        Path of the directory.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    def read(self, session: str, places: Mapping[int, ChunkPlace]) -> Mapping[int, Any]:
        """Return the values of drops of a session, by row; large arrays are mapped, and not copied.

        Raises
        ------
        LostContentsError
            A content is not there any more.
        """
        self.check(session, places)
        values = {}
        for row, place in places.items():
            handle = self._handle(session, row, place)
            if handle is None:  # it was removed at this moment
                raise self._lost(session, {row: place})
            with open_content(handle) as stream:
                values[row] = read_value(stream)
        return values

    def check(self, session: str, places: Mapping[int, ChunkPlace]) -> None:
        """Check that contents are there.

        Raises
        ------
        LostContentsError
            Some are not.
        """
        lost = {row: place for row, place in places.items() if self._handle(session, row, place) is None}
        if lost:
            raise self._lost(session, lost)

    def _handle(self, session: str, row: int, place: ChunkPlace) -> Handle | None:
        return KeptContent(session, row, place.oid, place.path, place.size, place.checksum).find(Path(self.address))

    def _lost(self, session: str, lost: Mapping[int, ChunkPlace]) -> LostContentsError:
        first = next(iter(lost.values()))
        more = f", nor are {len(lost) - 1} others" if len(lost) > 1 else ""
        text = f"the chunk {first.oid} of session {session!r} is not in {self.address} any more{more}"
        return LostContentsError(text, rows=lost, hint=f"it was removed: {PERSIST_AGAIN}")


def source_at(address: str) -> ChunkSource:
    """Return what has chunks at an address, for chunks of another process."""
    return ManagerChunks(address) if address.startswith(_SCHEMES) else DirectoryChunks(address)


def located(client: Client, session: str, places: Mapping[int, ChunkPlace]) -> dict[int, ChunkPlace]:
    """Return where contents are now, by row: on their nodes, or as copies on others.

    Raises
    ------
    LostContentsError
        The session was deleted, or a content is on no node that answers, and its own node is lost or does not have it.
    LinkError
        The manager does not answer, or a node that has contents is late.
    """
    try:
        answer = client.results(session)
    except NotFoundError:
        raise LostContentsError(
            f"the session {session!r}, which has persisted chunks, does not exist any more at {client.url}",
            rows=places,
            hint=f"it was deleted: {PERSIST_AGAIN}",
        ) from None
    except LinkError:
        lost = _lost_nodes(client)
        if not all(place.node in lost for place in places.values()):
            raise
        answer = ResultList(results=(), missing=tuple(sorted(lost)))
    chunk_places = {
        result.drop: ChunkPlace(result.oid, result.node, result.path, result.size, result.checksum or 0)
        for result in answer.results
        if result.drop in places
    }
    missing = {row: place for row, place in places.items() if row not in chunk_places}
    if missing:
        late = {place.node for place in missing.values() if place.node in answer.missing} - _lost_nodes(client)
        if late:
            names = ", ".join(sorted(late))
            raise LinkError(f"persisted chunks of session {session!r} are on nodes that do not answer: {names}")
        place = next(iter(missing.values()))
        silent = f"; nodes that do not answer: {', '.join(answer.missing)}" if answer.missing else ""
        raise LostContentsError(
            f"{plural(len(missing), 'persisted chunk')} of session {session!r} on no node that answers, "
            f"such as {place.oid}, which was on node {place.node}{silent}",
            rows=missing,
            hint=f"{PERSIST_AGAIN}; with scheduler(replicas=2) chunks survive the loss of a node",
        )
    return chunk_places


def _lost_nodes(client: Client) -> set[str]:
    """Return the nodes that the manager does not wait for any more."""
    return {node.name for node in client.nodes() if node.state in ("lost", "drained")}


def fetched(client: Client, session: str, nodes: Mapping[int, str]) -> dict[int, Any]:
    """Return the values of drops of a session, by row, from the nodes that have them.

    Raises
    ------
    LostContentsError
        Nodes do not have some of the contents, or have them damaged.
    DropflowError
        A content cannot be read, or the manager or a node does not answer.
    """
    rows: dict[str, list[int]] = {}
    for row, node in nodes.items():
        rows.setdefault(node, []).append(row)
    values: dict[int, Any] = {}
    lost: dict[int, DropflowError] = {}
    for node, wanted in rows.items():
        for start in range(0, len(wanted), MAX_CONTENTS):
            contents, not_there = _fetched_from(client, session, node, wanted[start : start + MAX_CONTENTS])
            values |= contents
            lost |= not_there
    if lost:
        first = next(iter(lost.values()))
        raise LostContentsError(first.text, rows=lost, where=first.where, hint=first.hint)
    return values


def _fetched_from(
    client: Client, session: str, node: str, rows: Sequence[int]
) -> tuple[dict[int, Any], dict[int, DropflowError]]:
    """Return the values of drops on one node, by row, and why others are lost: it does not have them, or damaged."""
    request = ContentsRequest(node=node, wanted=tuple(ContentRequest(row=row) for row in rows))
    download = client.contents(session, request)
    values: dict[int, Any] = {}
    lost: dict[int, DropflowError] = {}
    content, index = bytearray(), 0
    try:
        for record in read_records(download.chunks):
            if isinstance(record, ContentBegin):
                content, index = bytearray(), record.index
            elif isinstance(record, ContentPiece):
                content += record.data
            elif isinstance(record, ContentEnd) and zlib.crc32(content) != record.checksum:
                lost[rows[index]] = BadFileError("the content was damaged on its node or during the transfer")
            elif isinstance(record, ContentEnd):
                values[rows[index]] = decode_value(content)
            elif isinstance(record, ContentError):
                error = from_body(500, {"error": msgspec.to_builtins(record.error)})
                if not isinstance(error, GoneError | NotFoundError):
                    raise error
                lost[rows[record.index]] = error
    finally:
        download.close()
    return values, lost
