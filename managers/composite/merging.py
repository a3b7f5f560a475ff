"""Merging of what several children report about a session: pure functions over `dropflow.api.session_records`.

The result does not depend on whether records are merged in one step or in several (a master merges what islands have
merged). It equals the report of one manager with all the drops. Tests compare both with a slow oracle.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from dropflow.api.drop_records import DropQuery
from dropflow.api.session_records import FailureInfo, LogicalNodeInfo, PartEnd, SessionDetail, SessionInfo
from dropflow.errors import LinkError
from dropflow.formatting import plural
from dropflow.graph.drop_counts import add_counts, cancel, give_up
from dropflow.states import UNKNOWN, DropState, SessionState, is_over
from managers.recovery.records import CAN_RESUME

SHOWN_FAILURES = 100
"""Root causes that a `SessionDetail` carries."""

_COMPLETE_ENDS = (SessionState.FINISHED.name, SessionState.CANCELLED.name)
"""Ends that are only known when the state of every drop is known; one failure is enough for FAILED."""

_FAILED = SessionState.FAILED.name
_AT_REST: Mapping[str, Any] = {"running": 0, "queued": 0, "ready": 0, "rate": 0.0, "remaining": None, "unknown": ()}
"""The fields of a part that has ended."""

_MOVING = (SessionState.RUNNING, SessionState.PAUSED)
_SUMS = ("drops", "settled", "running", "queued", "ready", "recomputed", "computed", "reused")
"""Fields of a session that are the sum of those of its parts."""
_UNIONS = ("nodes", "unknown")
"""Fields that have the names in any of the parts."""
_OF_THE_NEWEST = ("session", "graph", "epoch", "joined_by", "request_id", "user")
"""Fields of the part that was deployed last."""
_OF_THE_LATEST_VIEW = ("view", "members")
"""Fields of the part in the latest view."""


class Freshness(Enum):
    """Whether the last report of a child is still valid."""

    CURRENT = "current"
    """The child answers."""
    STALE = "stale"
    """The child does not answer. Its last report is valid only if its part was over."""
    LOST = "lost"
    """The child is a node that answers and no longer has the session: the drops that were not settled are lost."""


@dataclass(frozen=True)
class SessionPart:
    """The last report of one child about a session.

    Attributes
    ----------
    child : str
        Name of the child.
    detail : SessionDetail
        The report.
    freshness : Freshness
        Whether `detail` is still valid.
    missing : str
        Why `detail` may be out of date; empty if it is current.
    since : str
        Time of `detail`; empty if it is current.
    """

    child: str
    detail: SessionDetail
    freshness: Freshness = Freshness.CURRENT
    missing: str = ""
    since: str = ""

    @property
    def is_answering(self) -> bool:
        """Whether the child answers, and knows the status of its part."""
        return self.freshness is Freshness.CURRENT and self.detail.status != UNKNOWN

    @property
    def unsettled(self) -> int:
        """Number of drops that were not settled in the last report."""
        return max(self.detail.drops - self.detail.settled, 0)


@dataclass(frozen=True)
class KnownEnds:
    """How parts of a session ended, as their nodes have reported.

    Attributes
    ----------
    by_node : mapping of str to PartEnd
        Ends by node.
    is_agreed : bool
        Whether the nodes have agreed that the session is over: all members of its latest view have an end. If not,
        these are parts that were cancelled.
    """

    by_node: Mapping[str, PartEnd]
    is_agreed: bool


def merge(
    parts: Sequence[SessionPart], *, version: int, silent: Iterable[str] = (), before: SessionDetail | None = None
) -> SessionDetail:
    """Return the session that consists of `parts` (at least one).

    The session is over when all parts are over. Then it is FAILED if any part is, else CANCELLED if any part is. If a
    part that was not over is silent and no other part runs, the session is UNKNOWN, unless the others report how that
    part ended (`SessionDetail.ends`). Silence alone never makes it FAILED: that takes the report of a node that has
    lost its part, or that has given up a silent node it needed. A part that answers that it is not over is not over.

    Parameters
    ----------
    silent : iterable of str
        Children that may have unknown parts. While drops are missing, the session is not over.
    before : SessionDetail, optional
        The session as it was merged before. If it was over, it stays over, also if a node answers again whose part was
        not told of the end: a session that had gone on would have a later view.
    """
    known = known_ends(parts)
    latest_part = max(parts, key=lambda part: (part.detail.epoch, part.detail.view)).detail
    details = _known_details(parts, known, latest_part, before)
    unanswered = tuple(sorted({*silent, *(name for detail in details for name in detail.silent_children)}))
    is_cancelled = _is_cancelled(latest_part.members, known.by_node)
    status_of_known = _status([_status_of_known(detail) for detail in details])
    status, is_partial = _merged_status(status_of_known, details, known, unanswered, is_cancelled=is_cancelled)
    over = is_over(status)
    states: Counter[str] = Counter()
    for detail in details:
        states.update(detail.states)
    newest = max(details, key=lambda detail: detail.epoch)
    latest = max(details, key=lambda detail: (detail.view, detail.members))
    going = [detail for detail in details if detail.status == SessionState.RUNNING.name] or details
    least_quiet = min(going, key=lambda detail: detail.quiet - detail.usual_quiet)
    missing = [f"{part.child}: {part.missing}" for part in parts if part.missing]
    fields: dict[str, Any] = {name: getattr(newest, name) for name in _OF_THE_NEWEST}
    fields |= {name: getattr(latest, name) for name in _OF_THE_LATEST_VIEW}
    fields |= {name: sum(getattr(detail, name) for detail in details) for name in _SUMS}
    fields |= {name: tuple(sorted({node for detail in details for node in getattr(detail, name)})) for name in _UNIONS}
    return SessionDetail(
        **fields,
        status=status,
        version=version,
        counts=add_counts(detail.counts for detail in details),
        states=dict(states),
        created=_first(detail.created for detail in details),
        started=_first(detail.started for detail in details),
        finished=max(detail.finished for detail in details) if over else 0.0,
        seconds=max(detail.seconds for detail in details),
        rate=_rate(details, over=over),
        remaining=None if over else _remaining(details),
        quiet=0.0 if over else least_quiet.quiet,
        usual_quiet=0.0 if over else least_quiet.usual_quiet,
        text=_merged_text(status_of_known, details, unanswered if is_partial else ()),
        whole=max(detail.whole for detail in details),
        silent_children=unanswered if is_partial else (),
        lacks_witness=any(detail.lacks_witness for detail in details if detail.view == latest.view),
        logical=merge_logical(node for detail in details for node in detail.logical),
        failures=_merged_failures(parts, details, over=over),
        notes=tuple(dict.fromkeys([*missing, *(note for detail in details for note in detail.notes)])),
        ends=tuple(known.by_node[node] for node in sorted(known.by_node)),
    )


def _merged_status(
    status: str, details: Sequence[SessionDetail], known: KnownEnds, unanswered: Sequence[str], *, is_cancelled: bool
) -> tuple[str, bool]:
    """Return the status of a session, and whether it is unknown because children that have drops of it are silent.

    `status` is that of the parts that are known.
    """
    drops, total = sum(detail.drops for detail in details), max(detail.whole for detail in details)
    if drops >= total or not unanswered or status not in _COMPLETE_ENDS:
        return status, False
    ends = known.by_node.values()
    if ends and (sum(end.counts.total for end in ends) == total or is_cancelled):
        return _status([end.status for end in ends]), False
    return UNKNOWN, True


def _merged_text(status: str, details: Sequence[SessionDetail], unanswered: Sequence[str]) -> str:
    """Return the texts of all parts, and the children that did not answer, if they have drops."""
    texts = [detail.text for detail in details if detail.text and (detail.unknown or not detail.silent_children)]
    if unanswered:
        total = max(detail.whole for detail in details)
        missing = total - sum(detail.drops for detail in details)
        texts.append(
            f"{missing} of its {total} drops are unknown: {', '.join(unanswered)} did not answer yet; "
            f"the others: {status}"
        )
    return "; ".join(dict.fromkeys(texts))


def _merged_failures(
    parts: Sequence[SessionPart], details: Sequence[SessionDetail], *, over: bool
) -> tuple[FailureInfo, ...]:
    failures = merge_failures(failure for detail in details for failure in detail.failures)
    is_complete = sum(detail.drops for detail in details) == max(detail.whole for detail in details)
    if not over and is_complete and all(part.freshness is Freshness.CURRENT for part in parts):
        # The part that has the reason reports it, perhaps after the parts to which the failure has spread.
        failures = tuple(failure for failure in failures if failure.node or not failure.drop)
    return failures[:SHOWN_FAILURES]


def _known_details(
    parts: Sequence[SessionPart], known: KnownEnds, latest: SessionDetail, before: SessionDetail | None
) -> list[SessionDetail]:
    """Return each part as it is known to be: as it answers, or as others have reported that it ended."""
    was_over = before is not None and before.is_over and (before.epoch, before.view) == (latest.epoch, latest.view)
    stays_over = was_over and known.is_agreed
    reported = lost_nodes(failure for part in parts for failure in part.detail.failures)
    return [
        ended_detail(part, known) or known_detail(part, reported)
        if stays_over or part.detail.is_over or not part.is_answering
        else part.detail
        for part in parts
    ]


def as_info(detail: SessionDetail) -> SessionInfo:
    """Return the row of the list of sessions for `detail`."""
    return SessionInfo(**{name: getattr(detail, name) for name in SessionInfo.__struct_fields__})


def merge_logical(nodes: Iterable[LogicalNodeInfo]) -> tuple[LogicalNodeInfo, ...]:
    """Return the logical nodes with their counts added by key, in the order of the graph."""
    merged: dict[str, LogicalNodeInfo] = {}
    for node in nodes:
        known = merged.get(node.key)
        if known is None:
            merged[node.key] = node
        else:
            states = dict(Counter(known.states) + Counter(node.states))
            merged[node.key] = msgspec.structs.replace(
                known,
                drops=known.drops + node.drops,
                states=states,
                running=known.running + node.running,
                counts=add_counts((known.counts, node.counts)),
            )
    return tuple(sorted(merged.values(), key=lambda node: node.order))


def merge_failures(failures: Iterable[FailureInfo]) -> tuple[FailureInfo, ...]:
    """Return the root causes with their counts added by row (by name, for lost nodes), the most harmful first.

    Only the node of a drop has all details of its failure, so the record with the most details is kept.
    """
    merged: dict[int | str, FailureInfo] = {}
    for failure in failures:
        key = failure.row if failure.row >= 0 else failure.drop or failure.name
        known = merged.get(key)
        if known is None:
            merged[key] = failure
            continue
        best = max(
            known, failure, key=lambda report: (bool(report.node), report.has_log, len(report.detail), report.attempts)
        )
        merged[key] = msgspec.structs.replace(
            best,
            count=known.count + failure.count,
            took_along=known.took_along + failure.took_along,
            drops=tuple(dict.fromkeys((*known.drops, *failure.drops)))[:SHOWN_FAILURES],
        )
    # Equal counts are ordered by row, as nodes do, so that all truncated lists have the same failures.
    return tuple(sorted(merged.values(), key=lambda failure: (-failure.count, failure.row, failure.drop, failure.name)))


class RowRange(msgspec.Struct, frozen=True):
    """The rows of one child that a page needs; `child` is its index among the children."""

    child: int
    offset: int
    limit: int


def row_ranges(totals: Sequence[int], query: DropQuery) -> tuple[RowRange, ...]:
    """Return the rows of each child that, one after the other, are the page that `query` requests.

    Parameters
    ----------
    totals : sequence of int
        How many rows of each child match.
    """
    ranges = []
    start, left = query.offset, query.limit
    for child, total in enumerate(totals):
        take = min(max(total - start, 0), left)
        if take:
            ranges.append(RowRange(child, start, take))
            left -= take
        start = max(start - total, 0)
    return tuple(ranges)


def _status_of_known(detail: SessionDetail) -> str:
    """Return the status of the known drops only."""
    if not detail.silent_children or detail.unknown:
        return detail.status
    state = SessionState.CANCELLED if detail.states.get(DropState.CANCELLED.name) else SessionState.FINISHED
    return state.name


def _status(statuses: Sequence[str]) -> str:
    states = [SessionState[status] for status in statuses if status != UNKNOWN]
    if len(states) < len(statuses) and all(state.is_terminal for state in states):
        return UNKNOWN
    if all(state.is_terminal for state in states):
        worst = (state for state in (SessionState.FAILED, SessionState.CANCELLED) if state in states)
        return next(worst, SessionState.FINISHED).name
    going = {state for state in states if not state.is_terminal}
    if len(set(states)) == 1 or going == {SessionState.PAUSED}:
        return going.pop().name
    if SessionState.CANCELLING in going:
        return SessionState.CANCELLING.name
    # Parts change state at different times: the session has the state of the part that is furthest ahead.
    is_moving = any(state in _MOVING or state.is_terminal for state in states)
    return (SessionState.RUNNING if is_moving else max(states)).name


def _first(times: Iterable[float]) -> float:
    return min((time for time in times if time), default=0.0)


def _rate(details: Sequence[SessionDetail], *, over: bool) -> float:
    """Return drops per second: the sum of the parts; of a session that is over, its average."""
    if not over:
        return sum(detail.rate for detail in details if not detail.is_over)
    seconds = max(detail.seconds for detail in details)
    return sum(detail.settled for detail in details) / seconds if seconds > 0 else 0.0


def _remaining(details: Sequence[SessionDetail]) -> float | None:
    # A node where nothing settles waits for the others, which have an estimate.
    going = [detail.remaining for detail in details if not detail.is_over and not detail.is_quiet]
    known = [seconds for seconds in going if seconds is not None]
    return max(known) if known and len(known) == len(going) else None


def lost_nodes(failures: Iterable[FailureInfo]) -> frozenset[str]:
    """Return the nodes that are lost according to these failures."""
    return frozenset(failure.name for failure in failures if not failure.drop)


def _is_cancelled(members: Sequence[str], ends: Mapping[str, PartEnd]) -> bool:
    """Return whether so many members have cancelled a session that the others cannot go on."""
    cancelled = [node for node in members if node in ends and ends[node].status == SessionState.CANCELLED.name]
    return len(cancelled) > len(members) // 2


def _cancelled(detail: SessionDetail) -> SessionDetail:
    """Return the report of a part that was cancelled since."""
    states = Counter(detail.states)
    for state in (DropState.INITIALIZED.name, DropState.WRITING.name):
        states[DropState.CANCELLED.name] += states.pop(state, 0)
    return msgspec.structs.replace(
        detail,
        **_AT_REST,
        status=SessionState.CANCELLED.name,
        settled=detail.drops,
        counts=cancel(detail.counts),
        states={state: count for state, count in states.items() if count},
        logical=tuple(msgspec.structs.replace(node, running=0, counts=cancel(node.counts)) for node in detail.logical),
        text="",
        silent_children=(),
    )


def known_ends(parts: Sequence[SessionPart]) -> KnownEnds:
    """Return how the parts of nodes ended, as far as any of them has reported it."""
    latest_view = max((part.detail.view for part in parts), default=0)
    agreed, members = set[str](), set[str]()
    for detail in (part.detail for part in parts if part.detail.view == latest_view):
        agreed.update(end.node for end in detail.ends)
        members.update(detail.members)
    ends = {end.node: end for part in parts for end in part.detail.ends}
    return KnownEnds(ends, is_agreed=bool(agreed) and members <= agreed)


def known_detail(part: SessionPart, reported: frozenset[str]) -> SessionDetail:
    """Return the report of a part, changed to what is still known if the report is out of date.

    Parameters
    ----------
    reported : set of str
        Nodes that other nodes of the session have given up; they are lost, not only silent.
    """
    detail = part.detail
    if detail.is_over:
        return detail
    if part.freshness is Freshness.LOST:
        return _given_up(part, reported)
    if part.freshness is Freshness.STALE:
        silent = detail.nodes or (part.child,)
    elif detail.status == UNKNOWN:
        silent = detail.unknown
    else:
        return detail
    if silent and reported.issuperset(silent):
        return _given_up(part, reported)
    if part.freshness is Freshness.CURRENT:
        return detail
    settled = f"{part.detail.settled} of its {detail.drops} drops were settled"
    when = f" at {part.since}" if part.since else ""
    return msgspec.structs.replace(
        detail,
        status=UNKNOWN,
        rate=0.0,
        remaining=None,
        text=f"{part.child} is unavailable ({part.missing}): its part was {detail.status}{when}, when {settled}",
        unknown=tuple(sorted(silent)),
    )


def ended_detail(part: SessionPart, ends: KnownEnds) -> SessionDetail | None:
    """Return the report of a part that was not over when its nodes answered last, if others know how it has ended.

    Also if it FAILED only because a full disk has lost its record: the end that the nodes have agreed on counts.
    """
    detail = part.detail
    # Nodes without an end were members of earlier views only: others have taken over their drops.
    own = [ends.by_node[node] for node in detail.nodes if node in ends.by_node] if ends.is_agreed else []
    status = _status([end.status for end in own]) if own else ""
    is_unrecorded = detail.status == _FAILED and status not in ("", _FAILED)
    if detail.is_over and not is_unrecorded:
        return None
    if not own:
        return _cancelled(detail) if _is_cancelled(detail.members, ends.by_node) else None
    drops = sum(end.counts.total for end in own)
    completed = sum(end.counts.completed for end in own) - detail.counts.completed
    lost = f"{part.child} has no record of {plural(completed, 'completed drop')} any more: {detail.text}"
    return msgspec.structs.replace(
        detail,
        **_AT_REST,
        status=status,
        failures=tuple(failure for failure in detail.failures if failure.drop or not is_unrecorded),
        notes=(*detail.notes, lost) if is_unrecorded else detail.notes,
        drops=drops,
        settled=drops,
        counts=add_counts(end.counts for end in own),
        states=dict(sum((Counter(end.states) for end in own), Counter[str]())),
        logical=merge_logical(node for end in own for node in end.logical),
        text="",
        silent_children=(),
    )


def unrecorded_nodes(parts: Sequence[SessionPart]) -> tuple[str, ...]:
    """Return the nodes that have lost the record of how their part ended, and so contents of its drops."""
    ends = known_ends(parts)
    lost = [part for part in parts if part.detail.is_over and ended_detail(part, ends) is not None]
    return tuple(node for part in lost for node in part.detail.nodes)


def _given_up(part: SessionPart, reported: frozenset[str]) -> SessionDetail:
    """Return the report of a part whose unsettled drops are lost."""
    detail = part.detail
    left = f"{part.unsettled} of its {detail.drops} drops were not settled"
    nodes = detail.nodes or (part.child,)
    is_reported = reported.issuperset(nodes)
    text = f"{part.child}: {left}" if is_reported else f"node {part.child} is lost: {part.missing}; {left}"
    # If another node reports the same loss, this record only adds its drops: an empty `node` keeps the other's text.
    failure = FailureInfo(
        drop="",
        name=nodes[0] if is_reported else part.child,
        node="" if is_reported else part.child,
        code=LinkError.code,
        kind="NodeLost",
        text=text,
        hint=CAN_RESUME,
        count=part.unsettled,
    )
    return msgspec.structs.replace(
        detail,
        **_AT_REST,
        status=SessionState.FAILED.name,
        settled=detail.drops,
        counts=give_up(detail.counts),
        logical=tuple(msgspec.structs.replace(node, running=0, counts=give_up(node.counts)) for node in detail.logical),
        text=text,
        failures=(*detail.failures, failure),
    )
