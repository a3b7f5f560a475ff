"""A forecast of a run, with reasons: for each logical node how many of its applications run."""

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from dropflow.execution.executor_spec import KeyPart
from dropflow.formatting import few
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import ORDER_PORT, Kind, needs_of
from dropflow.graph.text_ids import index_of
from dropflow.reuse.attempt import INPUTS, MOST_REASONS, differences, drop_name, input_changes
from dropflow.reuse.plan import ReusePlan
from dropflow.reuse.result_store import Record, ResultStore
from dropflow.times.measured_run import MeasuredSeconds

_LOOKED_AT = 20
"""Applications of a node whose last record is compared; the reasons of the others are most often the same."""


class NodeForecast(msgspec.Struct, frozen=True, kw_only=True):
    """How many applications of one logical node run, and how many are reused.

    Attributes
    ----------
    node : str
        Its name.
    runs, reused, waits : int
        Applications that run; that are taken, or not needed; and that run unless their inputs come out as they were.
    reasons : tuple of str
        Why they run.
    seconds, least, most : float
        How long those that run and wait took in earlier runs, together: the mean; as if each took as long as the
        shortest measurement, without those that wait; and as if each took as long as the longest one.
    cpus : int
        Processors of one of them.
    unmeasured : int
        Those that run or wait and have never been measured: the seconds are without them.
    """

    node: str
    runs: int = 0
    reused: int = 0
    waits: int = 0
    reasons: tuple[str, ...] = ()
    seconds: float = 0.0
    least: float = 0.0
    most: float = 0.0
    cpus: int = 1
    unmeasured: int = 0


def forecast(plan: ReusePlan, store: ResultStore, measured: MeasuredSeconds | None = None) -> tuple[NodeForecast, ...]:
    """Return how many applications of each logical node run, and why, in the order of the graph.

    Parameters
    ----------
    measured : MeasuredSeconds, optional
        Seconds of drops in earlier runs. For others, the store has how long applications took the last time.
    """
    graph = plan.graph
    reused = Counter(int(graph.template[app]) for app in (*plan.taken, *plan.spared))
    running: dict[int, list[int]] = {}
    for app in plan.running:
        running.setdefault(int(graph.template[app]), []).append(app)
    forecasts = {}
    for row in _in_order(graph):
        apps = sorted(running.get(row, ()))
        if not apps and not reused[row]:
            continue
        node = plan.nodes[row]
        name = graph.templates[row].name
        if node.reason:
            known = NodeForecast(node=name, runs=len(apps), reused=reused[row], reasons=(node.reason,))
            forecasts[row] = _with_price(known, graph, apps, [], measured)
            continue
        pairs = [(app, _last(store, graph, app)) for app in apps[:_LOOKED_AT]]
        found_by_app = [_reasons(plan, store, app, last) for app, last in pairs]
        reasons = list(dict.fromkeys(text for texts in found_by_app for text in texts))
        waits = sum(not texts for texts in found_by_app) if reasons else len(apps)
        reasons = reasons[:MOST_REASONS]
        if waits:
            sources = _sources(graph, row, running.keys()) or ["an earlier application"]
            reasons.append(f"{few(sources)} may give it other inputs")
        known = NodeForecast(node=name, runs=len(apps) - waits, waits=waits, reused=reused[row], reasons=tuple(reasons))
        before = [last.seconds for _, last in pairs if last is not None]
        forecasts[row] = _with_price(known, graph, apps, before, measured)
    return tuple(forecasts[row] for row in range(len(graph.templates)) if row in forecasts)


def _with_price(
    node: NodeForecast,
    graph: PhysicalGraph,
    apps: list[int],
    before: Sequence[float],
    measured: MeasuredSeconds | None,
) -> NodeForecast:
    """Return a forecast with what its applications cost, by measurements or by the seconds of some the last time."""
    if not apps:
        return node
    columns = (
        [np.full(len(apps), np.nan) for _ in range(3)] if measured is None else [measure[apps] for measure in measured]
    )
    unknown = np.isnan(columns[1])
    if before:
        for column, seconds in zip(columns, (min(before), sum(before) / len(before), max(before)), strict=True):
            column[unknown] = seconds
    least, mean, most = (float(np.nansum(column)) for column in columns)
    return msgspec.structs.replace(
        node,
        seconds=mean,
        least=least * node.runs / len(apps),
        most=most,
        cpus=needs_of(graph.templates[graph.template[apps[0]]]).cpus,
        unmeasured=int(np.isnan(columns[1]).sum()),
    )


def _last(store: ResultStore, graph: PhysicalGraph, app: int) -> Record | None:
    return store.find(drop_name(graph.name, graph.templates[graph.template[app]].name, index_of(graph, app)), last=True)


def _reasons(plan: ReusePlan, store: ResultStore, app: int, last: Record | None) -> list[str]:
    """Return why an application runs; nothing if only its inputs can tell."""
    untold = [plan.untold[data] for data in plan.graph.predecessors.of(app) if data in plan.untold]
    if untold:
        return [f"reads {name}, whose store does not report changes" for name in dict.fromkeys(untold)]
    if last is None:
        return ["not run before"]
    own = plan.nodes[plan.graph.template[app]].parts
    before = [part for part in last.parts if part.kind not in INPUTS]
    is_known, changes = _of_inputs(plan, app, [part for part in last.parts if part.kind in INPUTS])
    reasons = [*differences(before, own, store), *changes]
    return reasons or (["its stored result is gone"] if is_known else [])


def _of_inputs(plan: ReusePlan, app: int, before: Sequence[KeyPart]) -> tuple[bool, list[str]]:
    """Return whether the contents of all inputs are known, and how what is known differs from an earlier run."""
    graph, edges = plan.graph, plan.graph.predecessors
    rows = slice(edges.ptr[app], edges.ptr[app + 1])
    pairs = zip(edges.neighbour[rows].tolist(), edges.link[rows].tolist(), strict=True)
    inputs = [data for data, link in pairs if graph.links[link].target_port != ORDER_PORT]
    nothing = ("", "", False)
    known = [(plan.contents.get(data, nothing), graph.templates[graph.template[data]].name) for data in inputs]
    is_known = all(data in plan.contents for data in inputs)
    return is_known, input_changes(before, [(place[0] or name, place[1]) for place, name in known])


def _in_order(graph: PhysicalGraph) -> list[int]:
    """Return the templates of applications, those of the first drops of the graph first."""
    rows, first = np.unique(graph.template, return_index=True)
    ranks = first if graph.rank is None else graph.rank[first]
    return [row for row in rows[np.argsort(ranks, kind="stable")].tolist() if graph.templates[row].kind is Kind.APP]


def _sources(graph: PhysicalGraph, row: int, running: Collection[int]) -> list[str]:
    """Return the names of the nodes that run and write what a node reads."""
    read = {link.source for link in graph.links if link.target == row}
    writers = {link.source for link in graph.links if link.target in read}
    return [graph.templates[writer].name for writer in sorted(writers & {*running})]
