"""Answers about one session of a manager, as several commands give them."""

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

import msgspec

from dropflow.api.drop_records import ResultInfo
from dropflow.api.session_records import FailureInfo, LogicalNodeInfo, SessionDetail, SessionInfo
from dropflow.cli.exit_status import Exit, exit_for_status
from dropflow.cli.output import columns, shell_command
from dropflow.cli.sessions.session_end import (
    beside_status,
    count_lines,
    headline,
    incomplete_lines,
    session_failure_lines,
)
from dropflow.formatting import few, format_rate, plural
from dropflow.graph.drop_counts import NO_DROPS, DropCounts, IncompleteDrop
from dropflow.states import STOPPED_AT_WALLTIME, DropState, SessionState

_ALWAYS = (DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED)
_SHOWN_NODES = 40
"""Logical nodes in the table of a session."""


class SessionReply(msgspec.Struct, frozen=True, kw_only=True):
    """One session as it is now."""

    ok: bool
    url: str
    session: SessionDetail
    incomplete: tuple[IncompleteDrop, ...] = ()

    @classmethod
    def of(cls, detail: SessionDetail, *, manager: str, results: Sequence[ResultInfo] = ()) -> "SessionReply":
        """Return the reply for a session at the manager with this URL."""
        lacking = [result for result in results if result.missing]
        return cls(
            ok=exit_for_status(detail.status) is Exit.FINISHED,
            url=session_url(manager, detail.session),
            session=detail,
            incomplete=tuple(
                IncompleteDrop(drop=drop.oid, name=drop.name, fraction=1 - drop.missing) for drop in lacking
            ),
        )

    def lines(self) -> Iterator[str]:
        """Status, one line for each logical node, and the root causes of failures."""
        detail = self.session
        text = "" if detail.failures else detail.text
        states = _split_writing(shown_states(detail), detail.counts)
        yield headline(detail.status, detail.drops, detail.seconds, states, text)
        if not detail.is_over:
            left = f", {detail.time_left}" if detail.time_left else ""
            waiting = detail.queued + detail.ready
            yield f"  {detail.running:,} running, {waiting:,} waiting for a worker, {format_rate(detail.rate)}{left}"
        if detail.nodes or detail.user:
            on, of = f"on {few(detail.nodes)}", f"of user {detail.user}"
            yield f"  {', '.join(text for text, there in ((of, detail.user), (on, detail.nodes)) if there)}"
        if detail.reused:
            yield f"  {plural(detail.computed, 'application')} run, {detail.reused:,} reused from earlier runs"
        if detail.recomputed:
            yield f"  {plural(detail.recomputed, 'completed drop')} computed again because contents were lost"
        shown = [node for node in detail.logical if not node.artificial]
        yield from columns([_logical_row(node) for node in shown[:_SHOWN_NODES]], header=("node", "settled", "states"))
        if len(shown) > _SHOWN_NODES:
            yield f"  ... and {plural(len(shown) - _SHOWN_NODES, 'more logical node')}"
        yield from count_lines(detail.counts)
        yield from session_failure_lines(detail.failures, detail.session, unlisted=detail.unlisted, url=self.url)
        yield from incomplete_lines(self.incomplete)
        yield from (f"note: {note}" for note in detail.notes)
        yield f"  {self.url}"


class SubmitReply(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was started; with ``--wait``, also how it ended, in the fields of ``dropflow run``.

    Attributes
    ----------
    ok : bool
        Whether the session was started, and, with ``--wait``, whether it is FINISHED.
    url : str
        Page of the session for a browser.
    waited : bool
        Whether the status is the last one.
    unlisted : int
        Drops in ERROR because of causes that are not in `failures`.
    output : str
        Where the results are: at the manager, until ``dropflow fetch`` copies them, or in a directory.
    """

    ok: bool
    session: str
    status: str
    drops: int
    states: dict[str, int]
    counts: DropCounts = NO_DROPS
    seconds: float
    failures: tuple[FailureInfo, ...] = ()
    unlisted: int = 0
    notes: tuple[str, ...] = ()
    text: str = ""
    nodes: tuple[str, ...] = ()
    parts: int = 1
    computed: int = 0
    reused: int = 0
    url: str
    waited: bool = False
    output: str = ""

    @classmethod
    def of(cls, info: SessionInfo, *, manager: str, parts: int, waited: bool, results: str = "") -> "SubmitReply":
        """Return the reply for a session at the manager with this URL, whose results may be here."""
        detail = info if isinstance(info, SessionDetail) else None
        url = session_url(manager, info.session)
        return cls(
            ok=info.status == SessionState.FINISHED.name if waited else True,
            session=info.session,
            status=info.status,
            drops=info.drops,
            states=shown_states(info),
            counts=info.counts,
            seconds=round(info.seconds, 3),
            failures=detail.failures if detail else (),
            unlisted=detail.unlisted if detail else 0,
            notes=detail.notes if detail else (),
            text=info.text,
            nodes=info.nodes,
            parts=parts,
            computed=info.computed,
            reused=info.reused,
            url=url,
            waited=waited,
            output=results or url,
        )

    def lines(self) -> Iterator[str]:
        """Place of the session, or its end with the causes of its failures; and possible next steps."""
        if not self.waited:
            where = f" on {few(self.nodes)}" if self.nodes else ""
            yield f"{self.session}  {self.status}  {plural(self.drops, 'drop')}{where}"
            yield f"  in the browser: {self.url}"
            yield f"  here:           {shell_command('watch', self.session)}"
            yield from (f"note: {note}" for note in self.notes)
            return
        yield headline(self.status, self.drops, self.seconds, self.states, "" if self.failures else self.text)
        if self.reused:
            yield f"{plural(self.computed, 'application')} run, {self.reused:,} reused"
        yield from count_lines(self.counts)
        yield from session_failure_lines(self.failures, self.session, unlisted=self.unlisted, url=self.url)
        yield from (f"note: {note}" for note in self.notes)
        if self.output == self.url:
            yield f"results: {shell_command('fetch', self.session)}, or {self.url}"
        else:
            yield f"results in {self.output}"


class SessionChange(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a session after a request to cancel or delete it."""

    ok: bool = True
    session: str
    status: str
    text: str = ""

    def lines(self) -> Iterator[str]:
        """One line."""
        text = beside_status(self.status, self.text)
        yield f"{self.session}: {self.status}{f' ({text})' if text else ''}"


def exit_of_session(info: SessionInfo) -> Exit:
    """Return the exit status for a session that was followed to its end."""
    is_late = info.status == SessionState.CANCELLED.name and STOPPED_AT_WALLTIME in info.text
    return Exit.PAUSED if is_late else exit_for_status(info.status)


def session_url(manager: str, session: str) -> str:
    """Return the page of a session for a browser."""
    return f"{manager}/sessions/{quote(session, safe='')}"


def shown_states(info: SessionInfo) -> dict[str, int]:
    """Return the drops by state, in the order of the states; the three usual ones always, as in ``dropflow run``."""
    return {
        state.name: info.states.get(state.name, 0)
        for state in DropState
        if info.states.get(state.name) or state in _ALWAYS
    }


def _split_writing(states: Mapping[str, int], counts: DropCounts) -> dict[str, int]:
    """Return the drops by state, with those that run and those that are queued apart, as pages count them."""
    split: dict[str, int] = {}
    for state, count in states.items():
        if state == DropState.WRITING.name:
            running, queued = min(counts.running, count), min(counts.queued, max(count - counts.running, 0))
            apart = {"RUNNING": running, "QUEUED": queued, state: count - running - queued}
            split |= {word: number for word, number in apart.items() if number}
        else:
            split[state] = count
    return split


def _logical_row(node: LogicalNodeInfo) -> tuple[str, str, str]:
    settled = sum(count for state, count in node.states.items() if DropState[state].is_terminal)
    counts = ", ".join(f"{count:,} {state}" for state, count in _split_writing(node.states, node.counts).items())
    return node.name, f"{settled:,}/{node.drops:,}", counts
