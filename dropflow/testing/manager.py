"""A manager in memory whose sessions are made up: for tests of routes, pages, clients and parents.

It has the methods of `managers.api.Manager` and moves only when a test says so (`advance`, `fail`, `complete`).
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from dropflow.clock import Clock
from dropflow.data.fingerprint import digest
from dropflow.errors import BadGraphError, ConflictError, DropflowError, GoneError, NotFoundError, UsageError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slice_codec import parse_slice
from dropflow.graph.slices import Slice, join, slice_by_place
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oid, oids
from dropflow.ids import drop_file_name, safe_name
from dropflow.rest.content_records import (
    MEDIA_TYPE,
    ContentBegin,
    ContentEnd,
    ContentError,
    ContentPiece,
    ContentRecord,
    ContentsRequest,
    ContentUnchanged,
    write_records,
)
from dropflow.rest.error_body import to_body
from dropflow.rest.find_drop import find_drop
from dropflow.rest.operation_records import FailureList, ResultList
from dropflow.rest.schema import (
    FIRST_PAGE,
    Child,
    Download,
    DropDetail,
    DropInfo,
    DropPage,
    DropQuery,
    FailureInfo,
    Load,
    LogicalNodeInfo,
    ManagerInfo,
    Neighbour,
    NodeInfo,
    PageQuery,
    ResultInfo,
    Role,
    SessionDetail,
    SessionInfo,
    SubmitQuery,
)
from dropflow.rest.status import UNKNOWN, is_over
from dropflow.states import DropState, SessionState
from dropflow.testing.clock import VirtualClock
from dropflow.testing.shapes import fan

__all__ = ["FakeManager", "made_up"]


class _Session(msgspec.Struct, frozen=True, kw_only=True):
    """One made-up session: its drops as they are told, and everything that can be downloaded."""

    name: str
    graph: PhysicalGraph
    rows: tuple[DropInfo, ...]
    status: str = SessionState.RUNNING.name
    epoch: int = 1
    version: int = 1
    created: float = 0.0
    finished: float = 0.0
    text: str = ""
    whole: int = 0
    failures: tuple[FailureInfo, ...] = ()
    content: Mapping[int, bytes] = {}
    logs: Mapping[int, bytes] = {}


class FakeManager:
    """A manager without processes, disk or network.

    Parameters
    ----------
    name : str
        Its name; a node's name is also where its drops are.
    role : str
        ``node``, ``island`` or ``master``.
    nodes : sequence of str
        Names of the nodes that it claims to have; itself when empty.
    clock : Clock, optional
        A virtual one unless given.
    """

    def __init__(
        self,
        name: str = "node-1",
        *,
        role: Role = "node",
        nodes: tuple[str, ...] = (),
        url: str = "http://127.0.0.1:8000",
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.clock = clock or VirtualClock()
        self.prepared: dict[tuple[str, int], Any] = {}
        self.undone: list[tuple[str, int, str]] = []
        self.closed = False
        self._role: Role = role
        self._url = url
        self._started = self.clock.now()
        self._nodes = {node: NodeInfo(name=node, version="0", host="localhost") for node in nodes or (name,)}
        self._children: dict[str, Child] = {}
        self._sessions: dict[str, _Session] = {}
        self._refusals: dict[str, DropflowError] = {}
        self._changed = threading.Condition()

    # What tests do to it.

    def refuse(self, method: str, error: DropflowError) -> None:
        """Let every later call of this method raise `error`."""
        self._refusals[method] = error

    def allow(self, method: str) -> None:
        """End what `refuse` began."""
        self._refusals.pop(method, None)

    def set_node(self, node: NodeInfo) -> None:
        """Add a node manager, or tell something else about one."""
        self._nodes[node.name] = node

    def add(self, graph: PhysicalGraph, session: str, *, node: str = "") -> None:
        """Begin a session of which no drop has done anything yet."""
        rows = _rows(graph, 0, node or self.name)
        self._put(_Session(name=session, graph=graph, rows=rows, created=self.clock.now()))

    def advance(self, session: str, states: Mapping[int, str]) -> None:
        """Give these drops (by row) new states; the session is over when all drops are settled."""
        found = self._find(session)
        rows = tuple(
            msgspec.structs.replace(row, state=states[row.drop], size=_size(row, states[row.drop]))
            if row.drop in states
            else row
            for row in found.rows
        )
        self._put(self._settled(msgspec.structs.replace(found, rows=rows)))

    def complete(self, session: str) -> None:
        """Let every drop that is not settled complete."""
        rows = self._find(session).rows
        self.advance(session, {row.drop: "COMPLETED" for row in rows if not DropState[row.state].is_terminal})

    def hide(self, session: str, text: str) -> None:
        """Let how a session is be UNKNOWN, because nodes do not answer, until its drops move again."""
        self._put(msgspec.structs.replace(self._find(session), status=UNKNOWN, text=text))

    def fail(self, session: str, drop: int, text: str, *, also: tuple[int, ...] = ()) -> None:
        """Let a drop end in ERROR by itself, and the drops in `also` because of it."""
        found = self._find(session)
        row = next(row for row in found.rows if row.drop == drop)
        failure = FailureInfo(
            drop=row.oid,
            name=row.name,
            node=row.node,
            code="DF105",
            kind="ValueError",
            text=text,
            hint="look at its log",
            detail=f"Traceback (most recent call last):\n  ...\nValueError: {text}",
            count=1 + len(also),
            has_log=True,
        )
        logs = {**found.logs, drop: f"{row.name}: {text}\n".encode()}
        self._put(msgspec.structs.replace(found, failures=(*found.failures, failure), logs=logs))
        self.advance(session, dict.fromkeys((drop, *also), "ERROR"))

    def write(self, session: str, drop: int, content: bytes) -> None:
        """Give a data drop content that can be downloaded."""
        found = self._find(session)
        self._put(msgspec.structs.replace(found, content={**found.content, drop: content}))

    # The manager.

    def info(self) -> ManagerInfo:
        """About itself."""
        self._check("info")
        return ManagerInfo(
            name=self.name,
            role=self._role,
            url=self._url,
            version="0",
            host="localhost",
            process=1,
            incarnation=1,
            started=self._started,
            time=self.clock.now(),
            protocol=1,
        )

    def nodes(self) -> tuple[NodeInfo, ...]:
        """Its nodes, with a made-up load."""
        self._check("nodes")
        load = Load(cores=2, workers=2, busy=1, processor=37.5, memory=8 << 30, memory_free=5 << 30, disk=1 << 40)
        running = sum(not is_over(found.status) for found in self._sessions.values())
        told = [
            msgspec.structs.replace(node, sessions=running, load=load) if node.load == Load() else node
            for node in self._nodes.values()
        ]
        return tuple(sorted(told, key=lambda node: node.name))

    def children(self) -> tuple[Child, ...]:
        """What `add_child` added."""
        self._check("children")
        return tuple(self._children.values())

    def add_child(self, url: str) -> Child:
        """Take any address; a node manager refuses."""
        self._check("add_child")
        if self._role == "node":
            raise UsageError("a node manager has no children", where=self.name, hint="ask an island or a master")
        role: Role = "island" if self._role == "master" else "node"
        return self._children.setdefault(url, Child(name=safe_name(url.partition("//")[2]), url=url, role=role))

    def remove_child(self, url: str) -> None:
        """Forget an address that was added."""
        self._check("remove_child")
        if self._role == "node":
            raise UsageError("a node manager has no children", where=self.name, hint="ask an island or a master")
        if self._children.pop(url, None) is None:
            raise NotFoundError(f"{url} is no child", where=self.name)

    def submit(self, graph: PhysicalGraph, options: SubmitQuery) -> SessionInfo:
        """Begin a session with this graph; nothing in it moves by itself."""
        self._check("submit")
        unknown = sorted(set(graph.places) - set(self._nodes))
        if unknown and not options.anew:
            raise BadGraphError(f"there is no node {unknown[0]!r}", hint=f"nodes are {', '.join(sorted(self._nodes))}")
        name = options.session or self._free_name(safe_name(graph.name))
        if name in self._sessions:
            raise ConflictError(f"there is a session {name!r} already", hint="choose another name")
        self.add(graph, name)
        return _info(self._find(name), self.clock.now())

    def prepare(self, deployment: Any, *, seconds: float) -> None:
        """Keep a deployment; `seconds` must be positive."""
        self._check("prepare")
        if seconds <= 0:
            raise UsageError("there is no time left to prepare")
        if deployment.session in self._sessions:
            raise ConflictError(f"there is a session {deployment.session!r} already")
        self.prepared[deployment.session, deployment.epoch] = deployment

    def start(self, session: str, epoch: int) -> None:
        """Begin a session with the drops of all slices that were prepared."""
        self._check("start")
        deployment = self.prepared.get((session, epoch))
        if deployment is None:
            raise NotFoundError(f"session {session!r} was not prepared with epoch {epoch}")
        if session in self._sessions:
            return
        graphs = {node: join([parse_slice(data)]) for node, data in deployment.slices.items()}
        rows: tuple[DropInfo, ...] = ()
        for node, graph in graphs.items():
            rows += _rows(graph, len(rows), node)
        if graphs:
            graph = next(iter(graphs.values()))
            made = _Session(name=session, graph=graph, rows=rows, epoch=epoch, created=deployment.created)
            self._put(msgspec.structs.replace(made, whole=deployment.drops))

    def undo(self, session: str, epoch: int, reason: str) -> None:
        """Take a deployment back, started or not."""
        self._check("undo")
        self.undone.append((session, epoch, reason))
        if self.prepared.pop((session, epoch), None) is not None:
            self._sessions.pop(session, None)

    def sessions(self) -> tuple[SessionInfo, ...]:
        """All sessions, the youngest first."""
        self._check("sessions")
        told = [_info(found, self.clock.now()) for found in list(self._sessions.values())]
        return tuple(sorted(told, key=lambda info: info.created, reverse=True))

    def session(self, session: str) -> SessionDetail:
        """One session as it is now."""
        self._check("session")
        return _detail(self._find(session), self.clock.now())

    def watch(self, session: str, *, version: int, seconds: float) -> SessionDetail:
        """Wait in real time for a newer version."""
        self._check("watch")

        def moved() -> bool:
            found = self._find(session)
            return self.closed or found.version != version or is_over(found.status)

        with self._changed:
            self._changed.wait_for(moved, timeout=seconds)
        return self.session(session)

    def cancel(self, session: str, reason: str = "") -> SessionInfo:
        """Let whatever is not settled become CANCELLED, unless the nodes do not answer (`hide`)."""
        self._check("cancel")
        found = self._find(session)
        if not is_over(found.status) and found.status != UNKNOWN:
            rows = tuple(
                row if DropState[row.state].is_terminal else msgspec.structs.replace(row, state="CANCELLED")
                for row in found.rows
            )
            over = {"status": "CANCELLED", "finished": self.clock.now(), "text": reason or "cancelled"}
            self._put(msgspec.structs.replace(found, rows=rows, **over))
        return _info(self._find(session), self.clock.now())

    def delete(self, session: str) -> None:
        """Forget a session."""
        self._check("delete")
        self._find(session)
        with self._changed:
            del self._sessions[session]
            self._changed.notify_all()

    def drops(self, session: str, query: DropQuery) -> DropPage:
        """A page of the drops that match."""
        self._check("drops")
        wanted = {state for state in query.state.upper().split(",") if state}
        unknown = sorted(wanted - set(DropState.__members__))
        if unknown:
            raise UsageError(f"there is no state {unknown[0]}", hint=f"states are {', '.join(DropState.__members__)}")
        text = query.text.casefold()
        found = [
            row
            for row in self._find(session).rows
            if (not wanted or row.state in wanted)
            and query.key in ("", row.key)
            and query.node in ("", row.node)
            and (text in row.oid.casefold() or text in row.name.casefold())
            and query.oid in ("", row.oid)
            and row.oid.endswith(query.ending)
            and query.row in (-1, row.drop)
        ]
        page = tuple(found[query.offset : query.offset + query.limit])
        return DropPage(drops=page, total=len(found), offset=query.offset, limit=query.limit)

    def drop(self, session: str, drop: str, query: PageQuery = FIRST_PAGE) -> DropDetail:
        """One drop with its neighbours."""
        self._check("drop")
        found = self._find(session)
        row = self._row(found, drop)
        template = found.graph.templates[found.graph.template[row.drop]]
        window = slice(query.offset, query.offset + query.limit)
        return DropDetail(
            **msgspec.structs.asdict(row),
            reasons=(f"{row.name} is {row.state}",),
            failure=next((failure for failure in found.failures if failure.drop == row.oid), None),
            inputs=(inputs := _neighbours(found, row.drop, after=False))[window],
            outputs=(outputs := _neighbours(found, row.drop, after=True))[window],
            input_count=len(inputs),
            output_count=len(outputs),
            has_log=row.drop in found.logs,
            has_data=row.drop in found.content,
            parameters={argument.name: str(argument.value) for argument in template.arguments},
        )

    def failures(self, session: str, query: PageQuery = FIRST_PAGE) -> FailureList:
        """What `fail` did, the most harmful first."""
        self._check("failures")
        return FailureList.page(sorted(self._find(session).failures, key=lambda failure: -failure.count), query)

    def log(self, session: str, drop: str) -> Download:
        """The log of a drop that failed."""
        self._check("log")
        found = self._find(session)
        row = self._row(found, drop)
        if row.drop not in found.logs:
            raise NotFoundError(f"drop {row.oid!r} wrote no log", where=session)
        return _download(f"{drop_file_name(row.oid)}.log", "text/plain; charset=utf-8", found.logs[row.drop])

    def data(self, session: str, drop: str) -> Download:
        """What `write` wrote."""
        self._check("data")
        found = self._find(session)
        row = self._row(found, drop)
        if row.state in ("EXPIRED", "DELETED"):
            raise GoneError(f"the content of {row.oid!r} was released", where=session)
        if row.drop not in found.content:
            raise NotFoundError(f"drop {row.oid!r} has no content", where=session)
        return _download(drop_file_name(row.oid), "application/octet-stream", found.content[row.drop])

    def results(self, session: str) -> ResultList:
        """All content, as if each were a leaf."""
        self._check("results")
        found = self._find(session)
        rows = [row for row in found.rows if row.drop in found.content and row.state == "COMPLETED"]
        results = tuple(
            ResultInfo(
                drop=row.drop,
                oid=row.oid,
                name=row.name,
                node=row.node,
                path=f"results/{drop_file_name(row.oid)}",
                size=len(found.content[row.drop]),
            )
            for row in rows
        )
        return ResultList(results=results)

    def contents(self, session: str, request: ContentsRequest) -> Download:
        """What `data` answers for each of the drops."""
        self._check("contents")
        found = self._find(session)

        def records() -> Iterator[ContentRecord]:
            for index, one in enumerate(request.wanted):
                try:
                    content = b"".join(self.data(session, found.rows[one.row].oid).chunks)
                except DropflowError as error:
                    yield ContentError(index, to_body(error))
                    continue
                now = digest()
                now.update(content)
                if now.hexdigest() == one.digest:
                    yield ContentUnchanged(index)
                else:
                    yield from (ContentBegin(index), ContentPiece(content), ContentEnd(now.hexdigest()))

        return Download(name="contents", content_type=MEDIA_TYPE, size=None, chunks=write_records(records()))

    def journal(self, session: str) -> Download:
        """A text that says what it is."""
        self._check("journal")
        self._find(session)
        return _download(f"{session}.journal", "application/octet-stream", f"journal of {session}".encode() * 1000)

    def graph(self, session: str) -> PhysicalGraph:
        """The graph of a session."""
        self._check("graph")
        return self._find(session).graph

    def slices(self, session: str) -> tuple[Slice, ...]:
        """The slices that were prepared; of a session that began otherwise, the whole graph in one."""
        self._check("slices")
        found = self._find(session)
        prepared = self.prepared.get((session, found.epoch))
        if prepared is not None:
            return tuple(parse_slice(data) for data in prepared.slices.values())
        placed = replace(found.graph, places=(self.name,) * found.graph.parts)
        return tuple(slice_by_place(placed).values())

    def close(self) -> None:
        """Wake whoever watches."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    # Inside.

    def _check(self, method: str) -> None:
        if method in self._refusals:
            raise self._refusals[method]

    def _find(self, session: str) -> _Session:
        found = self._sessions.get(session)
        if found is None:
            raise NotFoundError(f"there is no session {session!r}", where=self.name, hint="see the list of sessions")
        return found

    def _row(self, session: _Session, drop: str) -> DropInfo:
        named = find_drop(lambda query: self.drops(session.name, query), drop, session=session.name)
        return next(row for row in session.rows if row.oid == named.oid)

    def _put(self, session: _Session) -> None:
        with self._changed:
            before = self._sessions.get(session.name)
            version = before.version + 1 if before else 1
            self._sessions[session.name] = msgspec.structs.replace(session, version=version)
            self._changed.notify_all()

    def _settled(self, session: _Session) -> _Session:
        if any(not DropState[row.state].is_terminal for row in session.rows):
            return session
        failed = any(row.state == "ERROR" for row in session.rows)
        over = {"status": "FAILED" if failed else "FINISHED", "finished": self.clock.now()}
        text = session.failures[0].text if session.failures else ""
        return msgspec.structs.replace(session, text=text, **over)

    def _free_name(self, wanted: str) -> str:
        names = [wanted, *(f"{wanted}-{number}" for number in range(2, len(self._sessions) + 3))]
        return next(name for name in names if name not in self._sessions)


def made_up(**settings: Any) -> FakeManager:
    """A manager with four sessions: ``running``, ``failed``, ``finished`` and ``cancelled``.

    Parameters
    ----------
    **settings
        Those of `FakeManager`.
    """
    manager = FakeManager(**settings)
    graph = fan(40)
    for name in ("cancelled", "finished", "failed", "running"):
        manager.add(graph, name)
        manager.advance(name, {0: "COMPLETED"} | dict.fromkeys(range(1, 6), "COMPLETED"))
        manager.write(name, 0, b"the root of all\n")
        if isinstance(manager.clock, VirtualClock):
            manager.clock.advance(60.0)
    manager.advance("running", {6: "WRITING", 7: "WRITING", 21: "COMPLETED"})
    for drop in (1, 2):
        manager.fail("failed", drop, f"no value {drop}", also=(20 + drop,))
    manager.complete("failed")
    manager.complete("finished")
    manager.write("finished", 21, bytes(range(256)) * 64)
    manager.cancel("cancelled", "not needed any more")
    return manager


def _rows(graph: PhysicalGraph, first: int, node: str) -> tuple[DropInfo, ...]:
    names = oids(graph, range(graph.drops))
    shared = graph.templates
    return tuple(
        DropInfo(
            drop=first + row,
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


def _size(row: DropInfo, state: str) -> int | None:
    return 1024 if state == "COMPLETED" and not row.is_app else None


def _neighbours(session: _Session, drop: int, *, after: bool) -> tuple[Neighbour, ...]:
    edges = session.graph.successors if after else session.graph.predecessors
    near = edges.neighbour[edges.ptr[drop] : edges.ptr[drop + 1]].tolist()
    rows = [session.rows[row] for row in near]
    return tuple(
        Neighbour(drop=row.drop, oid=oid(session.graph, row.drop), name=row.name, state=row.state, node=row.node)
        for row in rows
    )


def _info(session: _Session, now: float) -> SessionInfo:
    states = Counter(row.state for row in session.rows)
    settled = sum(count for state, count in states.items() if DropState[state].is_terminal)
    seconds = (session.finished or now) - session.created
    rate = settled / seconds if seconds > 0 else 0.0
    left = len(session.rows) - settled
    return SessionInfo(
        session=session.name,
        graph=session.graph.name,
        status=session.status,
        epoch=session.epoch,
        version=session.version,
        drops=len(session.rows),
        settled=settled,
        running=states["WRITING"],
        states={state: count for state, count in states.items() if count},
        created=session.created,
        started=session.created,
        finished=session.finished,
        seconds=seconds,
        rate=rate,
        remaining=None if is_over(session.status) or not rate else left / rate,
        nodes=tuple(sorted({row.node for row in session.rows})),
        text=session.text,
        whole=session.whole,
    )


def _detail(session: _Session, now: float) -> SessionDetail:
    counted: dict[str, Counter[str]] = {}
    first: dict[str, DropInfo] = {}
    for row in session.rows:
        counted.setdefault(row.key, Counter())[row.state] += 1
        first.setdefault(row.key, row)
    logical = tuple(
        LogicalNodeInfo(
            key=key,
            name=first[key].name,
            category=first[key].category,
            is_app=first[key].is_app,
            artificial=False,
            drops=states.total(),
            states=dict(states),
        )
        for key, states in counted.items()
    )
    failures = tuple(sorted(session.failures, key=lambda failure: -failure.count))[:100]
    return SessionDetail(**msgspec.structs.asdict(_info(session, now)), logical=logical, failures=failures)


def _download(name: str, content_type: str, content: bytes) -> Download:
    def chunks() -> Iterator[bytes]:
        for start in range(0, len(content), 4096):
            yield content[start : start + 4096]

    return Download(name=name, content_type=content_type, size=len(content), chunks=chunks())
