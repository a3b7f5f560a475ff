"""The last answers of children about sessions: used if a child does not answer, and to number changes.

This is only a cache. A composite that restarts begins with an empty cache and asks its children. It lacks only the
parts of sessions on children that do not answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec

from dropflow.api.session_records import SessionDetail, SessionInfo, SessionVersion
from dropflow.states import SessionState
from managers.composite.children import ChildView, MachineTime, Newest
from managers.composite.merging import Freshness, SessionPart, merge

_GONE = "does not know the session any more: it was started again, or the session was deleted there"
_REMEMBERED = 10_000
"""Number of deletions that are remembered, so that a late answer does not bring a session back."""


@dataclass(frozen=True)
class _CachedPart:
    """The last answer of one child about one session.

    Attributes
    ----------
    number : int
        Number of the answer among all answers.
    child : str
        Name of the child.
    time : float
        Time at which it came, in seconds since the epoch.
    is_gone : bool
        Whether the child has answered since that it does not have the session.
    has_old_details : bool
        Whether counts by logical node, failures and notes are of an earlier version than the rest, or not known yet.
    """

    detail: SessionDetail
    number: int
    child: str
    time: float
    is_gone: bool = False
    has_old_details: bool = False

    @property
    def since(self) -> str:
        """Text with the time at which it came."""
        return datetime.fromtimestamp(self.time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

    @property
    def was_undone(self) -> bool:
        """Whether the deployment of the session was undone on this child before it started."""
        return self.is_gone and self.detail.status == SessionState.DEPLOYING.name


@dataclass(frozen=True)
class _Merged:
    """A merged session, and what it was merged from."""

    parts: tuple[SessionPart, ...]
    silent: tuple[str, ...]
    detail: SessionDetail

    @property
    def signature(self) -> tuple[object, ...]:
        """A value that changes whenever the merged session changes."""
        sources = [(part.child, _signature(part.detail), part.freshness, bool(part.missing)) for part in self.parts]
        return *sources, self.silent


class SessionCache:
    """Answers by session and by the URL of the child.

    An answer replaces the answer before if its request was sent after that answer came, or if its version is not lower.
    So the answers to requests that overlap do not bring back an older state of a session.

    Parameters
    ----------
    time : MachineTime
        The time of the event that is handled. Versions start from it, so that they are higher after a restart of the
        composite than before.
    """

    def __init__(self, time: MachineTime) -> None:
        self._time = time
        self._sessions: dict[str, dict[str, _CachedPart]] = {}
        self._merged: dict[str, _Merged] = {}
        self._forgotten = Newest[tuple[str, str], int](_REMEMBERED)
        """The number of answers when a session was deleted on a child, by session and URL.

        An empty URL stands for all children. An empty session stands for the removal of the child.
        """
        self._answers = 0
        self.changes = 0
        """Counter that grows when a session may have changed."""

    @property
    def answers(self) -> int:
        """Number of answers so far. It is passed back as `since` with the answer to a request that is sent now."""
        return self._answers

    def note(self, child: ChildView, info: SessionInfo, *, since: int) -> None:
        """Store an answer. If it lacks the details of `SessionDetail`, the details of the answer before are kept."""
        if self._is_newer(child.url, info, since):
            self._answers += 1
            by_child = self._sessions.setdefault(info.session, {})
            known = by_child.get(child.url)
            detail = _detailed(info, known.detail if known else None)
            is_old = not isinstance(info, SessionDetail) and (
                known is None or known.has_old_details or known.detail.version != info.version
            )
            by_child[child.url] = _CachedPart(
                detail, self._answers, child.name, self._time.wall, has_old_details=is_old
            )
            self.changes += 1

    def note_absent(self, session: str, url: str, *, since: int) -> None:
        """Record that the child does not have this session."""
        by_child = self._sessions.get(session, {})
        known = by_child.get(url)
        if known is None or known.number > since:
            return
        self._answers += 1
        by_child[url] = replace(known, is_gone=True, number=self._answers)
        if all(part.is_gone for part in by_child.values()):
            self.forget(session, tuple(by_child))
        self.changes += 1

    def note_others_absent(self, url: str, present: Iterable[str], *, since: int) -> None:
        """Record that the child has no sessions except those in `present`."""
        names = frozenset(present)
        for session in [name for name, by_child in self._sessions.items() if url in by_child and name not in names]:
            self.note_absent(session, url, since=since)

    def is_current(self, url: str, row: SessionVersion) -> bool:
        """Return whether the last answer of a child about a session that is over has this version."""
        known = self._sessions.get(row.session, {}).get(url)
        return (
            known is not None
            and not known.is_gone
            and known.detail.is_over
            and (known.detail.epoch, known.detail.version) == (row.epoch, row.version)
        )

    def forget(self, session: str, urls: Iterable[str] | None = None) -> None:
        """Remove a session that was deleted, on all children or on these."""
        by_child = self._sessions.get(session, {})
        for url in list(by_child if urls is None else urls):
            by_child.pop(url, None)
            self._remember(session, url)
        if urls is None:
            self._remember(session, "")
        if not by_child:
            self._sessions.pop(session, None)
            self._merged.pop(session, None)
        self.changes += 1

    def forget_child(self, url: str) -> None:
        """Remove the answers of a child that was removed; later answers of it are ignored."""
        self._remember("", url)
        for session in [name for name, by_child in self._sessions.items() if url in by_child]:
            self.forget(session, [url])

    def sessions(self) -> tuple[str, ...]:
        """Return the names of all sessions that a child has or had."""
        return tuple(self._sessions)

    def holders(self, session: str) -> frozenset[str]:
        """Return the URLs of the children that have or had a part of this session."""
        return frozenset(self._sessions.get(session, {}))

    def has_unfinished(self, url: str) -> bool:
        """Return whether a session was not over at this child in its last answers."""
        held = [by_child[url] for by_child in self._sessions.values() if url in by_child]
        return any(not part.detail.is_over for part in held)

    def open_drops(self, session: str) -> int:
        """Return an upper bound of the drops of this session that were not settled in the last answers."""
        held = self._sessions.get(session, {}).values()
        return sum(part.detail.drops - part.detail.settled for part in held)

    def lacks_witness(self, session: str) -> bool:
        """Return whether a child has reported that this session lacks a witness."""
        return any(part.detail.lacks_witness for part in self._sessions.get(session, {}).values())

    def epoch_of(self, session: str, url: str | None = None) -> int:
        """Return the newest deployment of this session, at any child or at this one; 0 if there is none."""
        parts = self._sessions.get(session, {}).items()
        return max((part.detail.epoch for child, part in parts if url in (None, child)), default=0)

    def version_of(self, session: str, url: str) -> int:
        """Return the version in the last answer of a child, as counted by the child; -1 if there is no answer."""
        known = self._sessions.get(session, {}).get(url)
        return known.detail.version if known else -1

    def has_old_details(self, session: str, url: str) -> bool:
        """Return whether the last details of a child are older than the numbers that it has sent since."""
        known = self._sessions.get(session, {}).get(url)
        return known is not None and known.has_old_details

    def is_over_at(self, session: str, url: str) -> bool:
        """Return whether the part of a child was over when it answered last."""
        known = self._sessions.get(session, {}).get(url)
        return known is not None and known.detail.is_over

    def parts(self, session: str, children: Mapping[str, ChildView]) -> list[SessionPart]:
        """Return the parts of a session, sorted by child; none if no child has it.

        Parameters
        ----------
        children : mapping
            All children as they are now, by URL.
        """
        current, former = self._of_deployment(session), self.former_holders(session)
        held = sorted(((url, part) for url, part in current.items() if url not in former), key=_by_child)
        return [_part(part, children.get(url)) for url, part in held]

    def former_holders(self, session: str) -> frozenset[str]:
        """Return the URLs of children whose part does not count any more: the session goes on without their nodes."""
        current, members = self._of_deployment(session), self._members(session)
        return frozenset(url for url, part in current.items() if members and not frozenset(part.detail.nodes) & members)

    def lacking_nodes(self, session: str, absent: Iterable[ChildView]) -> tuple[str, ...]:
        """Return the members of this session, sorted, that are, or are below, the children that do not have it."""
        below = {name for view in absent for name in (view.name, *(node.name for node in view.nodes))}
        return tuple(sorted(self._members(session) & below))

    def _members(self, session: str) -> frozenset[str]:
        """Return the members of the latest view of this session."""
        details = [part.detail for part in self._of_deployment(session).values()]
        return frozenset(max(((detail.view, detail.members) for detail in details), default=(0, ()))[1])

    def _of_deployment(self, session: str) -> Mapping[str, _CachedPart]:
        """Return the parts of the latest deployment by URL; none if no child has it."""
        by_child = self._sessions.get(session, {})
        present = [part for part in by_child.values() if not part.is_gone]
        if not present:
            return {}
        # A child that did not answer may still have an earlier deployment of this name.
        epoch = max(part.detail.epoch for part in present)
        return {url: part for url, part in by_child.items() if part.detail.epoch == epoch and not part.was_undone}

    def silent_children(self, session: str, children: Mapping[str, ChildView]) -> list[ChildView]:
        """Return the children that may have an unknown part of this session, sorted by name.

        These are the children that do not answer now and never answered about this session. The list is empty if all
        drops of the session are known.
        """
        return self._silent_children(session, self.parts(session, children), children)

    def _silent_children(
        self, session: str, parts: Sequence[SessionPart], children: Mapping[str, ChildView]
    ) -> list[ChildView]:
        details = [part.detail for part in parts]
        if sum(detail.drops for detail in details) >= max((detail.whole for detail in details), default=0):
            return []
        holders = self.holders(session)
        silent = [
            view for url, view in children.items() if url not in holders and not view.is_asked and not view.is_unfit
        ]
        return sorted(silent, key=lambda view: view.name)

    def merged(self, session: str, children: Mapping[str, ChildView]) -> SessionDetail | None:
        """Return the session as far as it is known; None if no child has it."""
        parts = tuple(self.parts(session, children))
        if not parts:
            return None
        silent = tuple(view.name for view in self._silent_children(session, parts, children))
        known = self._merged.get(session)
        if known is not None and known.parts == parts and known.silent == silent:
            return known.detail
        before = known.detail if known else None
        detail = merge(parts, version=int(self._time.wall * 1000), silent=silent, before=before)
        merged = _Merged(parts, silent, detail)
        if known is not None:
            version = known.detail.version + (known.signature != merged.signature)
            merged = replace(merged, detail=msgspec.structs.replace(merged.detail, version=version))
        self._merged[session] = merged
        return merged.detail

    def _is_newer(self, url: str, info: SessionInfo, since: int) -> bool:
        forgotten = ((info.session, url), (info.session, ""), ("", url))
        if max(self._forgotten.get(key, -1) for key in forgotten) > since:
            return False
        known = self._sessions.get(info.session, {}).get(url)
        if known is None or known.number <= since:
            return True
        return not known.is_gone and (info.epoch, info.version) >= (known.detail.epoch, known.detail.version)

    def _remember(self, session: str, url: str) -> None:
        self._answers += 1
        self._forgotten[session, url] = self._answers


def _signature(detail: SessionDetail) -> tuple[object, ...]:
    """Return a value that changes with every change of a report."""
    return detail.epoch, detail.view, detail.version, detail.status


def _by_child(item: tuple[str, _CachedPart]) -> tuple[str, str]:
    return item[1].child, item[0]


def _part(cached: _CachedPart, child: ChildView | None) -> SessionPart:
    name = child.name if child else cached.child
    if cached.is_gone and (child is None or child.role == "node"):
        return SessionPart(name, cached.detail, Freshness.LOST, _GONE, cached.since)
    if cached.is_gone:
        # An island that was restarted lacks a session until the nodes of the session have answered.
        text = "has no answers of the nodes of the session"
        return SessionPart(name, cached.detail, Freshness.STALE, text, cached.since)
    if child is None or child.is_asked:
        return SessionPart(name, cached.detail)
    # An answer of a moment ago is recent enough, even if one request was not answered in time.
    freshness = Freshness.CURRENT if child.state == "alive" else Freshness.STALE
    return SessionPart(name, cached.detail, freshness, child.text or "does not answer", cached.since)


def _detailed(info: SessionInfo, before: SessionDetail | None) -> SessionDetail:
    if isinstance(info, SessionDetail):
        return info
    fields = msgspec.structs.asdict(info)
    if before is None or before.epoch != info.epoch:
        return SessionDetail(**fields)
    kept = {name: getattr(before, name) for name in ("logical", "failures", "notes", "ends")}
    return SessionDetail(**fields, **kept)
