"""DALiuGE's JSON: graphs, addresses of nodes, states of drops, rows of logs, and errors by name."""

import html
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from dropflow.api.addresses import LINKS_PORT, NODE_PORT
from dropflow.api.drop_records import DropInfo
from dropflow.api.error_body import status_of, to_body
from dropflow.api.node_records import NodeInfo
from dropflow.api.routes import Response
from dropflow.errors import (
    BadFileError,
    BadGraphError,
    ConflictError,
    DropflowError,
    HttpError,
    NotFoundError,
    UsageError,
)
from dropflow.graph.daliuge_write import write_pg
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import AppState, DropState

_IN_MEMORY_BYTES = 16 * 1024 * 1024
"""Bytes of DALiuGE's JSON of a graph that are kept in memory; a larger one is a temporary file."""
_CHUNK_BYTES = 256 * 1024
"""Bytes of DALiuGE's JSON in one chunk of the response."""
_MOST_PORTS = 3
"""Ports in DALiuGE's spelling of a node: REST, events, remote calls."""
_APP_STATES = {
    DropState.INITIALIZED: AppState.NOT_RUN,
    DropState.WRITING: AppState.RUNNING,
    DropState.COMPLETED: AppState.FINISHED,
    DropState.ERROR: AppState.ERROR,
    DropState.CANCELLED: AppState.CANCELLED,
    DropState.SKIPPED: AppState.SKIPPED,
    DropState.EXPIRED: AppState.FINISHED,
    DropState.DELETED: AppState.FINISHED,
}


def pg_json(graph: PhysicalGraph) -> Iterator[bytes]:
    """Yield DALiuGE's JSON of a graph in chunks; a large one is buffered on disk."""
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as file:
        write_pg(graph, file)
        file.seek(0)
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def specifications(graph: PhysicalGraph) -> dict[str, Any]:
    """Return the dictionary of every drop by its id."""
    items = msgspec.json.decode(b"".join(pg_json(graph)))
    return {drop["oid"]: drop for drop in items if "oid" in drop}


def expanded(node: str) -> tuple[str, int]:
    """Return host and REST port of a node in DALiuGE's spelling ``host[:rest[:events[:rpc]]]``.

    Raises
    ------
    UsageError
        The text has another form.
    """
    host, *ports = node.split(":")
    if not host or len(ports) > _MOST_PORTS or not all(port.isdecimal() and len(port) < 6 for port in ports):
        raise UsageError(f"{node!r} is not the address of a node", hint="give HOST or HOST:PORT")
    return host, int(ports[0]) if ports else NODE_PORT


def url_of(node: str, *, port: int = NODE_PORT) -> str:
    """Return the address of the REST server of a node or island; `port` is used if `node` has none."""
    host, given = expanded(node)
    return f"http://{host}:{given if ':' in node else port}"


def find_node(nodes: Sequence[NodeInfo], spelled: str) -> NodeInfo | None:
    """Return the node with this name, or with this host and REST port; None if there is none."""
    by_name = next((node for node in nodes if node.name == spelled), None)
    if by_name is not None:
        return by_name
    try:
        host, port = expanded(spelled)
    except UsageError:
        return None
    places = ((node, urlsplit(node.url)) for node in nodes if node.url)
    return next((node for node, at in places if (at.hostname, at.port or 80) == (host.lower(), port)), None)


def node_string(node: NodeInfo) -> str:
    """Return a node in DALiuGE's full spelling. Our port for events and data is one, and therefore given twice."""
    rest, links = urlsplit(node.url), urlsplit(node.links)
    if not rest.hostname:
        return node.name
    port = links.port or LINKS_PORT
    return f"{rest.hostname}:{rest.port or 80}:{port}:{port}"


def drop_status(row: DropInfo) -> dict[str, int]:
    """Return the state of a drop. DALiuGE has no application that is WRITING; it has an application state, RUNNING."""
    state = DropState[row.state]
    if not row.is_app:
        return {"status": int(state)}
    shown = DropState.INITIALIZED if state is DropState.WRITING else state
    return {"execStatus": int(_APP_STATES[state]), "status": int(shown)}


def log_records(lines: Iterable[str]) -> Iterator[Mapping[str, object]]:
    """Yield lines of a log as rows of DALiuGE's table, escaped, because its page does not escape them."""
    for line in lines:
        yield {
            "time": "",
            "Level": "INFO",
            "Module": "",
            "Function/Method": "",
            "Line #": 0,
            "Message": f"<pre>{html.escape(line)}\n</pre>",
        }


def refused(error: DropflowError, session: str, *, creating: bool = False) -> Response:
    """Return the answer for an error, with DALiuGE's fields and ours.

    A conflict while a session is created is another session of its name; later it is the state of the session.
    """
    name, arguments, status = _exception(error, session, creating=creating)
    body = {"ok": False, "error": msgspec.to_builtins(to_body(error)), "type": name, "args": arguments}
    return Response(status=status, body=msgspec.json.encode(body))


def _exception(error: DropflowError, session: str, *, creating: bool) -> tuple[str, list[object], int]:
    text: list[object] = [str(error)]
    match error:
        case NotFoundError() if session:
            return "NoSessionException", [session], 404
        case ConflictError() if creating:
            return "SessionAlreadyExistsException", [session], 409
        case ConflictError():
            return "InvalidSessionState", text, 400
        case BadGraphError() | BadFileError():
            return "InvalidGraphException", text, 400
        case HttpError() if error.status == 501:
            return "NotImplementedError", text, 501
    return "DaliugeException", text, status_of(error)
