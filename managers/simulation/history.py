"""Histories of sessions: what was committed, read and acknowledged, when and in which view; and a checker.

A history is recorded from a simulated cluster (`managers.simulation.recorder`) or from real processes. The checker is a
pure function over it, in the manner of Jepsen: it does not know how nodes agree, only what users rely on. Records are
in the order of their times; those of one moment are in the order in which they happened.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

__all__ = ["Acknowledged", "Committed", "Found", "Gone", "Promised", "Read", "Record", "Revoked", "check_history"]


class _Record(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Something that happened at a time, on a node, in a view of a session.

    Attributes
    ----------
    time : float
        Seconds.
    node, session : str
        Where, and in which session. A `Gone` without a session concerns all of them.
    view : int
        Of the session on that node.
    """

    time: float
    node: str
    session: str = ""
    view: int = 0


class _ContentRecord(_Record, frozen=True, kw_only=True):
    """Something that happened to the content of a data drop.

    Attributes
    ----------
    drop : str
        Its id.
    digest : str
        Of the content.
    """

    drop: str
    digest: str


class Committed(_ContentRecord, frozen=True, kw_only=True):
    """A content became that of a drop."""


class Revoked(_ContentRecord, frozen=True, kw_only=True):
    """A commit was undone before anything could read it: another output of the attempt could not be stored."""


class Read(_ContentRecord, frozen=True, kw_only=True):
    """An attempt started to read a content."""


class Acknowledged(_ContentRecord, frozen=True, kw_only=True):
    """The session ended as FINISHED on a node, with this content as a result."""


class Found(_ContentRecord, frozen=True, kw_only=True):
    """The content is there when the history ends."""


class Promised(_Record, frozen=True, kw_only=True):
    """A node promised to commit nothing more in its view, and reported its state."""


class Gone(_Record, frozen=True, kw_only=True):
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


def check_history(history: Iterable[Record], *, is_complete: bool = True) -> list[str]:
    """Return what is wrong with a history, as sentences; an empty list if nothing is.

    * No attempt reads a content that was not committed before.
    * No two attempts read different contents of one drop in one view.
    * No drop is committed twice in one view of its session.
    * No node commits in a view after it has promised not to.
    * No acknowledged result is gone while the process of its node lives.

    Parameters
    ----------
    history : iterable of Record
        In the order of time.
    is_complete : bool
        Whether the history ends with a `Found` for everything that is there. Otherwise the last rule is not checked.
    """
    seen, wrong = _Seen(), list[str]()
    for record in history:
        found = _check(record, seen)
        if found:
            wrong.append(f"{record.time:.3f} s: {found}")
    for (session, node, drop), result in seen.results.items():
        if is_complete and (session, node, drop, result.digest) not in seen.found:
            wrong.append(f"result {drop} of session {session} on {node}, acknowledged at {result.time:.3f} s, is gone")
    return wrong


def _check(record: Record, seen: _Seen) -> str:  # noqa: C901, PLR0912 - one case for each kind of record
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
