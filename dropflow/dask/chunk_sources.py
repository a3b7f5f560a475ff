"""What holds the chunks of persisted collections: a manager, or a directory of this machine."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from dropflow.builder.results import connected
from dropflow.dask.persisted import PERSIST_AGAIN, ChunkPlace, ChunkSource
from dropflow.dask_tasks.value_encoding import decode_value, read_value
from dropflow.data.kept_content import KeptContent
from dropflow.data.read_content import open_content
from dropflow.errors import GoneError, LinkError, NotFoundError
from dropflow.formatting import plural
from dropflow.rest.client import Client
from dropflow.rest.content_records import (
    MAX_CONTENTS,
    ContentBegin,
    ContentEnd,
    ContentError,
    ContentPiece,
    ContentRequest,
    ContentsRequest,
    read_records,
)
from dropflow.rest.error_body import from_body
from dropflow.rest.patience import PATIENCE, PatientClient

__all__ = ["DirectoryChunks", "ManagerChunks", "fetched", "located", "source_at"]

_SCHEMES = ("http://", "https://")


class ManagerChunks:
    """Sessions of a manager, whose nodes have the contents.

    Parameters
    ----------
    address : str
        Of the manager.
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
        GoneError
            The session was deleted, or a content is lost.
        LinkError
            The manager has not answered for a while.
        """

        def read(client: Client) -> Mapping[int, Any]:
            try:
                return fetched(client, session, {row: place.node for row, place in places.items()})
            except (GoneError, LinkError, NotFoundError):
                # Copies may be on other nodes.
                found = located(client, session, places)
                if all(found[row].node == place.node for row, place in places.items()):
                    raise
                return fetched(client, session, {row: place.node for row, place in found.items()})

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
        GoneError
            A content is not there any more.
        """
        values = {}
        for row, place in places.items():
            handle = KeptContent(session, row, place.oid, place.path, place.size, place.checksum).find(
                Path(self.address)
            )
            if handle is None:
                text = f"the chunk {place.oid} of session {session!r} is not in {self.address} any more"
                raise GoneError(text, hint=f"it was removed: {PERSIST_AGAIN}")
            with open_content(handle) as stream:
                values[row] = read_value(stream)
        return values


def source_at(address: str) -> ChunkSource:
    """Return what has chunks at an address, for chunks of another process."""
    return ManagerChunks(address) if address.startswith(_SCHEMES) else DirectoryChunks(address)


def located(client: Client, session: str, places: Mapping[int, ChunkPlace]) -> dict[int, ChunkPlace]:
    """Return where contents are now, by row: on their nodes, or as copies on others.

    Raises
    ------
    GoneError
        The session was deleted, or a content is on no node that answers.
    LinkError
        The manager does not answer.
    """
    try:
        answer = client.results(session)
    except NotFoundError:
        raise GoneError(
            f"the session {session!r}, which has persisted chunks, does not exist any more at {client.url}",
            hint=f"it was deleted: {PERSIST_AGAIN}",
        ) from None
    found = {
        one.drop: ChunkPlace(one.oid, one.node, one.path, one.size, one.checksum or 0)
        for one in answer.results
        if one.drop in places
    }
    lost = [row for row in places if row not in found]
    if lost:
        place = places[lost[0]]
        silent = f"; nodes that do not answer: {', '.join(answer.missing)}" if answer.missing else ""
        raise GoneError(
            f"{plural(len(lost), 'persisted chunk')} of session {session!r} on no node that answers, "
            f"such as {place.oid}, which was on node {place.node}{silent}",
            hint=f"{PERSIST_AGAIN}; with scheduler(replicas=2) chunks survive the loss of a node",
        )
    return found


def fetched(client: Client, session: str, nodes: Mapping[int, str]) -> dict[int, Any]:
    """Return the values of drops of a session, by row, from the nodes that have them.

    Raises
    ------
    DropflowError
        A content is not there, or the manager or a node does not answer.
    """
    rows: dict[str, list[int]] = {}
    for row, node in nodes.items():
        rows.setdefault(node, []).append(row)
    values: dict[int, Any] = {}
    for node, wanted in rows.items():
        for start in range(0, len(wanted), MAX_CONTENTS):
            values |= _fetched_from(client, session, node, wanted[start : start + MAX_CONTENTS])
    return values


def _fetched_from(client: Client, session: str, node: str, rows: Sequence[int]) -> dict[int, Any]:
    """Return the values of drops on one node, by row."""
    request = ContentsRequest(node=node, wanted=tuple(ContentRequest(row=row) for row in rows))
    download = client.contents(session, request)
    values: dict[int, Any] = {}
    content, index = bytearray(), 0
    try:
        for record in read_records(download.chunks):
            if isinstance(record, ContentBegin):
                content, index = bytearray(), record.index
            elif isinstance(record, ContentPiece):
                content += record.data
            elif isinstance(record, ContentEnd):
                values[rows[index]] = decode_value(content)
            elif isinstance(record, ContentError):
                raise from_body(500, {"error": msgspec.to_builtins(record.error)})
    finally:
        download.close()
    return values
