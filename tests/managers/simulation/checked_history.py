"""The rest of a history of sessions, and its checker.

The checker is a pure function over a history, in the manner of Jepsen: it does not know how nodes agree, only what
users rely on.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from managers.simulation.history import Committed, ContentEvent, HistoryEvent, Read, Revoked


class Acknowledged(ContentEvent, frozen=True, kw_only=True):
    """The session ended as FINISHED on a node, with this content as a result."""


class Found(ContentEvent, frozen=True, kw_only=True):
    """The content is there when the history ends."""


class Promised(HistoryEvent, frozen=True, kw_only=True):
    """A node promised to commit nothing more in its view, and reported its state."""


class Gone(HistoryEvent, frozen=True, kw_only=True):
    """A node lost what it had, because its process ended or it left the session, or a session was deleted."""


Record = Committed | Revoked | Read | Acknowledged | Found | Promised | Gone


@dataclass
class _Seen:
    """What a history says up to some record."""

    contents: set[tuple[str, str, str]] = field(default_factory=set)
    """Session, drop and digest of all commits."""
    commits: dict[tuple[str, int, str], Committed] = field(default_factory=dict)
    """By session, view and drop."""
    reads: dict[tuple[str, int, str], Read] = field(default_factory=dict)
    """The first, by session, view and drop."""
    promises: dict[tuple[str, str], Promised] = field(default_factory=dict)
    """The latest, by session and node."""
    results: dict[tuple[str, str, str], Acknowledged] = field(default_factory=dict)
    """Acknowledged results that must be there, by session, node and drop."""
    found: set[tuple[str, str, str, str]] = field(default_factory=set)
    """Session, node, drop and digest of the contents that are there."""


def check_history(history: Iterable[HistoryEvent], *, is_complete: bool = True) -> list[str]:
    """Return what is wrong with a history, as sentences; an empty list if nothing is.

    * No attempt reads a content that was not committed before.
    * No two attempts read different contents of one drop in one view.
    * No drop is committed twice in one view of its session.
    * No node commits in a view after it has promised not to.
    * No acknowledged result is gone while the process of its node lives.

    Parameters
    ----------
    history : iterable of HistoryEvent
        In the order of time.
    is_complete : bool
        Whether the history ends with a `Found` for everything that is there. Otherwise the last rule is not checked.
    """
    seen, wrong = _Seen(), list[str]()
    for record in history:
        problem = _check(record, seen)
        if problem:
            wrong.append(f"{record.time:.3f} s: {problem}")
    for (session, node, drop), result in seen.results.items():
        if is_complete and (session, node, drop, result.digest) not in seen.found:
            wrong.append(f"result {drop} of session {session} on {node}, acknowledged at {result.time:.3f} s, is gone")
    return wrong


def _check(record: HistoryEvent, seen: _Seen) -> str:  # noqa: C901, PLR0912 - one case for each kind of record
    """Add a record to what is known; return what is wrong with it."""
    match record:
        case Committed():
            return _check_commit(record, seen)
        case Revoked():
            seen.commits.pop((record.session, record.view, record.drop), None)
        case Read():
            if (record.session, record.drop, record.digest) not in seen.contents:
                return f"{record.node} reads a content of drop {record.drop} that was not committed"
            first = seen.reads.setdefault((record.session, record.view, record.drop), record)
            if first.digest != record.digest:
                return f"{record.node} reads another content of drop {record.drop} than {first.node} did in this view"
        case Promised():
            seen.promises[record.session, record.node] = record
        case Acknowledged():
            seen.results[record.session, record.node, record.drop] = record
        case Found():
            seen.found.add((record.session, record.node, record.drop, record.digest))
        case Gone():
            for session, node, drop in list(seen.results):
                if node == (record.node or node) and session == (record.session or session):
                    del seen.results[session, node, drop]
            for session, node in list(seen.promises):
                if node == record.node and session == (record.session or session):
                    del seen.promises[session, node]
    return ""


def _check_commit(record: Committed, seen: _Seen) -> str:
    promise = seen.promises.get((record.session, record.node))
    key = record.session, record.view, record.drop
    before = seen.commits.setdefault(key, record)
    seen.contents.add((record.session, record.drop, record.digest))
    if promise is not None and record.view <= promise.view:
        return f"{record.node} commits drop {record.drop} in view {record.view}, which it promised to end"
    if before is not record:
        return f"{record.node} commits drop {record.drop} in view {record.view}, and {before.node} did before"
    return ""
