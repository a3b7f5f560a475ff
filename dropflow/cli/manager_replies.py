"""What the commands answer that ask managers. Each reply is its JSON; `lines` is its text for people."""

from collections.abc import Iterator, Sequence
from time import localtime, strftime
from urllib.parse import quote

import msgspec

from dropflow.cli.exits import Exit, exit_for_status
from dropflow.cli.suggestion import suggestion
from dropflow.cli.tables import columns, plural, readable_bytes, readable_seconds
from dropflow.errors import BadFileError, StorageError
from dropflow.rest.schema import FailureInfo, LogicalNodeInfo, NodeInfo, SessionDetail, SessionInfo
from dropflow.states import DropState, SessionState

__all__ = [
    "DoneReply",
    "FetchReply",
    "FetchedFile",
    "KeyReply",
    "MissedFile",
    "NodesReply",
    "SessionReply",
    "SessionsReply",
    "SubmitReply",
    "failure_lines",
]

_ALWAYS = (DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED)
_SHOWN_FAILURES = 10
_SHOWN_FILES = 12
_SHOWN_MISSING = 50
_SHOWN_NODES = 40
_DETAIL_LINES = 12


class KeyReply(msgspec.Struct, frozen=True, kw_only=True):
    """Where a cluster key is, and by what it is compared; never the key."""

    ok: bool = True
    key: str
    fingerprint: str
    made: bool

    def lines(self) -> Iterator[str]:
        """The fingerprint and the file."""
        yield f"cluster key {self.fingerprint}"
        yield f"  {'made' if self.made else 'in'} {self.key}"
        if self.made:
            yield "  copy this file to the same place on every host of the cluster, for example with scp -p"


class DoneReply(msgspec.Struct, frozen=True, kw_only=True):
    """Something was done to a session."""

    ok: bool = True
    session: str
    status: str
    text: str = ""

    def lines(self) -> Iterator[str]:
        """One line."""
        yield f"{self.session}: {self.status}{f' ({self.text})' if self.text else ''}"


class SessionsReply(msgspec.Struct, frozen=True, kw_only=True):
    """All sessions of a manager, the youngest first."""

    ok: bool = True
    url: str
    sessions: tuple[SessionInfo, ...]

    def lines(self) -> Iterator[str]:
        """One line a session."""
        if not self.sessions:
            yield f"no sessions at {self.url}"
            return
        rows = [
            (
                info.session,
                info.status,
                f"{100 * info.settled / max(info.drops, 1):.0f} %",
                info.drops,
                readable_seconds(info.seconds),
                strftime("%Y-%m-%d %H:%M:%S", localtime(info.created)),
                _few(info.nodes),
            )
            for info in self.sessions
        ]
        header = ("session", "status", "settled", "drops", "time", "created", "nodes")
        yield from columns(rows, header=header, indent="")


class SubmitReply(msgspec.Struct, frozen=True, kw_only=True):
    """A graph was deployed; with ``--wait``, how its session ended: then the fields are those of ``dropflow run``.

    Attributes
    ----------
    ok : bool
        Whether the session was started, and, if it was waited for, whether it is FINISHED.
    url : str
        Page of the session for a browser.
    waited : bool
        Whether the status is the last one.
    unlisted : int
        Drops in ERROR because of causes that are not in `failures`.
    output : str
        Where the results are: at the manager, until ``dropflow fetch`` brings them.
    """

    ok: bool
    session: str
    status: str
    drops: int
    states: dict[str, int]
    seconds: float
    failures: tuple[FailureInfo, ...] = ()
    unlisted: int = 0
    notes: tuple[str, ...] = ()
    text: str = ""
    nodes: tuple[str, ...] = ()
    parts: int = 1
    url: str
    waited: bool = False
    output: str = ""

    @classmethod
    def of(cls, info: SessionInfo, *, manager: str, parts: int, waited: bool) -> "SubmitReply":
        """The reply for a session at the manager with this URL."""
        detail = info if isinstance(info, SessionDetail) else None
        url = f"{manager}/sessions/{quote(info.session, safe='')}"
        return cls(
            ok=info.status == SessionState.FINISHED.name if waited else True,
            session=info.session,
            status=info.status,
            drops=info.drops,
            states=_states(info),
            seconds=round(info.seconds, 3),
            failures=detail.failures if detail else (),
            unlisted=detail.unlisted if detail else 0,
            notes=detail.notes if detail else (),
            text=info.text,
            nodes=info.nodes,
            parts=parts,
            url=url,
            waited=waited,
            output=url,
        )

    def lines(self) -> Iterator[str]:
        """Where the session is and how it went, the causes of its failures, and what can be done next."""
        if not self.waited:
            where = f" on {_few(self.nodes)}" if self.nodes else ""
            yield f"{self.session}  {self.status}  {plural(self.drops, 'drop')}{where}"
            yield f"  in the browser: {self.url}"
            yield f"  here:           {suggestion('watch', self.session)}"
            yield from (f"note: {note}" for note in self.notes)
            return
        yield _headline(self.status, self.drops, self.seconds, self.states, "" if self.failures else self.text)
        yield from failure_lines(self.failures, self.session, unlisted=self.unlisted, url=self.url)
        yield from (f"note: {note}" for note in self.notes)
        yield f"results: {suggestion('fetch', self.session)}, or {self.url}"


class SessionReply(msgspec.Struct, frozen=True, kw_only=True):
    """One session as it is now."""

    ok: bool
    url: str
    session: SessionDetail

    @classmethod
    def of(cls, detail: SessionDetail, *, manager: str) -> "SessionReply":
        """The reply for a session at the manager with this URL."""
        is_ok = exit_for_status(detail.status) is Exit.FINISHED
        return cls(ok=is_ok, url=f"{manager}/sessions/{quote(detail.session, safe='')}", session=detail)

    def lines(self) -> Iterator[str]:
        """Status, one line for each logical node, and the causes of failures."""
        detail = self.session
        text = "" if detail.failures else detail.text
        yield _headline(detail.status, detail.drops, detail.seconds, _states(detail), text)
        if not detail.is_over:
            left = f", about {readable_seconds(detail.remaining)} left" if detail.remaining is not None else ""
            waiting = detail.queued + detail.ready
            yield f"  {detail.running:,} running, {waiting:,} waiting for a worker, {detail.rate:,.0f} drops/s{left}"
        if detail.nodes:
            yield f"  on {_few(detail.nodes)}"
        shown = [node for node in detail.logical if not node.artificial]
        yield from columns([_logical_row(node) for node in shown[:_SHOWN_NODES]], header=("node", "settled", "states"))
        if len(shown) > _SHOWN_NODES:
            yield f"  ... and {plural(len(shown) - _SHOWN_NODES, 'more logical node')}"
        yield from failure_lines(detail.failures, detail.session, unlisted=detail.unlisted, url=self.url)
        yield from (f"note: {note}" for note in detail.notes)
        yield f"  {self.url}"


class NodesReply(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes at or below a manager; not ok if one of them is not alive."""

    ok: bool
    url: str
    nodes: tuple[NodeInfo, ...]

    def lines(self) -> Iterator[str]:
        """One line a node."""
        if not self.nodes:
            yield f"no nodes at {self.url}"
            return
        rows = [
            (
                node.name,
                node.state,
                node.island or "-",
                f"{node.load.busy}/{node.load.workers}",
                f"{node.load.processor:.0f} %",
                f"{readable_bytes(node.load.memory_free)} of {readable_bytes(node.load.memory)}",
                readable_bytes(node.load.disk_free),
                node.sessions,
                node.text or node.url,
            )
            for node in self.nodes
        ]
        header = ("node", "state", "island", "busy", "processor", "memory free", "disk free", "sessions", "address")
        yield from columns(rows, header=header, indent="")


class FetchedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One result that is here now; `was_there` tells that it was before, with the same content."""

    drop: str
    node: str
    path: str
    size: int
    was_there: bool = False


class MissedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One result that could not be brought, and why."""

    drop: str
    node: str
    path: str
    code: str
    text: str
    size: int = 0


class FetchReply(msgspec.Struct, frozen=True, kw_only=True):
    """Which results are here, and which could not be brought.

    Attributes
    ----------
    fetched, were_there, missed : int
        How many results were brought, were here already, and could not be brought.
    bytes : int
        Of the results that were brought.
    missing : tuple of MissedFile
        What could not be brought.
    silent : tuple of str
        Nodes that could not be asked for their results.
    """

    ok: bool
    session: str
    output: str
    fetched: int
    were_there: int
    missed: int
    bytes: int
    files: tuple[FetchedFile, ...]
    missing: tuple[MissedFile, ...] = ()
    silent: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, session: str, output: str, results: Sequence[FetchedFile | MissedFile], silent: tuple[str, ...]
    ) -> "FetchReply":
        """Return the reply for what became of each result."""
        files = tuple(one for one in results if isinstance(one, FetchedFile))
        missing = tuple(one for one in results if isinstance(one, MissedFile))
        fresh = [file for file in files if not file.was_there]
        return cls(
            ok=not missing and not silent,
            session=session,
            output=output,
            fetched=len(fresh),
            were_there=len(files) - len(fresh),
            missed=len(missing),
            bytes=sum(file.size for file in fresh),
            files=files,
            missing=missing,
            silent=silent,
        )

    def lines(self) -> Iterator[str]:
        """The files, then what is missing and why."""
        there = f", {self.were_there:,} were there already" if self.were_there else ""
        yield f"{plural(self.fetched, 'result')} ({readable_bytes(self.bytes)}) in {self.output}{there}"
        shown = [file for file in self.files if not file.was_there]
        yield from (f"  {file.path}" for file in shown[:_SHOWN_FILES])
        if len(shown) > _SHOWN_FILES:
            yield f"  ... and {len(shown) - _SHOWN_FILES:,} more (--output json has them all)"
        for one in self.missing[:_SHOWN_MISSING]:
            yield f"missing: {one.path} of {one.drop} on {one.node}: {one.text}"
        if len(self.missing) > _SHOWN_MISSING:
            yield f"missing: {len(self.missing) - _SHOWN_MISSING:,} more (--output json has them all)"
        yield from (f"missing: the results on node {node}, which could not be asked" for node in self.silent)
        if not self.ok:
            yield f"to bring what is missing: {suggestion('fetch', self.session)} again, with the same -o"


def failure_lines(failures: Sequence[FailureInfo], session: str, *, unlisted: int = 0, url: str = "") -> Iterator[str]:
    """Root causes for people: which drop, where, why, what to do, and how to see its log; the first ten.

    Drops of one logical node that failed with the same words are told once. What is not told is counted, and the page
    of the session at `url` leads to it.
    """
    alike: dict[tuple[str, ...], list[FailureInfo]] = {}
    for failure in failures:
        kind = (failure.name, failure.code, failure.text) if failure.drop else (failure.name, failure.node)
        alike.setdefault(kind, []).append(failure)
    groups = list(alike.values())
    for group in groups[:_SHOWN_FAILURES]:
        yield from _group_lines(group, session)
    if len(groups) > _SHOWN_FAILURES:
        yield f"... and {plural(len(groups) - _SHOWN_FAILURES, 'more kind')} of failures"
    if unlisted > 0:
        yield f"... and {plural(unlisted, 'drop')} in error because of other causes"
    if url and (len(groups) > _SHOWN_FAILURES or unlisted > 0):
        yield f"all causes: {url}/causes"


def _group_lines(group: Sequence[FailureInfo], session: str) -> Iterator[str]:
    first = group[0]
    tries = f", after {first.attempts} attempts" if first.attempts > 1 else ""
    if first.drop:
        others = f", and {plural(first.count - 1, 'drop')} behind it" if first.count > 1 else ""
        what = f"failed: {first.name} ({first.drop})"
    else:
        others = f", and {plural(first.count, 'drop')} given up" if first.count else ""
        is_stored = first.code in (StorageError.code, BadFileError.code)  # what a node keeps is damaged or gone
        what = f"failed: {first.name}" if is_stored else f"lost: node {first.name}"
    where = f" on {first.node}" if first.node and first.drop else ""
    yield f"  {what}{where}{others}{tries}"
    yield f"    {first.code} {first.text}"
    if first.hint:
        yield f"    {first.hint}"
    yield from (f"    | {line}" for line in first.detail.splitlines()[-_DETAIL_LINES:])
    if first.has_log and first.drop:
        yield f"    log: {suggestion('log', session, first.drop)}"
    if len(group) > 1:
        behind = sum(failure.count - 1 for failure in group[1:])
        more = f", and {plural(behind, 'drop')} behind them" if behind else ""
        yield f"    the same: {_few([failure.drop for failure in group[1:]])}{more}"


def _headline(status: str, drops: int, seconds: float, states: dict[str, int], text: str) -> str:
    told = ", ".join(f"{count:,} {state}" for state, count in states.items() if count)
    why = f"  {text}" if text else ""
    return f"{status}  {plural(drops, 'drop')} in {readable_seconds(seconds)}  ({told or 'nothing to do'}){why}"


def _states(info: SessionInfo) -> dict[str, int]:
    """Drops by state, in the order of the states; the three usual ones always, as ``dropflow run`` has them."""
    return {
        state.name: info.states.get(state.name, 0)
        for state in DropState
        if info.states.get(state.name) or state in _ALWAYS
    }


def _logical_row(node: LogicalNodeInfo) -> tuple[str, str, str]:
    settled = sum(count for state, count in node.states.items() if DropState[state].is_terminal)
    told = ", ".join(f"{count:,} {state}" for state, count in node.states.items())
    return node.name, f"{settled:,}/{node.drops:,}", told


def _few(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
