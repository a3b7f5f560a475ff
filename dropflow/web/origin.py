"""The origin of a result: the inputs, applications, parameters, versions and attempts that it was made from.

It follows from the graph and the times of a session (`dropflow.web.report.SessionReport`), on demand. By
logical node it is complete; drops are listed by pages, the nearest first.
"""

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.api.drop_records import FIRST_PAGE, PageQuery, ResultInfo
from dropflow.formatting import value_text
from dropflow.graph.digests import DropDigests, digest_text, drop_digests
from dropflow.graph.notes import software_of
from dropflow.graph.order import reached
from dropflow.graph.physical import IntColumn
from dropflow.graph.templates import Kind, Template
from dropflow.graph.text_ids import find_drop, label, oids
from dropflow.states import UNKNOWN_STATE, DropState
from dropflow.times.attempts import AttemptColumns
from dropflow.web.report import SessionReport
from dropflow.web.views import Listed

_MOST_STEPS = 200
"""Logical nodes of the origin of a result."""
_MOST_PARAMETERS = 50
"""Parameters of a logical node."""
_MOST_ATTEMPTS = 20
"""Attempts of a drop, the last ones."""
_MOST_PLACES = 20
"""Nodes on which a logical node ran."""
_TEXT_CHARACTERS = 2000
"""Characters of a value."""


class OriginAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt: its number, where and when it began, and how many seconds it ran."""

    attempt: int
    node: str
    worker: int
    began: float
    ran: float
    failed: bool


class OriginDrop(msgspec.Struct, frozen=True, kw_only=True):
    """One drop on the way to a result.

    Attributes
    ----------
    drop : int
        Row in the whole graph.
    oid, name : str
        Its id; name of its logical node, with its index.
    is_app : bool
    away : int
        Edges between it and the result.
    digest : str
        Digest of what it was made from, with parameters.
    state : str
        Name of its `dropflow.states.DropState`; empty if it is not known.
    attempts : tuple of OriginAttempt
        The last ones, if there are more than 20.
    size, checksum : int or None
        With which its content was committed, if it is a result and they are known.
    path : str
        The existing file that it stands for, if it is an input of a run here.
    """

    drop: int
    oid: str
    name: str
    is_app: bool
    away: int
    digest: str
    state: str = ""
    attempts: tuple[OriginAttempt, ...] = ()
    size: int | None = None
    checksum: int | None = None
    path: str = ""


class OriginNode(msgspec.Struct, frozen=True, kw_only=True):
    """The drops of a logical node on the way to a result.

    Attributes
    ----------
    name, key, category, component : str
        The logical node.
    is_app : bool
    drops, all_drops : int
        How many of its drops are on the way, and how many it has.
    away : int
        Edges between the nearest of them and the result.
    attempts, failed : int
        Number of attempts of these drops, and of failed ones.
    seconds : float
        How long these attempts ran.
    nodes : tuple of str
        Where; the first 20.
    parameters : tuple of (str, str)
        Names and values, as text.
    """

    name: str
    key: str
    category: str
    component: str
    is_app: bool
    drops: int
    all_drops: int
    away: int
    attempts: int = 0
    failed: int = 0
    seconds: float = 0.0
    nodes: tuple[str, ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a drop: its inputs, applications, parameters, versions and attempts.

    Attributes
    ----------
    session, oid, name : str
        The drop, with its index in the name.
    graph, parameters : str
        Its digests: of components, links and indices back to the roots, and of these with parameters.
    software : dict
        Versions of programs; empty if they were not recorded.
    size, checksum : int or None
        With which its content was committed, if it is a result and they are known.
    nodes : Listed of OriginNode
        The nearest first.
    drops : tuple of OriginDrop
        A page of all drops on the way, itself first.
    total, roots : int
        Number of these drops, and of those without inputs.
    offset, limit : int
        The page.
    missing : tuple of str
        Nodes that did not answer: attempts and contents on them are not listed.
    """

    session: str
    oid: str
    name: str
    graph: str
    parameters: str
    software: dict[str, str]
    size: int | None
    checksum: int | None
    nodes: Listed[OriginNode]
    drops: tuple[OriginDrop, ...]
    total: int
    roots: int
    offset: int = 0
    limit: int = 100
    missing: tuple[str, ...] = ()


def origin_of(report: SessionReport, drop: str, query: PageQuery = FIRST_PAGE) -> Origin:
    """Return what a drop was made from.

    Parameters
    ----------
    report : SessionReport
        The report of its session.
    drop : str
        Its id, the end of one, or its name; see `dropflow.graph.text_ids.find_drop`.
    query : PageQuery
        Which of the drops on the way are listed.

    Raises
    ------
    NotFoundError, AmbiguousError
        No drop, or more than one, has this id or name.
    BadGraphError
        The graph has a cycle.
    """
    graph = report.graph
    row = int(find_drop(graph, drop))
    rows, away = reached(graph.predecessors, [row])
    digests = drop_digests(graph)
    results = {result.drop: result for result in (report.results.results if report.results else ())}
    listed = slice(query.offset, query.offset + query.limit)
    drops = _drops(report, rows[listed], away[listed], digests, results)
    own = results.get(row)
    silent = report.results.missing if report.results else ()
    return Origin(
        session=report.detail.session,
        oid=oids(graph, [row])[0],
        name=label(graph, row),
        graph=digest_text(digests.graph[row]),
        parameters=digest_text(digests.parameters[row]),
        software=software_of(graph),
        size=own.size if own else None,
        checksum=own.checksum if own else None,
        nodes=_nodes(report, rows, away),
        drops=drops,
        total=len(rows),
        roots=int(np.count_nonzero(np.diff(graph.predecessors.ptr)[rows] == 0)),
        offset=query.offset,
        limit=query.limit,
        missing=tuple(sorted({*report.missing, *silent})),
    )


def _drops(
    report: SessionReport, rows: IntColumn, away: IntColumn, digests: DropDigests, results: dict[int, ResultInfo]
) -> tuple[OriginDrop, ...]:
    graph, attempts = report.graph, report.analysis.attempts
    tried: dict[int, list[OriginAttempt]] = {}
    for number in _attempts_of(attempts, rows, graph.drops).tolist():
        tried.setdefault(int(attempts.drop[number]), []).append(_attempt(attempts, number))
    drops = []
    for row, name, distance in zip(rows.tolist(), oids(graph, rows), away.tolist(), strict=True):
        result = results.get(row)
        drops.append(
            OriginDrop(
                drop=row,
                oid=name,
                name=label(graph, row),
                is_app=graph.templates[graph.template[row]].kind is Kind.APP,
                away=distance,
                digest=digest_text(digests.parameters[row]),
                state=_state(report, row),
                attempts=tuple(sorted(tried.get(row, ()), key=lambda attempt: attempt.attempt)[-_MOST_ATTEMPTS:]),
                size=result.size if result else None,
                checksum=result.checksum if result else None,
                path=report.inputs.get(row, ""),
            )
        )
    return tuple(drops)


def _state(report: SessionReport, row: int) -> str:
    known = UNKNOWN_STATE if report.states is None else int(report.states[row])
    return "" if known == UNKNOWN_STATE else DropState(known).name


def _attempts_of(attempts: AttemptColumns, rows: IntColumn, drops: int) -> npt.NDArray[np.int64]:
    """Return the numbers of the attempts of these drops."""
    wanted = np.zeros(drops, np.bool_)
    wanted[rows] = True
    return np.flatnonzero(wanted[attempts.drop])


def _attempt(attempts: AttemptColumns, number: int) -> OriginAttempt:
    return OriginAttempt(
        attempt=int(attempts.attempt[number]),
        node=attempts.nodes[attempts.node[number]],
        worker=int(attempts.worker[number]),
        began=float(attempts.began[number]),
        ran=float(attempts.ended[number] - attempts.began[number]),
        failed=bool(attempts.failed[number]),
    )


def _nodes(report: SessionReport, rows: IntColumn, away: IntColumn) -> Listed[OriginNode]:
    graph, attempts = report.graph, report.analysis.attempts
    count = len(graph.templates)
    template = graph.template[rows]
    # Rows are sorted by distance, so the first one of a template is the nearest.
    present, nearest = np.unique(template, return_index=True)
    order = np.lexsort((present, away[nearest]))
    mine, everywhere = np.bincount(template, minlength=count), np.bincount(graph.template, minlength=count)
    numbers = _attempts_of(attempts, rows, graph.drops)
    of = graph.template[attempts.drop[numbers]]
    tried = np.bincount(of, minlength=count)
    failed = np.bincount(of, weights=attempts.failed[numbers], minlength=count)
    seconds = np.bincount(of, weights=(attempts.ended - attempts.began)[numbers], minlength=count)
    pairs = np.unique(np.stack([of.astype(np.int64), attempts.node[numbers].astype(np.int64)], axis=1), axis=0)
    places: dict[int, list[str]] = {}
    for row_of_template, node in pairs.tolist():
        places.setdefault(row_of_template, []).append(attempts.nodes[node])
    nodes = []
    for at in order[:_MOST_STEPS].tolist():
        row_of_template = int(present[at])
        shared = graph.templates[row_of_template]
        nodes.append(
            OriginNode(
                name=shared.name,
                key=shared.key,
                category=shared.category,
                component=shared.component,
                is_app=shared.kind is Kind.APP,
                drops=int(mine[row_of_template]),
                all_drops=int(everywhere[row_of_template]),
                away=int(away[nearest[at]]),
                attempts=int(tried[row_of_template]),
                failed=int(failed[row_of_template]),
                seconds=float(seconds[row_of_template]),
                nodes=tuple(places.get(row_of_template, ())[:_MOST_PLACES]),
                parameters=_parameters(shared),
            )
        )
    return Listed(rows=tuple(nodes), total=len(present))


def _parameters(template: Template) -> tuple[tuple[str, str], ...]:
    return tuple(
        (argument.name, value_text(argument.value, _TEXT_CHARACTERS))
        for argument in template.arguments[:_MOST_PARAMETERS]
    )
