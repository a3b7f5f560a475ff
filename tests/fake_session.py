"""A session of a fake manager: drops whose states a test sets, and the records that are made of them."""

import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Self

import msgspec

from dropflow.api.drop_queries import order_of
from dropflow.api.drop_records import DropDetail, DropInfo, DropPage, DropQuery, Neighbour, PageQuery, ResultInfo
from dropflow.api.requests import ResultList
from dropflow.api.session_records import FailureInfo, LogicalNodeInfo, SessionDetail, SessionInfo
from dropflow.errors import AppError, NotFoundError, UsageError
from dropflow.graph.drop_counts import DropCounts, count_drops
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import drops_named, oid, oids
from dropflow.ids import drop_file_name
from dropflow.states import DropState, SessionState, is_over

_CONTENT_SIZE = 1024
_USUAL_QUIET = 10.0


class FakeSession(msgspec.Struct, frozen=True, kw_only=True):
    """One session.

    Attributes
    ----------
    rows : tuple of DropInfo
        Its drops as they are now; those on the nodes of the manager.
    whole : int
        Drops of the session on all nodes.
    content, logs : mapping of int to bytes
        What can be downloaded, by the row of the drop.
    settled : float
        When a drop settled last, in seconds since the epoch; 0 before.
    """

    name: str
    graph: PhysicalGraph
    rows: tuple[DropInfo, ...]
    status: str = SessionState.RUNNING.name
    epoch: int = 1
    version: int = 1
    created: float = 0.0
    finished: float = 0.0
    request_id: str = ""
    user: str = ""
    text: str = ""
    whole: int = 0
    failures: tuple[FailureInfo, ...] = ()
    content: Mapping[int, bytes] = {}
    logs: Mapping[int, bytes] = {}
    settled: float = 0.0

    def with_states(self, states: Mapping[int, str], now: float) -> Self:
        """Return the session with new states of some drops, by row; it ends when all drops are settled."""
        rows = tuple(_moved(row, states[row.drop]) if row.drop in states else row for row in self.rows)
        changed = msgspec.structs.replace(self, rows=rows)
        if len(changed.open_rows()) < len(self.open_rows()):
            changed = msgspec.structs.replace(changed, settled=now)
        if changed.open_rows():
            return changed
        failed = any(row.state == "ERROR" for row in rows)
        text = self.failures[0].text if self.failures else ""
        return msgspec.structs.replace(changed, text=text, status="FAILED" if failed else "FINISHED", finished=now)

    def with_failure(self, row: int, text: str, count: int) -> Self:
        """Return the session with a root cause in `row` that has put `count` drops in ERROR."""
        drop = next(found for found in self.rows if found.drop == row)
        failure = FailureInfo(
            drop=drop.oid,
            name=drop.name,
            node=drop.node,
            code=AppError.code,
            kind="ValueError",
            text=text,
            hint="look at its log",
            detail=f"Traceback (most recent call last):\n  ...\nValueError: {text}",
            count=count,
            took_along=count - 1,
            has_log=True,
            row=row,
        )
        logs = {**self.logs, row: f"{drop.name}: {text}\n".encode()}
        return msgspec.structs.replace(self, failures=(*self.failures, failure), logs=logs)

    def cancelled(self, text: str, now: float) -> Self:
        """Return the session with all open drops CANCELLED."""
        ended = self.with_states(dict.fromkeys(self.open_rows(), "CANCELLED"), now)
        return msgspec.structs.replace(ended, status="CANCELLED", finished=now, text=text)

    def again(self, drops: Collection[int]) -> Self:
        """Return the session, which was over, as it goes on: these drops run again."""
        rows = tuple(_moved(row, "INITIALIZED") if row.drop in drops else row for row in self.rows)
        failures = self.failures if any(row.state == "ERROR" for row in rows) else ()
        return msgspec.structs.replace(
            self, rows=rows, failures=failures, status="RUNNING", finished=0.0, text="", epoch=self.epoch + 1
        )

    def open_rows(self) -> list[int]:
        """Return the rows of the drops that are not settled."""
        return [row.drop for row in self.rows if not DropState[row.state].is_terminal]

    def page(self, query: DropQuery) -> DropPage:
        """Return the page of drops that `query` selects.

        Raises
        ------
        UsageError
            It names a state that does not exist.
        """
        states = {state for state in query.state.upper().split(",") if state}
        unknown = sorted(states - set(DropState.__members__))
        if unknown:
            raise UsageError(f"there is no state {unknown[0]}", hint=f"states are {', '.join(DropState.__members__)}")
        text, named = query.text.casefold(), set(drops_named(self.graph, query.name).tolist())
        found = [
            row
            for row in self.rows
            if (not states or row.state in states)
            and query.key in ("", row.key)
            and query.node in ("", row.node)
            and (text in row.oid.casefold() or text in row.name.casefold())
            and query.oid in ("", row.oid)
            and row.oid.endswith(query.ending)
            and query.row in (-1, row.drop)
            and (not query.name or row.drop in named)
        ]
        if query.sort:
            key, is_reversed = order_of(query.sort)
            found.sort(key=key, reverse=is_reversed)
        page = tuple(found[query.offset : query.offset + query.limit])
        return DropPage(drops=page, total=len(found), offset=query.offset, limit=query.limit)

    def drop_detail(self, row: DropInfo, query: PageQuery) -> DropDetail:
        """Return one drop with a page of its neighbours."""
        template = self.graph.templates[self.graph.template[row.drop]]
        window = slice(query.offset, query.offset + query.limit)
        inputs, outputs = self._neighbours(row.drop, after=False), self._neighbours(row.drop, after=True)
        return DropDetail(
            **msgspec.structs.asdict(row),
            reasons=(f"{row.name} is {row.state}",),
            failure=next((failure for failure in self.failures if failure.drop == row.oid), None),
            inputs=inputs[window],
            outputs=outputs[window],
            input_count=len(inputs),
            output_count=len(outputs),
            has_log=row.drop in self.logs,
            has_data=row.drop in self.content,
            parameters={argument.name: str(argument.value) for argument in template.arguments},
        )

    def results(self) -> ResultList:
        """Return all content of completed drops, as if each drop were a leaf."""
        results = tuple(
            ResultInfo(
                drop=row.drop,
                oid=row.oid,
                name=row.name,
                node=row.node,
                path=f"results/{drop_file_name(row.oid)}",
                size=len(self.content[row.drop]),
                checksum=zlib.crc32(self.content[row.drop]) or None,
            )
            for row in self.rows
            if row.drop in self.content and row.state == "COMPLETED"
        )
        return ResultList(results=results)

    def info(self, now: float) -> SessionInfo:
        """Return the session in one row."""
        states = Counter(row.state for row in self.rows)
        left = len(self.open_rows())
        settled = len(self.rows) - left
        seconds = (self.finished or now) - self.created
        over = is_over(self.status)
        quiet = 0.0 if over else now - (self.settled or self.created)
        rate = settled / seconds if seconds > 0 and quiet <= _USUAL_QUIET else 0.0
        return SessionInfo(
            session=self.name,
            graph=self.graph.name,
            status=self.status,
            epoch=self.epoch,
            version=self.version,
            drops=len(self.rows),
            settled=settled,
            running=sum(row.is_app and row.state == "WRITING" for row in self.rows),
            counts=self._counts(self.rows),
            states=dict(states),
            created=self.created,
            started=self.created,
            finished=self.finished,
            request_id=self.request_id,
            user=self.user,
            seconds=seconds,
            rate=rate,
            remaining=None if over or not rate else left / rate,
            quiet=quiet,
            usual_quiet=0.0 if over else _USUAL_QUIET,
            nodes=tuple(sorted({row.node for row in self.rows})),
            text=self.text,
            whole=self.whole,
        )

    def detail(self, now: float) -> SessionDetail:
        """Return the session with its logical nodes and root causes."""
        rows_by_key: dict[str, list[DropInfo]] = {}
        for row in self.rows:
            rows_by_key.setdefault(row.key, []).append(row)
        logical = tuple(
            LogicalNodeInfo(
                key=key,
                name=rows[0].name,
                category=rows[0].category,
                is_app=rows[0].is_app,
                artificial=False,
                drops=len(rows),
                states=dict(Counter(row.state for row in rows)),
                running=sum(row.is_app and row.state == "WRITING" for row in rows),
                counts=self._counts(rows),
            )
            for key, rows in rows_by_key.items()
        )
        failures = tuple(sorted(self.failures, key=lambda failure: -failure.count))[:100]
        return SessionDetail(**msgspec.structs.asdict(self.info(now)), logical=logical, failures=failures)

    def _counts(self, rows: Sequence[DropInfo]) -> DropCounts:
        failed = {failure.drop for failure in self.failures}
        return count_drops(
            Counter(row.state for row in rows),
            failed=sum(row.state == "ERROR" and row.oid in failed for row in rows),
            running=sum(row.is_app and row.state == "WRITING" for row in rows),
        )

    def log(self, row: DropInfo) -> bytes:
        """Return the log of a drop.

        Raises
        ------
        NotFoundError
            It has none: only drops that fail write a log.
        """
        if row.drop not in self.logs:
            raise NotFoundError(f"drop {row.oid!r} wrote no log", where=self.name)
        return self.logs[row.drop]

    def _neighbours(self, drop: int, *, after: bool) -> tuple[Neighbour, ...]:
        edges = self.graph.successors if after else self.graph.predecessors
        near = edges.of(drop)
        here = {row.drop: row for row in self.rows}
        return tuple(
            Neighbour(drop=row.drop, oid=oid(self.graph, row.drop), name=row.name, state=row.state, node=row.node)
            for row in (here[found] for found in near if found in here)
        )


def rows_of(graph: PhysicalGraph, node: str) -> tuple[DropInfo, ...]:
    """Return the drops of a graph, all INITIALIZED.

    Parameters
    ----------
    graph : PhysicalGraph
        The whole graph.
    node : str
        Where the drops are that the graph does not place.
    """
    names = oids(graph, range(graph.drops))
    shared = graph.templates
    return tuple(
        DropInfo(
            drop=row,
            oid=names[row],
            name=shared[template].name,
            key=shared[template].key,
            category=shared[template].category or ("App" if shared[template].kind is Kind.APP else "Memory"),
            is_app=shared[template].kind is Kind.APP,
            state="INITIALIZED",
            node=graph.places[graph.part[row]] if graph.places else node,
        )
        for row, template in enumerate(graph.template.tolist())
    )


def _moved(row: DropInfo, state: str) -> DropInfo:
    size = _CONTENT_SIZE if state == "COMPLETED" and not row.is_app else None
    return msgspec.structs.replace(row, state=state, size=size)
