"""Reads the states of sessions once for all watchers of a server, and encodes each event once.

`managers.routes.session_events` describes the events.
"""

import secrets
from base64 import b64encode
from concurrent.futures import Future
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.api.event_stream import ServerSentEvent, format_event
from dropflow.api.manager import Manager
from dropflow.api.requests import DropStates, plain_states
from dropflow.api.session_records import SessionDetail
from dropflow.clock import SystemClock
from dropflow.errors import LinkError
from dropflow.states import UNKNOWN_STATE

UNSEEN = 1 << 62
"""The number of an event that no session has."""

_WAIT_SECONDS = 1.0
"""Seconds of one wait for another version of the session, if the caller gives none."""
_OTHER_READ_SECONDS = 64.0
"""Seconds that one watcher waits for what another one reads."""
_KEPT_BYTES = 4 * 1024 * 1024
"""Bytes of the latest events of a session that are kept for watchers that come back."""
_FORGET = 60.0
"""Seconds after which a session without watchers is forgotten."""


@dataclass(frozen=True)
class LatestEvents:
    """The latest events of a session, and the number of events before them."""

    before: int
    events: tuple[bytes, ...]

    @property
    def last(self) -> int:
        """Number of the latest event."""
        return self.before + len(self.events)

    def after(self, number: int) -> tuple[bytes, ...]:
        """Return the events after the one of this number."""
        return self.events[max(number - self.before, 0) :]

    def and_then(self, event: bytes) -> "LatestEvents":
        """Return the events with another one, without the oldest if they are large."""
        events, before, size = (*self.events, event), self.before, sum(map(len, self.events)) + len(event)
        while size > _KEPT_BYTES and len(events) > 1:
            size -= len(events[0])
            events, before = events[1:], before + 1
        return LatestEvents(before, events)


@dataclass
class WatchedStates:
    """One session as its watchers see it. Only the thread that refreshes it writes, and one does at a time.

    Attributes
    ----------
    states : uint8 array
        States of all drops of the graph, by row, with the signs of `dropflow.api.requests`.
    events : LatestEvents
        Replaced as a whole, after `states`: states are never older than events.
    """

    name: str
    states: npt.NDArray[np.uint8]
    cursor: str = ""
    version: int = -1
    epoch: int = -1
    is_over: bool = False
    read: float = -1.0
    events: LatestEvents = LatestEvents(0, ())

    def event_id(self, number: int) -> str:
        """Return the id of an event for ``Last-Event-ID``."""
        return f"{self.name}.{number}"


class StateHub:
    """Reads the states of sessions for all watchers of a server. All methods may be called from any thread."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._clock = SystemClock()
        self._watched: dict[str, WatchedStates] = {}
        # Which thread refreshes a session: the one whose future is here. `dict.setdefault` lets one thread win.
        self._refreshing: dict[str, Future[WatchedStates]] = {}

    def refresh(self, session: str, number: int, *, seconds: float = _WAIT_SECONDS) -> WatchedStates:
        """Return a session once it has an event after `number`, or after `seconds`, or if it is over.

        Raises
        ------
        DropflowError
            The manager refuses, or does not answer another watcher in a minute.
        """
        known = self._watched.get(session)
        if known is not None and (known.events.last > number or (known.is_over and not self._goes_on(session, known))):
            return known
        mine: Future[WatchedStates] = Future()
        future = self._refreshing.setdefault(session, mine)
        if future is not mine:
            try:
                return future.result(_OTHER_READ_SECONDS)
            except TimeoutError:
                text = f"the states of session {session!r} did not come in {_OTHER_READ_SECONDS:g} s"
                raise LinkError(text, hint="another client waits for them too: try again") from None
        try:
            watched = self._read(session, known, seconds)
        except BaseException as error:
            del self._refreshing[session]
            mine.set_exception(error)
            raise
        del self._refreshing[session]
        mine.set_result(watched)
        return watched

    def states(self, session: str) -> npt.NDArray[np.uint8]:
        """Return the present state of each drop of the graph, by row; 255 if it is not known. Do not write to it."""
        return plain_states(self.refresh(session, UNSEEN, seconds=0.0).states)

    def _goes_on(self, session: str, known: WatchedStates) -> bool:
        """Return whether a session that was over was continued since, or another one has its name."""
        detail = self._manager.session(session)
        return (detail.epoch, detail.version) != (known.epoch, known.version)

    def _read(self, session: str, known: WatchedStates | None, seconds: float) -> WatchedStates:
        self._forget()
        if known is None:
            detail = self._manager.session(session)
        elif seconds > 0:
            detail = self._manager.watch(session, version=known.version, seconds=seconds)
        else:
            detail = self._manager.session(session)
        if known is None or detail.epoch != known.epoch:
            drops = max(detail.whole, detail.drops)
            states = np.full(drops, UNKNOWN_STATE, dtype=np.uint8)
            known = WatchedStates(name=secrets.token_hex(4), states=states, epoch=detail.epoch)
            self._watched[session] = known
        known.read = self._clock.monotonic()
        if detail.version != known.version or not known.cursor:
            self._apply(known, detail, self._manager.states(session, since=known.cursor))
        return known

    def _apply(self, known: WatchedStates, detail: SessionDetail, answer: DropStates) -> None:
        rows, values = answer.rows, answer.signs
        if len(rows) and int(rows.max()) >= len(known.states):
            more = int(rows.max()) + 1 - len(known.states)
            known.states = np.concatenate([known.states, np.full(more, UNKNOWN_STATE, dtype=np.uint8)])
        after = known.states.copy()
        after[rows] = values
        changed = np.flatnonzero(after != known.states)
        known.states = after
        if len(changed) and known.cursor:
            data = {"drops": in_base64(changed.astype("<u4").tobytes()), "states": in_base64(after[changed].tobytes())}
            known.events = known.events.and_then(state_event("change", known.event_id(known.events.last + 1), data))
        known.cursor, known.version, known.is_over = answer.cursor, detail.version, detail.is_over

    def _forget(self) -> None:
        limit = self._clock.monotonic() - _FORGET
        for name in [name for name, watched in list(self._watched.items()) if watched.read < limit]:
            self._watched.pop(name, None)


def in_base64(octets: bytes) -> str:
    """Return octets as text for JSON."""
    return b64encode(octets).decode()


def state_event(name: str, number: str, data: object) -> bytes:
    """Return the octets of an event."""
    return format_event(ServerSentEvent(name, number, msgspec.json.encode(data)))
