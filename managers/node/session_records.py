"""Records about a session on this node that clients get: rows, details, counts, results."""

import os
import secrets
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit
from weakref import ref

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.api.drop_queries import in_order, matching
from dropflow.api.drop_records import DropDetail, DropInfo, DropPage, DropQuery, Neighbour, PageQuery, ResultInfo
from dropflow.api.requests import QUEUED, RUNNING, DropStates, FailureList, FailureQuery, ResultList
from dropflow.api.session_records import packed_columns
from dropflow.data.remote import known_checksum
from dropflow.execution.content_location import Handle
from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.events import KnownStates, row_of_foreign
from dropflow.execution.drop_explanation import explain, explain_repeat
from dropflow.execution.failure_table import Fault
from dropflow.execution.statistics import FailureReport, RankedCauses
from dropflow.graph.completeness import missing_share
from dropflow.graph.physical import Adjacency, IntColumn, PhysicalGraph
from dropflow.graph.slices import Slice
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oid, oids, row_of
from dropflow.ids import drop_file_name, safe_name
from dropflow.reuse.log import reuse_lines, reuse_origin
from dropflow.sessions import summaries
from dropflow.states import DropState

T = TypeVar("T")

Running = Collection[int] | None
"""The rows of drops whose attempts run now; None if that is not known, as in a session that is over."""
_PARAMETER_CHARACTERS = 2000
"""Characters of a parameter of one line in the details of a drop."""
_CODE_CHARACTERS = 64 * 1024
"""Characters of a parameter with several lines, such as code, in the details of a drop."""
_KEPT = 4
"""Number of changes that a log keeps for each of its drops. A client that is further behind gets all states."""


class FailureReports(Protocol):
    """Root causes of a session, as `dropflow.execution.failure_table.FailureTable` has them for a running one."""

    @property
    def lost_count(self) -> int:
        """The number of lost nodes. Their reports come first."""
        ...

    def causes(self) -> RankedCauses:
        """Return the drops that are root causes, without lost nodes."""
        ...

    def reports(self, start: int = 0, stop: int | None = None) -> Sequence[FailureReport]:
        """Return root causes, lost nodes first, then those that put the most drops in ERROR."""
        ...

    def reports_in(self, rows: Sequence[int]) -> Sequence[FailureReport]:
        """Return the root causes among drops, whose rows are those in the whole graph."""
        ...


class LiveSession(Protocol):
    """The parts of `dropflow.execution.session.Session` that views read, in the session's own thread."""

    @property
    def core(self) -> Core:
        """State of the session."""
        ...

    @property
    def known(self) -> KnownStates | None:
        """The states with which it continued; None if it did not."""
        ...

    def content(self, drop: int) -> Handle | None:
        """Return the content of a data drop if it has one."""
        ...

    @property
    def missing(self) -> Mapping[int, float]:
        """Share of missing data when a content was made, if not 0, by drop."""
        ...

    @property
    def failure_table(self) -> FailureReports:
        """The root causes so far."""
        ...

    def faults(self, drop: int) -> Sequence[Fault]:
        """Return the infrastructure faults of a drop, oldest first."""
        ...


class SessionCaller(Protocol):
    """A session that runs here, or ran before."""

    def call(self, function: Callable[[Any], T]) -> T:
        """Call `function` with its `LiveSession`, in the session's thread, and return the result."""
        ...


def page(session: SessionCaller, piece: Slice, query: DropQuery, *, whole: int, running: Running = None) -> DropPage:
    """Return a page of the drops of this node; `whole` is the number of drops that the session has on all nodes."""
    held = int(piece.is_own.sum())
    if query.node and query.node != piece.node:
        return DropPage(drops=(), total=0, offset=query.offset, limit=query.limit, held=held, whole=whole)
    states = np.frombuffer(session.call(lambda live: bytes(live.core.drops.states)), dtype=np.uint8)
    is_named, graph = _named(piece, query), piece.graph
    rows = matching(graph, piece.order[is_named[piece.order]], states, query)
    rows = in_order(graph, rows, piece.drop[rows], _values(session, rows, states, query.sort), query)
    shown = rows[query.offset : query.offset + query.limit].tolist()
    facts = session.call(lambda live: {row: (live.core.drops.attempt(row), live.content(row)) for row in shown})
    names = oids(graph, np.array(shown, dtype=np.int32))
    drops = tuple(
        drop_info(piece, row, int(states[row]), *facts[row], name=name, running=running)
        for row, name in zip(shown, names, strict=True)
    )
    return DropPage(drops=drops, total=len(rows), offset=query.offset, limit=query.limit, held=held, whole=whole)


def _values(
    session: SessionCaller, drops: IntColumn, states: npt.NDArray[np.uint8], sort: str
) -> npt.NDArray[np.int64] | None:
    """Return the values by which drops are sorted, if they are not in the graph. All drops are on one node."""
    rows = drops.tolist()
    match sort.removeprefix("-"):
        case "state":
            return states[drops].astype(np.int64)
        case "attempt":
            return np.array(session.call(lambda live: [live.core.drops.attempt(row) for row in rows]), dtype=np.int64)
        case "size":
            handles = session.call(lambda live: [live.content(row) for row in rows])
            sizes = [-1 if handle is None or handle.size is None else handle.size for handle in handles]
            return np.array(sizes, dtype=np.int64)
    return None


def _named(piece: Slice, query: DropQuery) -> npt.NDArray[np.bool_]:
    """Return which own drops have the row and the id of the query, shape (drops here,)."""
    is_named = piece.is_own.copy()
    wanted = [piece.local(query.row)] if query.row >= 0 else []
    if query.oid:
        wanted.append(row_of(piece.graph, query.oid))
    for row in wanted:
        is_that = np.zeros_like(is_named)
        if row is not None:
            is_that[row] = True
        is_named &= is_that
    return is_named


def drop_info(
    piece: Slice, row: int, state: int, attempt: int, handle: Handle | None, *, name: str, running: Running
) -> DropInfo:
    """Return the row of a drop in the list; `name` is its id."""
    template = piece.graph.templates[piece.graph.template[row]]
    is_app = template.kind is Kind.APP
    is_active = is_app and state == DropState.WRITING
    return DropInfo(
        drop=int(piece.drop[row]),
        oid=name,
        name=template.name,
        key=template.key,
        category=template.category,
        is_app=is_app,
        state=DropState(state).name,
        node=piece.node,
        attempt=attempt,
        size=None if handle is None else handle.size,
        is_running=None if running is None or not is_active else row in running,
    )


def failure_list(session: SessionCaller, query: FailureQuery, node: str) -> FailureList:
    """Return root causes on this node: those of a page, those of some drops, or all as columns."""

    def look(live: LiveSession) -> tuple[Sequence[FailureReport], RankedCauses, int]:
        table = live.failure_table
        causes = table.causes()
        lost = table.lost_count
        if query.rows:
            reports = table.reports_in(query.row_numbers)
        else:
            reports = (
                table.reports(0, lost) if query.columns else table.reports(query.offset, query.offset + query.limit)
            )
        return reports, causes, lost

    reports, causes, lost = session.call(look)
    return FailureList(
        failures=tuple(summaries.failure_info(report, node) for report in reports),
        total=len(reports) if query.rows else lost + len(causes.rows),
        offset=query.offset,
        limit=query.limit,
        columns=packed_columns(causes.rows, causes.counts, causes.took_along) if query.columns else None,
    )


def detail_of(
    session: SessionCaller, piece: Slice, row: int, logs: Path, query: PageQuery, *, running: Running = None
) -> DropDetail:
    """Return the details of one drop without its attempts, with a page of its neighbours; `running` as in `page`."""
    graph = piece.graph
    template = graph.templates[graph.template[row]]
    before, after = graph.predecessors, graph.successors
    ins, outs = _window(before, row, query), _window(after, row, query)

    near = [*before.neighbour[ins].tolist(), *after.neighbour[outs].tolist()]

    def look(
        live: LiveSession,
    ) -> tuple[Sequence[str], int, dict[int, Handle | None], FailureReport | None, bytes, float]:
        core = live.core
        cause = core.drops.cause(row)
        reports = [] if cause is None else live.failure_table.reports_in((_global(piece, cause),))
        lines = explain(core, row, live.faults(row)).lines
        if live.known is not None:
            lines = (*lines, *explain_repeat(graph, live.known, row))
        lines = (*lines, *reuse_lines(graph, logs.parent, row))
        states = bytes(core.drops.states)
        contents = {other: live.content(other) for other in (row, *near)}
        missing = missing_share(graph, row, states, live.missing)
        return lines, core.drops.attempt(row), contents, reports[0] if reports else None, states, missing

    reasons, attempt, contents, failure, states, missing = session.call(look)
    handle = contents[row]
    name = oid(graph, row)
    is_app = template.kind is Kind.APP
    links = graph.links

    def neighbour(other: int, port: str) -> Neighbour:
        content = contents[other]
        return Neighbour(
            drop=int(piece.drop[other]),
            oid=oid(graph, other),
            name=graph.templates[graph.template[other]].name,
            state=DropState(states[other]).name,
            node=graph.places[graph.part[other]],
            port=port,
            size=None if content is None else content.size,
            path=_path(content),
        )

    info = drop_info(piece, row, states[row], attempt, handle, name=name, running=running)
    return DropDetail(
        **{field: getattr(info, field) for field in DropInfo.__struct_fields__},
        reasons=tuple(reasons),
        failure=None if failure is None else summaries.failure_info(failure, piece.node),
        inputs=tuple(
            neighbour(other, links[link].target_port if is_app else links[link].source_port)
            for other, link in zip(before.neighbour[ins].tolist(), before.link[ins].tolist(), strict=True)
        ),
        outputs=tuple(
            neighbour(other, links[link].source_port if is_app else links[link].target_port)
            for other, link in zip(after.neighbour[outs].tolist(), after.link[outs].tolist(), strict=True)
        ),
        input_count=int(before.ptr[row + 1] - before.ptr[row]),
        output_count=int(after.ptr[row + 1] - after.ptr[row]),
        has_log=os.path.exists(logs / f"{drop_file_name(name)}.log"),  # noqa: PTH110 - Path raises if it may not look there
        has_data=not is_app and handle is not None and handle.kind != "null",
        parameters={argument.name: _text(argument.value) for argument in template.arguments},
        missing=missing,
        path=_path(handle),
    )


def _path(content: Handle | None) -> str:
    return content.location if content is not None and content.kind in ("file", "directory") else ""


def _window(edges: Adjacency, row: int, query: PageQuery) -> slice:
    """Return the range of a page among all neighbours of a drop."""
    first, end = int(edges.ptr[row]), int(edges.ptr[row + 1])
    start = min(first + query.offset, end)
    return slice(start, min(start + query.limit, end))


def _global(piece: Slice, cause: int) -> int:
    return int(piece.drop[cause]) if cause >= 0 else row_of_foreign(cause)


def _text(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    limit = _CODE_CHARACTERS if "\n" in text else _PARAMETER_CHARACTERS
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def results(piece: Slice, contents: Mapping[int, Handle], directory: Path, *, limit: int = 0) -> ResultList:
    """Return the results, or the first `limit` of them: the contents of leaves, and all files that stay.

    An empty content in memory is not among them, because it makes no file in the session directory.
    """
    graph = piece.graph
    is_persistent = np.array([template.persist for template in graph.templates], dtype=np.bool_)
    # Fast, with memoryviews and few paths: sessions have a hundred thousand contents.
    stays = ((np.diff(graph.successors.ptr) == 0) | is_persistent[graph.template]).data
    is_root = (np.diff(graph.predecessors.ptr) == 0).data
    is_own = piece.is_own.data
    on_node: list[ResultInfo] = []
    in_stores: list[ResultInfo] = []
    more = more_size = 0
    for row in sorted(contents, key=piece.drop.data.__getitem__):
        handle = contents[row]
        if not is_own[row] or handle.kind == "null":
            continue
        is_file, is_stored = handle.kind in ("file", "directory"), handle.kind == "url"
        if not (stays[row] or is_file) or (is_root[row] and not Path(handle.location).is_relative_to(directory)):
            continue  # consumed by other drops, or an input of the graph
        if not (handle.size or is_file or is_stored):
            continue
        if limit and len(on_node) == limit and not is_stored:
            more, more_size = more + 1, more_size + handle.size
            continue
        path, template = Path(handle.location), graph.templates[graph.template[row]]
        inside = path.is_relative_to(directory)
        if is_file:
            where = str(path.relative_to(directory)) if inside else str(path)
        elif is_stored:
            where = f"results/{safe_name(PurePosixPath(urlsplit(handle.location).path).name, fallback=template.name)}"
        else:
            where = f"results/{drop_file_name(oid(graph, row))}"
        (in_stores if is_stored else on_node).append(
            ResultInfo(
                drop=int(piece.drop[row]),
                oid=oid(graph, row),
                name=template.name,
                node=piece.node,
                path=where,
                size=handle.size,
                checksum=known_checksum(handle),
                is_directory=handle.kind == "directory",
                missing=handle.missing,
                reused=reuse_origin(graph, directory, row),
            )
        )
    return ResultList(results=tuple(on_node), more=more, more_size=more_size, in_stores=tuple(in_stores))


# The states of the drops of a session here, and their latest changes, for clients that poll.


class StateLog:
    """The states of some drops, and their latest changes. For one thread at a time.

    Parameters
    ----------
    drops : int array
        Rows of the drops in the whole graph.
    """

    def __init__(self, drops: npt.NDArray[np.int32]) -> None:
        self._drops = drops.astype("<u4")
        self._states: npt.NDArray[np.uint8] | None = None
        self._steps: deque[tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8]]] = deque()
        self._held = 0
        self._first = 0
        """Number of the first step that is kept."""
        self._name = secrets.token_hex(4)

    def update(self, states: npt.NDArray[np.uint8]) -> None:
        """Note the present states of the drops; all differences count as one step."""
        before = self._states
        self._states = states.copy()
        if before is None:
            return
        changed = np.flatnonzero(before != states)
        if not len(changed):
            return
        self._steps.append((self._drops[changed], states[changed]))
        self._held += len(changed)
        while self._held > _KEPT * len(self._drops):
            self._held -= len(self._steps.popleft()[0])
            self._first += 1

    def since(self, cursor: str) -> DropStates:
        """Return the changes since the answer with this cursor; all states if the changes are not kept any more."""
        now = f"{self._name}.{self._first + len(self._steps)}"
        name, _, number = cursor.partition(".")
        if name != self._name or not number.isdecimal() or int(number) < self._first:
            states = b"" if self._states is None else self._states.tobytes()
            return DropStates(cursor=now, drops=self._drops.tobytes(), states=states)
        steps = list(self._steps)[int(number) - self._first :]
        return DropStates(
            cursor=now,
            drops=b"".join(drops.tobytes() for drops, _ in steps),
            states=b"".join(states.tobytes() for _, states in steps),
        )


# The states of the drops of a node's sessions, and their changes since a client last asked.


class StateLogs:
    """The log of each session that a client has asked for. A log is read and written in the thread of its session."""

    def __init__(self) -> None:
        self._logs: dict[int, tuple[ref[PhysicalGraph], StateLog]] = {}
        """Logs by the identity of the graph of the slice, which is a new object in each view of a session."""

    def read(self, session: SessionCaller, piece: Slice, since: str, running: Running = None) -> DropStates:
        """Return the states of the drops of this node, or their changes since the answer with the cursor `since`.

        Parameters
        ----------
        session : SessionCaller
            A session that runs here, or ran before.
        piece : Slice
            Its drops.
        running : collection of int or None
            Rows of the drops whose attempts run now; None if that is not known.
        """

        def look(live: LiveSession) -> DropStates:
            if live.core.graph is not piece.graph:  # the view has just changed: the next request has the new one
                return DropStates(cursor=since)
            log = self._log(piece)
            states = np.frombuffer(bytes(live.core.drops.states), dtype=np.uint8)
            log.update(_signs(states, piece, running)[piece.is_own])
            return log.since(since)

        return session.call(look)

    def _log(self, piece: Slice) -> StateLog:
        known = self._logs.get(id(piece.graph))
        if known is not None and known[0]() is piece.graph:
            return known[1]
        for key in [key for key, (graph, _) in list(self._logs.items()) if graph() is None]:
            self._logs.pop(key, None)
        log = StateLog(piece.drop[piece.is_own])
        self._logs[id(piece.graph)] = (ref(piece.graph), log)
        return log


def _signs(states: npt.NDArray[np.uint8], piece: Slice, running: Running) -> npt.NDArray[np.uint8]:
    """Return the states with signs for applications in WRITING that run, and that are queued."""
    if running is None:
        return states
    graph, signs = piece.graph, states.copy()
    is_app = graph.kinds[graph.template] == np.uint8(Kind.APP)
    is_active = (states == DropState.WRITING) & is_app
    signs[is_active] = QUEUED
    rows = np.fromiter(running, dtype=np.int64, count=len(running))
    signs[rows[states[rows] == DropState.WRITING]] = RUNNING
    return signs
