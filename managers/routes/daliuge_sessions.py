"""Sessions as clients of DALiuGE see them: drafts that are still being built, and sessions of the manager.

DALiuGE builds a session in three calls (create, append, deploy) and dropflow in one. `DaliugeSessions` answers for both
kinds, so that the routes need not know which one a name is.
"""

import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any

import msgspec
import numpy as np

from dropflow.api.drop_records import DropInfo, DropQuery
from dropflow.api.manager import Manager
from dropflow.api.node_records import NodeInfo
from dropflow.api.request_bodies import check_depth
from dropflow.api.requests import SubmitQuery
from dropflow.api.session_records import SessionInfo
from dropflow.errors import BadGraphError, ConflictError, HttpError, NotFoundError, UsageError
from dropflow.graph.daliuge_read import read_pg_stream
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import slice_for
from dropflow.graph.text_ids import oids
from dropflow.ids import is_session_name, safe_name
from dropflow.states import UNKNOWN, SessionState
from managers.routes.daliuge_json import find_node, node_string, specifications

_MOST_DRAFTS = 1000
"""Sessions of DALiuGE that may be built at the same time."""
_LONGEST_NAME = 255
"""Characters of the name of a session."""
_PAGE_DROPS = 1000
"""Drops that the manager is asked for at once."""
_CANCELLABLE = (SessionState.DEPLOYING, SessionState.RUNNING, SessionState.CANCELLED)
_AS_DALIUGE = {
    UNKNOWN: SessionState.RUNNING,
    SessionState.PAUSED.name: SessionState.RUNNING,
    # A session of DALiuGE is CANCELLED from the request on, while its applications may still run.
    SessionState.CANCELLING.name: SessionState.CANCELLED,
}

# Drafts: sessions that clients of DALiuGE have created and not yet deployed.
#
# They are kept in memory, so a manager that restarts loses its drafts, as DALiuGE's does.


class _Head(msgspec.Struct):
    """The fields that every drop must have."""

    oid: str
    categoryType: str = ""  # noqa: N815 - the spelling of the format
    type: str = ""
    rmode: Any = None


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A session that is not deployed yet.

    Attributes
    ----------
    name : str
        As the client spells it.
    status : SessionState
        PRISTINE, BUILDING, DEPLOYING, or FINISHED for one that was deployed without a drop.
    drops : mapping of str to bytes
        The JSON of each drop by its id.
    """

    name: str
    status: SessionState = SessionState.PRISTINE
    drops: Mapping[str, bytes] = {}

    def graph(self) -> PhysicalGraph:
        """Return the physical graph of all drops.

        Raises
        ------
        BadGraphError
            With all problems.
        """
        return read_pg_stream(BytesIO(b"[" + b",".join(self.drops.values()) + b"]"), name=session_name(self.name))


def session_name(name: str) -> str:
    """Return our name of a session that a client of DALiuGE calls `name`: the same if it is a safe name."""
    if is_session_name(name):
        return name
    return f"{safe_name(name, fallback='session')[:90]}-{zlib.crc32(name.encode(errors='replace')):08x}"


def _drops(body: bytes, where: str) -> dict[str, bytes]:
    try:
        items = msgspec.json.decode(body, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = "send a JSON list of drops"
        raise BadGraphError(f"the graph is not a list of drops: {error}", where=where, hint=hint) from error
    if items and _is_record(items[-1]):
        items.pop()
    drops: dict[str, bytes] = {}
    for number, item in enumerate(items):
        try:
            head = msgspec.json.decode(item, type=_Head)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadGraphError(f"item {number} is not a drop: {error}", where=f"{where}/{number}") from error
        if head.oid in drops:
            raise BadGraphError(f"two drops have the id {head.oid!r}", where=f"{where}/{number}")
        if not (head.categoryType or head.type):
            raise BadGraphError(f"drop {head.oid!r} has no categoryType", where=f"{where}/{number}")
        drops[head.oid] = bytes(item)
    return drops


def _is_record(item: msgspec.Raw) -> bool:
    """Return whether an item is a reproducibility record: an empty object, or one with a mode."""
    try:
        record = msgspec.json.decode(item)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(record, dict) and (not record or bool(record.get("rmode"))) and "oid" not in record


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
        # Guards the dictionaries: threads of the server append to a draft while others create, deploy or delete one.
        self._lock = threading.Lock()
        self._drafts: dict[str, Draft] = {}
        self._spelled: dict[str, str] = {}
        """The names that clients gave to drafts and sessions, by our names."""

    def all(self) -> list[DaliugeSession]:
        """Return drafts, then sessions."""
        with self._lock:
            drafts = tuple(self._drafts.values())
        nodes = self._manager.nodes() if drafts else ()
        return [_draft(draft, nodes) for draft in drafts] + self.deployed()

    def deployed(self, *, node: str = "") -> list[DaliugeSession]:
        """Return the sessions that are not drafts; only those on `node`, if one is given."""
        return [self._session(info) for info in self._manager.sessions() if not node or node in info.nodes]

    def get(self, name: str) -> DaliugeSession:
        """Return one.

        Raises
        ------
        NotFoundError
            There is no draft and no session of that name.
        """
        draft = self._drafts.get(name)
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
        draft = self._drafts.get(name)
        if draft is not None:
            return {oid: msgspec.json.decode(drop) for oid, drop in draft.drops.items()}
        graph, info = self._manager.graph(session_name(name)), self._manager.info()
        drops = specifications(graph)
        if info.role != "node" or info.name not in graph.places:
            return drops
        piece = slice_for(graph, info.name)
        return {name: drops[name] for name in oids(piece.graph, np.flatnonzero(piece.is_own))}

    def rows(self, name: str, *, node: str = "") -> Iterator[DropInfo]:
        """Yield its drops; only those on `node`, if one is given.

        Raises
        ------
        ConflictError
            It is a draft, whose drops have no state.
        NotFoundError
            There is no session of that name.
        """
        draft = self._drafts.get(name)
        if draft is not None:
            raise ConflictError(f"session {name!r} is {draft.status.name}", hint="deploy it first")
        offset, total = 0, 1
        while offset < total:
            page = self._manager.drops(session_name(name), DropQuery(node=node, offset=offset, limit=_PAGE_DROPS))
            yield from page.drops
            offset, total = offset + _PAGE_DROPS, page.total

    def create(self, name: str) -> None:
        """Create a draft.

        Raises
        ------
        ConflictError
            There is a draft or a session of that name.
        UsageError
            The name cannot be used, or there are too many drafts.
        """
        if not name or len(name) > _LONGEST_NAME or not name.isprintable():
            raise UsageError(f"{name[:80]!a} cannot be the name of a session")
        with self._lock:
            deployed = self._spelled.keys() - set(map(session_name, self._drafts))
        taken = {session.session for session in self._manager.sessions()}
        with self._lock:
            for deleted in deployed - taken:
                self._spelled.pop(deleted, None)
            if name in self._drafts or session_name(name) in taken:
                raise ConflictError(f"there is a session {name!r} already", hint="choose another name, or delete it")
            if len(self._drafts) >= _MOST_DRAFTS:
                raise UsageError(f"{_MOST_DRAFTS} sessions are being built", hint="deploy or delete some of them")
            self._drafts[name] = Draft(name=name)
            self._spelled[session_name(name)] = name

    def append(self, name: str, body: bytes) -> None:
        """Add drops to a draft.

        Parameters
        ----------
        name : str
            Name of the draft.
        body : bytes
            A JSON list of drops, which may end with a reproducibility record.

        Raises
        ------
        BadGraphError
            It is not such a list, or has a drop that is in the draft already.
        NotFoundError, ConflictError
            There is no draft of that name, or it is being deployed.
        """
        self._check_draft(name)
        try:
            check_depth(body, self._depth, what="the graph")
        except HttpError as error:  # clients of DALiuGE expect the error of a graph that cannot be used
            raise BadGraphError(error.text, where=name, hint=error.hint) from error
        added = _drops(body, name)
        with self._lock:
            draft = self._building(name)
            twice = sorted(added.keys() & draft.drops.keys())
            if twice:
                raise BadGraphError(f"drop {twice[0]!r} is in the session already", where=name)
            drops = {**draft.drops, **added}
            self._drafts[name] = msgspec.structs.replace(draft, status=SessionState.BUILDING, drops=drops)

    def deploy(self, name: str, completed: Sequence[str]) -> None:
        """Deploy a draft.

        Parameters
        ----------
        name : str
            Name of the draft.
        completed : sequence of str
            Ids of drops that the client asks to complete at the start. Ours complete by themselves if nothing produces
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
        with self._lock:
            draft = self._building(name)
            status = SessionState.DEPLOYING if draft.drops else SessionState.FINISHED
            self._drafts[name] = msgspec.structs.replace(draft, status=status)
        if not draft.drops:
            return
        try:
            graph = draft.graph()
            _check_known(completed, draft)
            placed, anew = self._placed(graph)
            self._manager.submit(placed, SubmitQuery(session=session_name(name), anew=anew))
        except BaseException:
            with self._lock:
                if name in self._drafts:
                    self._drafts[name] = draft
            raise
        self._forget(name)

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
        if self._drafts.get(name) is not None:
            self._forget(name)
        else:
            self._manager.delete(session_name(name))

    def _building(self, name: str) -> Draft:
        draft = self._drafts.get(name)
        if draft is None:
            raise NotFoundError(f"there is no session {name!r} that is being built")
        if draft.status not in (SessionState.PRISTINE, SessionState.BUILDING):
            raise ConflictError(f"session {name!r} is {draft.status.name}", hint="create another one")
        return draft

    def _forget(self, name: str) -> None:
        """Remove a draft, if there is one; the spelling of its name is kept."""
        with self._lock:
            self._drafts.pop(name, None)

    def _check_draft(self, name: str) -> None:
        """Raise the error of a session that is not a draft any more."""
        if self._drafts.get(name) is None:
            status = self._manager.session(session_name(name)).status
            raise ConflictError(f"session {name!r} is {status}", hint="create another one")

    def _session(self, info: SessionInfo) -> DaliugeSession:
        name = self._spelled.get(info.session, info.session)
        return DaliugeSession(name=name, status=_state(info.status), size=info.drops, nodes=info.nodes)

    def _placed(self, graph: PhysicalGraph) -> tuple[PhysicalGraph, bool]:
        """Return the graph with our names of its nodes, and whether to place it anew."""
        if self._manager.info().role == "node" or not graph.places:
            return graph, True  # a node manager of DALiuGE takes every drop as its own
        nodes = self._manager.nodes()
        matches = {place: find_node(nodes, place) for place in graph.places}
        unknown = [place for place, node in matches.items() if node is None]
        if unknown and len(unknown) < len(matches):
            known = ", ".join(node_string(node) for node in nodes) or "none"
            raise BadGraphError(f"node {unknown[0]!r} does not belong to this manager", hint=f"its nodes are {known}")
        places = tuple(node.name if (node := matches[place]) is not None else place for place in graph.places)
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
