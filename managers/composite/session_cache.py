"""What each child told last about each session: for when it does not answer, and to number the changes.

This is a cache and no more. A composite that starts again has none, asks, and is where it was, but for the parts of
sessions on children that do not answer.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import gmtime, strftime

import msgspec

from dropflow.clock import Clock
from dropflow.rest.schema import SessionDetail, SessionInfo
from managers.composite.children import ChildView
from managers.composite.merging import Freshness, SessionPart, merge

__all__ = ["SessionCache"]

_GONE = "does not know the session any more: it was started again, or the session was deleted there"


@dataclass(frozen=True)
class _CachedPart:
    """What one child told about one session, and when: `number` counts everything that was told.

    `time` is when it was told by the clock of this process, for people.
    """

    detail: SessionDetail
    number: int
    child: str
    time: float
    is_gone: bool = False


class _Numbered(msgspec.Struct, frozen=True):
    version: int
    signature: tuple[object, ...]


class SessionCache:
    """Who told what, by session and by the address of the child.

    Parameters
    ----------
    clock : Clock
        Versions start from its time, so that those of a composite that starts again are newer than those before.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._told = 0
        self._changes = 0
        self._sessions: dict[str, dict[str, _CachedPart]] = {}
        self._versions: dict[str, _Numbered] = {}

    @property
    def told(self) -> int:
        """How much was told so far; to be given to `absent`."""
        with self._changed:
            return self._told

    def note(self, child: ChildView, info: SessionInfo) -> None:
        """The child holds this session. Without the details of `SessionDetail`, those told before are kept."""
        with self._changed:
            self._note(child, info)
            self._wake()

    def note_all(self, child: ChildView, infos: Iterable[SessionInfo], *, since: int) -> None:
        """The child holds these sessions and, as far as nobody has told otherwise `since`, no others."""
        found = {info.session: info for info in infos}
        with self._changed:
            for info in found.values():
                known = self._sessions.get(info.session, {}).get(child.url)
                # A list that was made before somebody saw the session would take it back in time.
                if known is None or known.number <= since:
                    self._note(child, info)
            for session in [name for name, by_child in self._sessions.items() if child.url in by_child]:
                if session not in found:
                    self._absent(session, child.url, since)
            self._wake()

    def absent(self, session: str, url: str, *, since: int) -> None:
        """The child does not hold this session, unless somebody has told otherwise `since`."""
        with self._changed:
            self._absent(session, url, since)
            self._wake()

    def forget(self, session: str, urls: Iterable[str] | None = None) -> None:
        """The session was deleted, everywhere or on these children."""
        with self._changed:
            by_child = self._sessions.get(session, {})
            for url in list(by_child if urls is None else urls):
                by_child.pop(url, None)
            if not by_child:
                self._sessions.pop(session, None)
                self._versions.pop(session, None)
            self._wake()

    def forget_child(self, url: str) -> None:
        """The child is none any more."""
        with self._changed:
            sessions = list(self._sessions)
        for session in sessions:
            self.forget(session, [url])

    def wake(self) -> None:
        """Let everybody in `wait` look again."""
        with self._changed:
            self._wake()

    def wait(self, ready: Callable[[], bool], *, seconds: float) -> None:
        """Wait until `ready`, which is asked again after each change; for `seconds` at most."""
        deadline = self._clock.monotonic() + seconds
        while True:
            with self._changed:
                seen = self._changes
            if ready():
                return
            with self._changed:
                left = deadline - self._clock.monotonic()
                if left <= 0 or not self._changed.wait_for(partial(self._is_after, seen), timeout=left):
                    return

    def sessions(self) -> tuple[str, ...]:
        """Names of all sessions that some child holds or held."""
        with self._changed:
            return tuple(self._sessions)

    def holders(self, session: str) -> frozenset[str]:
        """Addresses of the children that hold or held a part of this session."""
        with self._changed:
            return frozenset(self._sessions.get(session, {}))

    def holds_unsettled(self, url: str) -> bool:
        """Whether sessions were going on at this child when it was last heard."""
        with self._changed:
            held = [by_child[url] for by_child in self._sessions.values() if url in by_child]
        return any(not cached.detail.is_over for cached in held)

    def epoch_of(self, session: str, url: str | None = None) -> int:
        """The newest deployment of this session that was told of, by any child or by this one; 0 when none was."""
        with self._changed:
            told = self._sessions.get(session, {}).items()
            return max((one.detail.epoch for child, one in told if url in (None, child)), default=0)

    def version_of(self, session: str, url: str) -> int:
        """Version, as the child counts, of what it told last; -1 when it told nothing."""
        with self._changed:
            known = self._sessions.get(session, {}).get(url)
        return known.detail.version if known else -1

    def parts(self, session: str, children: Mapping[str, ChildView]) -> list[SessionPart]:
        """The parts of a session, sorted by child; none when no child holds it.

        Parameters
        ----------
        children : mapping
            All children as they are now, by address.
        """
        with self._changed:
            by_child = dict(self._sessions.get(session, {}))
        present = [cached for cached in by_child.values() if not cached.is_gone]
        if not present:
            return []
        # A child that was away may still have what was deployed under this name before.
        epoch = max(cached.detail.epoch for cached in present)
        current = {url: cached for url, cached in by_child.items() if cached.detail.epoch == epoch}
        return [_part(cached, children.get(url)) for url, cached in sorted(current.items(), key=_by_child)]

    def unheard(self, session: str, children: Mapping[str, ChildView]) -> list[ChildView]:
        """The children that may have a part of this session of which nothing is known, sorted by name.

        Those do not answer and never told of it. There are none if all drops of the session are known.
        """
        details = [part.detail for part in self.parts(session, children)]
        if sum(detail.drops for detail in details) >= max((detail.whole for detail in details), default=0):
            return []
        holders = self.holders(session)
        found = [
            view for url, view in children.items() if url not in holders and not view.is_asked and not view.is_unfit
        ]
        return sorted(found, key=lambda view: view.name)

    def merged(self, session: str, children: Mapping[str, ChildView]) -> SessionDetail | None:
        """The session as far as it is known; None when no child holds it."""
        parts = self.parts(session, children)
        if not parts:
            return None
        told = tuple(
            (part.child, part.detail.epoch, part.detail.version, part.detail.status, part.freshness, bool(part.missing))
            for part in parts
        )
        unheard = tuple(view.name for view in self.unheard(session, children))
        return merge(parts, version=self._version(session, (told, unheard)), unheard=unheard)

    def _is_after(self, seen: int) -> bool:
        return self._changes != seen

    def _wake(self) -> None:
        self._changes += 1
        self._changed.notify_all()

    def _version(self, session: str, signature: tuple[object, ...]) -> int:
        with self._changed:
            known = self._versions.get(session)
            if known is None:
                known = _Numbered(int(self._clock.now() * 1000), signature)
            elif known.signature != signature:
                known = _Numbered(known.version + 1, signature)
            self._versions[session] = known
            return known.version

    def _note(self, child: ChildView, info: SessionInfo) -> None:
        self._told += 1
        by_child = self._sessions.setdefault(info.session, {})
        known = by_child.get(child.url)
        by_child[child.url] = _CachedPart(
            _detailed(info, known.detail if known else None), self._told, child.name, self._clock.now()
        )

    def _absent(self, session: str, url: str, since: int) -> None:
        by_child = self._sessions.get(session, {})
        known = by_child.get(url)
        if known is None or known.number > since:
            return
        by_child[url] = replace(known, is_gone=True)
        if all(cached.is_gone for cached in by_child.values()):
            del self._sessions[session]
            self._versions.pop(session, None)


def _by_child(item: tuple[str, _CachedPart]) -> tuple[str, str]:
    return item[1].child, item[0]


def _part(cached: _CachedPart, child: ChildView | None) -> SessionPart:
    name = child.name if child else cached.child
    since = strftime("%Y-%m-%d %H:%M:%S UTC", gmtime(cached.time))
    if cached.is_gone and (child is None or child.role == "node"):
        return SessionPart(name, cached.detail, Freshness.LOST, _GONE, since)
    if cached.is_gone:
        # An island that was started again knows of no session whose nodes it has not heard since.
        return SessionPart(name, cached.detail, Freshness.STALE, "does not hear the nodes of the session", since)
    if child is None or child.is_asked:
        return SessionPart(name, cached.detail)
    # What was told a moment ago holds, even if one question was not answered in time.
    freshness = Freshness.CURRENT if child.state == "alive" else Freshness.STALE
    return SessionPart(name, cached.detail, freshness, child.text or "is away", since)


def _detailed(info: SessionInfo, before: SessionDetail | None) -> SessionDetail:
    if isinstance(info, SessionDetail):
        return info
    fields = msgspec.structs.asdict(info)
    if before is None or before.epoch != info.epoch:
        return SessionDetail(**fields)
    return SessionDetail(**fields, logical=before.logical, failures=before.failures, notes=before.notes)
