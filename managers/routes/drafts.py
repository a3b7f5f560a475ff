"""Drafts: sessions that clients of DALiuGE have created and not yet deployed.

They are kept in memory, so a manager that restarts loses its drafts, as DALiuGE's does.
"""

import threading
import zlib
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any

import msgspec

from dropflow.errors import BadGraphError, ConflictError, NotFoundError, UsageError
from dropflow.graph.interchange import read_pg_stream
from dropflow.graph.physical import PhysicalGraph
from dropflow.ids import is_session_name, safe_name
from dropflow.states import SessionState

__all__ = ["Draft", "Drafts", "session_name"]

_MOST = 1000
_LONGEST = 255


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


class Drafts:
    """All drafts. May be used from any thread."""

    def __init__(self) -> None:
        # Guards the dictionaries: threads of the server append to a draft while others create, take or delete one.
        self._lock = threading.Lock()
        self._drafts: dict[str, Draft] = {}
        self._spelled: dict[str, str] = {}

    def all(self) -> tuple[Draft, ...]:
        """Return all drafts."""
        with self._lock:
            return tuple(self._drafts.values())

    def spelled(self, session: str) -> str:
        """Return the client's spelling of the name of a session."""
        return self._spelled.get(session, session)

    def find(self, name: str) -> Draft | None:
        """Return the draft of that name, or None."""
        return self._drafts.get(name)

    def create(self, name: str, taken: Iterable[str]) -> None:
        """Create an empty draft.

        Raises
        ------
        ConflictError
            There is a draft of that name, or the name is in `taken`.
        UsageError
            The name cannot be used, or there are too many drafts.
        """
        if not name or len(name) > _LONGEST or not name.isprintable():
            raise UsageError(f"{name[:80]!a} cannot be the name of a session")
        with self._lock:
            if name in self._drafts or session_name(name) in taken:
                raise ConflictError(f"there is a session {name!r} already", hint="choose another name, or delete it")
            if len(self._drafts) >= _MOST:
                raise UsageError(f"{_MOST} sessions are being built", hint="deploy or delete some of them")
            self._drafts[name] = Draft(name=name)
            self._spelled[session_name(name)] = name

    def append(self, name: str, body: bytes) -> None:
        """Add drops: a JSON list, which may end with a reproducibility record.

        Raises
        ------
        BadGraphError
            It is not such a list, or has a drop that is in the draft already.
        NotFoundError, ConflictError
            There is no such draft, or it is being deployed.
        """
        added = _drops(body, name)
        with self._lock:
            draft = self._building(name)
            twice = sorted(added.keys() & draft.drops.keys())
            if twice:
                raise BadGraphError(f"drop {twice[0]!r} is in the session already", where=name)
            self._drafts[name] = msgspec.structs.replace(
                draft, status=SessionState.BUILDING, drops={**draft.drops, **added}
            )

    def take(self, name: str) -> Draft:
        """Mark a draft as being deployed and return it; call `forget` or `give_back` afterwards.

        Raises
        ------
        NotFoundError, ConflictError
            See `append`.
        """
        with self._lock:
            draft = self._building(name)
            status = SessionState.DEPLOYING if draft.drops else SessionState.FINISHED
            self._drafts[name] = msgspec.structs.replace(draft, status=status)
            return draft

    def give_back(self, draft: Draft) -> None:
        """Return a draft to its state before `take`, after a deployment that failed."""
        with self._lock:
            if draft.name in self._drafts:
                self._drafts[draft.name] = draft

    def forget(self, name: str) -> None:
        """Remove a draft, if there is one; the spelling of its name is kept."""
        with self._lock:
            self._drafts.pop(name, None)

    def _building(self, name: str) -> Draft:
        draft = self._drafts.get(name)
        if draft is None:
            raise NotFoundError(f"there is no session {name!r} that is being built")
        if draft.status not in (SessionState.PRISTINE, SessionState.BUILDING):
            raise ConflictError(f"session {name!r} is {draft.status.name}", hint="create another one")
        return draft


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
        found = msgspec.json.decode(item)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(found, dict) and (not found or bool(found.get("rmode"))) and "oid" not in found
