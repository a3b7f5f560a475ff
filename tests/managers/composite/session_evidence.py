"""A slow, obvious model of what a composite may show of a session: which answers it got, and which supersede others.

An answer is superseded by one that was asked for after it was taken in, by one with a newer version, and by a deletion.
What the composite shows must come from answers that are not superseded.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from dropflow.api.records import SessionInfo

__all__ = ["Evidence", "SessionEvidence"]

_MANY = 8
"""Answers of a child about a session from which on those that are not needed any more are dropped."""


@dataclass(eq=False)
class Evidence:
    """One answer of a child about one session. Times are numbers of events.

    Attributes
    ----------
    asked : int
        When the call began that made the request.
    part : tuple of (int, int) or None
        Epoch and version; None if the child does not have the session.
    taken : float
        Since when it certainly counts; infinity if it may have come too late for its request.
    by : float
        When it counts at the latest, if at all.
    sent : int
        When the request was sent.
    is_deletion : bool
        Whether the session was deleted: then no answer to an earlier request counts.
    """

    asked: int
    part: tuple[int, int] | None
    taken: float = inf
    by: float = inf
    sent: int = 0
    is_deletion: bool = False

    def replaces(self, other: "Evidence") -> bool:
        """Whether `other` is not needed any more, because it is older than this one for certain."""
        if self.taken == inf or other is self:
            return False
        return self.asked >= other.by or (self.is_deletion and other.sent < self.taken and not other.is_deletion)

    def supersedes(self, other: "Evidence") -> bool:
        """Whether `other` must not be shown any more."""
        if self.taken == inf:
            return False
        if self.replaces(other):
            return True
        return self.part is not None and other.part is not None and self.part > other.part


@dataclass
class SessionEvidence:
    """All evidence of all children about all sessions, by session and the URL of the child."""

    found: dict[tuple[str, str], list[Evidence]] = field(default_factory=dict)
    hidden: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """Deletions on children that did not answer: the newest epoch that is certainly deleted, and that may be."""

    past: set[tuple[str, str, tuple[int, int]]] = field(default_factory=set)
    """All parts that came, by session and URL."""

    def add(self, session: str, url: str, evidence: Evidence) -> None:
        """Add an answer."""
        found = self._of(session, url)
        if len(found) > _MANY:
            newest = max(found, key=lambda one: one.part or (-1, -1))
            found[:] = [one for one in found if one is newest or not any(other.replaces(one) for other in found)]
        found.append(evidence)
        if evidence.part is not None:
            self.past.add((session, url, evidence.part))

    def forget_child(self, url: str) -> None:
        """Remove what is known from a child that was removed."""
        self.found = {key: found for key, found in self.found.items() if key[1] != url}
        self.hidden = {key: found for key, found in self.hidden.items() if key[1] != url}
        self.past = {key for key in self.past if key[1] != url}

    def hide(self, session: str, url: str, sure: int, perhaps: int) -> None:
        """Note that deployments up to these epochs are deleted on a child that did not answer."""
        before = self.hidden.get((session, url), (-1, -1))
        self.hidden[session, url] = max(before[0], sure), max(before[1], perhaps)

    def current(self, session: str, url: str) -> list[tuple[int, int] | None]:
        """Return the parts that may be shown of a child: those of answers that nothing supersedes."""
        found = self._of(session, url)
        left = [one.part for one in found if not any(other.supersedes(one) for other in found)]
        sure, perhaps = self.hidden.get((session, url), (-1, -1))
        shown = [part for part in left if part is None or part[0] > sure]
        return shown if any(part and part[0] > perhaps for part in shown) else [*shown, None]

    def sure_epoch(self, session: str, urls: Iterable[str]) -> int:
        """Return the newest epoch that is certainly known."""
        return max([0, *(min(part[0] if part else 0 for part in self.current(session, url)) for url in urls)])

    def newest_epoch(self, session: str) -> int:
        """Return the newest epoch that may be known."""
        found = [one.part for (name, _), many in self.found.items() if name == session for one in many]
        return max((part[0] for part in found if part), default=0)

    def check(self, session: str, info: SessionInfo | None, children: Mapping[str, str]) -> None:
        """Check what is shown of a session: a record, or that there is none.

        Parameters
        ----------
        children : mapping
            URLs of all children by name.
        """
        current = {name: self.current(session, url) for name, url in children.items()}
        certain = {name: [part for part in parts if part] for name, parts in current.items() if None not in parts}
        if info is None:
            assert not certain, f"session {session} is not shown: {certain}"
            return
        for name, sure in certain.items():
            assert info.epoch >= min(sure)[0], f"session {session} is not shown as it was deployed last: {certain}"
            if min(sure)[0] == max(sure)[0] == info.epoch:
                assert name in info.states, f"session {session} is shown without its part: {certain}"
        for name, version in info.states.items():
            assert name in children, f"session {session} is shown on {name}, which is no child"
            part = (info.epoch, version)
            if part not in current[name]:
                # A child that does not have its part any more shows the last one.
                assert None in current[name], f"session {session} shows {part} of {name}, but has {current[name]}"
                assert (session, children[name], part) in self.past, f"{name} never had {part}"
        present = [name for name, version in info.states.items() if (info.epoch, version) in current[name]]
        assert present, f"session {session} is shown, but no child has it"

    def _of(self, session: str, url: str) -> list[Evidence]:
        return self.found.setdefault((session, url), [Evidence(-1, None, -1, -1)])
