"""Sessions as clients of DALiuGE see them: drafts that are still being built, and sessions of the manager.

DALiuGE builds a session in three calls (create, append, deploy) and dropflow in one. `DaliugeSessions` answers for both
kinds, so that the routes need not know which one a name is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from dropflow.errors import BadGraphError, ConflictError, HttpError, NotFoundError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import slice_for
from dropflow.graph.text_ids import oids
from dropflow.rest.manager_records import NodeInfo
from dropflow.rest.server.request_body import check_depth
from dropflow.rest.session_records import DropInfo, DropQuery, SessionInfo, SubmitQuery
from dropflow.rest.status import UNKNOWN
from dropflow.states import SessionState
from managers.api import Manager
from managers.routes.daliuge_shapes import find_node, node_string, specifications
from managers.routes.drafts import Draft, Drafts, session_name

__all__ = ["DaliugeSession", "DaliugeSessions"]

_PAGE = 1000
_CANCELLABLE = (SessionState.DEPLOYING, SessionState.RUNNING, SessionState.CANCELLED)
_AS_DALIUGE = {
    UNKNOWN: SessionState.RUNNING,
    SessionState.PAUSED.name: SessionState.RUNNING,
    # A session of DALiuGE is CANCELLED from the request on, while its applications may still run.
    SessionState.CANCELLING.name: SessionState.CANCELLED,
}


class DaliugeSession(msgspec.Struct, frozen=True, kw_only=True):
    """A draft or a session.

    Attributes
    ----------
    name : str
        As the client spells it.
    status : SessionState
        DALiuGE has no UNKNOWN; RUNNING makes its clients ask again.
    size : int
        Number of drops.
    nodes : tuple of str
        Names of its nodes; of a draft, all nodes of the manager.
    """

    name: str
    status: SessionState
    size: int
    nodes: tuple[str, ...]


class DaliugeSessions:
    """Drafts and sessions under one interface. May be used from any thread.

    Parameters
    ----------
    manager : Manager
        Where drafts are deployed.
    depth : int
        Levels to which the JSON of a graph may be nested.
    """

    def __init__(self, manager: Manager, depth: int) -> None:
        self._manager = manager
        self._depth = depth
        self._drafts = Drafts()

    def all(self) -> list[DaliugeSession]:
        """Return drafts, then sessions."""
        drafts = self._drafts.all()
        nodes = self._manager.nodes() if drafts else ()
        return [_draft(draft, nodes) for draft in drafts] + self.deployed()

    def deployed(self, *, node: str = "") -> list[DaliugeSession]:
        """Return the sessions that are not drafts; only those on `node`, if one is given."""
        return [self._session(found) for found in self._manager.sessions() if not node or node in found.nodes]

    def get(self, name: str) -> DaliugeSession:
        """Return one.

        Raises
        ------
        NotFoundError
            There is no draft and no session of that name.
        """
        draft = self._drafts.find(name)
        if draft is not None:
            return _draft(draft, self._manager.nodes())
        return self._session(self._manager.session(session_name(name)))

    def size(self, name: str) -> int:
        """Return the number of its drops; 0 if there is none of that name, as DALiuGE does."""
        try:
            return self.get(name).size
        except NotFoundError:
            return 0

    def specifications(self, name: str) -> dict[str, Any]:
        """Return the JSON of every drop by its id, of a node manager that of its own drops. Raises as `get`."""
        draft = self._drafts.find(name)
        if draft is not None:
            return {oid: msgspec.json.decode(drop) for oid, drop in draft.drops.items()}
        graph, info = self._manager.graph(session_name(name)), self._manager.info()
        found = specifications(graph)
        if info.role != "node" or info.name not in graph.places:
            return found
        piece = slice_for(graph, info.name)
        return {name: found[name] for name in oids(piece.graph, np.flatnonzero(piece.is_own))}

    def rows(self, name: str, *, node: str = "") -> Iterator[DropInfo]:
        """Yield its drops; only those on `node`, if one is given.

        Raises
        ------
        ConflictError
            It is a draft, whose drops have no state.
        NotFoundError
            There is no session of that name.
        """
        draft = self._drafts.find(name)
        if draft is not None:
            raise ConflictError(f"session {name!r} is {draft.status.name}", hint="deploy it first")
        offset, total = 0, 1
        while offset < total:
            page = self._manager.drops(session_name(name), DropQuery(node=node, offset=offset, limit=_PAGE))
            yield from page.drops
            offset, total = offset + _PAGE, page.total

    def create(self, name: str) -> None:
        """Create a draft.

        Raises
        ------
        ConflictError
            There is a draft or a session of that name.
        UsageError
            The name cannot be used, or there are too many drafts.
        """
        self._drafts.create(name, {session.session for session in self._manager.sessions()})

    def append(self, name: str, body: bytes) -> None:
        """Add drops to a draft.

        Parameters
        ----------
        name : str
            Of the draft.
        body : bytes
            A JSON list of drops.

        Raises
        ------
        BadGraphError
            The drops cannot be used.
        NotFoundError, ConflictError
            There is no draft of that name.
        """
        self._check_draft(name)
        try:
            check_depth(body, self._depth, what="the graph")
        except HttpError as error:  # clients of DALiuGE expect the error of a graph that cannot be used
            raise BadGraphError(error.text, where=name, hint=error.hint) from error
        self._drafts.append(name, body)

    def deploy(self, name: str, completed: Sequence[str]) -> None:
        """Deploy a draft.

        Parameters
        ----------
        name : str
            Of the draft.
        completed : sequence of str
            Ids of drops that the client wants completed at the start. Ours complete by themselves if nothing produces
            them, so these are only checked.

        Raises
        ------
        BadGraphError
            The graph cannot be used; the draft is kept.
        NotFoundError, ConflictError
            There is no draft of that name.
        DropflowError
            As `Manager.submit`; the draft is kept.
        """
        self._check_draft(name)
        draft = self._drafts.take(name)
        if not draft.drops:
            return
        try:
            graph = draft.graph()
            _check_known(completed, draft)
            placed, anew = self._placed(graph)
            self._manager.submit(placed, SubmitQuery(session=session_name(name), anew=anew))
        except BaseException:
            self._drafts.give_back(draft)
            raise
        self._drafts.forget(name)

    def cancel(self, name: str) -> None:
        """Cancel one that runs.

        Raises
        ------
        ConflictError
            It does not run.
        NotFoundError
            There is none of that name.
        """
        status = self.get(name).status
        if status not in _CANCELLABLE:
            raise ConflictError(f"session {name!r} is {status.name}", hint="only one that runs can be cancelled")
        self._manager.cancel(session_name(name), "cancelled by a client of DALiuGE")

    def delete(self, name: str) -> None:
        """Delete a draft or a session.

        Raises
        ------
        NotFoundError
            There is none of that name.
        """
        if self._drafts.find(name) is not None:
            self._drafts.forget(name)
        else:
            self._manager.delete(session_name(name))

    def _check_draft(self, name: str) -> None:
        """Raise the error of a session that is not a draft any more."""
        if self._drafts.find(name) is None:
            status = self._manager.session(session_name(name)).status
            raise ConflictError(f"session {name!r} is {status}", hint="create another one")

    def _session(self, info: SessionInfo) -> DaliugeSession:
        name = self._drafts.spelled(info.session)
        return DaliugeSession(name=name, status=_state(info.status), size=info.drops, nodes=info.nodes)

    def _placed(self, graph: PhysicalGraph) -> tuple[PhysicalGraph, bool]:
        """Return the graph with our names of its nodes, and whether to place it anew."""
        if self._manager.info().role == "node" or not graph.places:
            return graph, True  # a node manager of DALiuGE takes every drop as its own
        nodes = self._manager.nodes()
        found = {place: find_node(nodes, place) for place in graph.places}
        unknown = [place for place, node in found.items() if node is None]
        if unknown and len(unknown) < len(found):
            known = ", ".join(node_string(node) for node in nodes) or "none"
            raise BadGraphError(f"node {unknown[0]!r} does not belong to this manager", hint=f"its nodes are {known}")
        places = tuple(node.name if (node := found[place]) is not None else place for place in graph.places)
        return replace(graph, places=places), False


def _check_known(completed: Sequence[str], draft: Draft) -> None:
    unknown = [oid for oid in completed if oid not in draft.drops]
    if unknown:
        raise BadGraphError(f"there is no drop {unknown[0]!r} to complete", where=draft.name)


def _draft(draft: Draft, nodes: Sequence[NodeInfo]) -> DaliugeSession:
    names = tuple(node.name for node in nodes)
    return DaliugeSession(name=draft.name, status=draft.status, size=len(draft.drops), nodes=names)


def _state(status: str) -> SessionState:
    return _AS_DALIUGE.get(status) or SessionState[status]
