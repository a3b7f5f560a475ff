"""The table of edges, with links, adapters and order, from the declarations at the ends of edges.

In DALiuGE's JSON an edge may be declared by its source, by its target or by both, each naming only its own port. Two
drops may have several edges, at different ports: then the k-th declaration on one side belongs to the k-th on the
other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Axis, Kind, Link, Template

__all__ = ["Declarations", "EdgeTable", "collecting", "expand_adapters", "match", "number_links"]

_Wide = npt.NDArray[np.int64]
_LATER = 1 << 40
"""Added to the positions of edges that their application does not declare: they follow those that it declares."""


@dataclass
class Declarations:
    """Edges as declared on one side, in the order of the document, as columns."""

    source: list[int] = field(default_factory=list)
    target: list[int] = field(default_factory=list)
    streaming: list[int] = field(default_factory=list)
    port: list[int] = field(default_factory=list)

    def add(self, source: int, target: int, streaming: bool, port: int) -> None:  # noqa: FBT001 - a value, not a flag
        """Add one declaration."""
        self.source.append(source)
        self.target.append(target)
        self.streaming.append(streaming)
        self.port.append(port)

    def renumbered(self, row_of: _Wide) -> "Declarations":
        """Return the declarations with new numbers of the drops."""
        source, target = (row_of[np.array(end, dtype=np.int64)].tolist() for end in (self.source, self.target))
        return Declarations(source, target, self.streaming, self.port)


class EdgeTable(NamedTuple):
    """Edges with both of their ports, one row for each.

    Attributes
    ----------
    source, target : int64 arrays
        Rows of the drops at the ends, shape (edges,).
    source_port, target_port : int64 arrays
        Numbers of the port names, shape (edges,).
    streaming : int64 array
        1 where the target reads while the source is written, else 0.
    by_source, by_target : int64 arrays
        Position of the edge among the declarations of its source and of its target.
    """

    source: _Wide
    target: _Wide
    source_port: _Wide
    target_port: _Wide
    streaming: _Wide
    by_source: _Wide
    by_target: _Wide


def match(from_sources: Declarations, from_targets: Declarations, drops: int) -> EdgeTable:
    """Pair the declarations of sources and targets. Identical declarations are one edge."""
    out, into = _keys(from_sources, drops), _keys(from_targets, drops)
    out_order, into_order = np.argsort(out, kind="stable"), np.argsort(into, kind="stable")
    out, into = out[out_order], into[into_order]
    key = np.union1d(out, into)
    out_start, into_start = np.searchsorted(out, key), np.searchsorted(into, key)
    out_count = np.searchsorted(out, key, side="right") - out_start
    into_count = np.searchsorted(into, key, side="right") - into_start

    # Each pair of drops gets as many edges as the side with more declarations; the last port of the other side is
    # repeated.
    count = np.maximum(out_count, into_count)
    group = np.repeat(np.arange(len(key)), count)
    rank = np.arange(len(group)) - np.repeat(np.cumsum(count) - count, count)
    source_port, by_source = _picked(from_sources, out_order, out_start[group], out_count[group], rank)
    target_port, by_target = _picked(from_targets, into_order, into_start[group], into_count[group], rank)
    pair, streaming = np.divmod(key[group], 2)
    source, target = np.divmod(pair, max(drops, 1))

    words = np.stack([key[group], source_port, target_port])
    _, once = np.unique(words, axis=1, return_index=True)
    columns = (source, target, source_port, target_port, streaming, by_source, by_target)
    return EdgeTable(*(column[once] for column in columns))


def _keys(side: Declarations, drops: int) -> _Wide:
    source, target = np.array(side.source, dtype=np.int64), np.array(side.target, dtype=np.int64)
    return (source * max(drops, 1) + target) * 2 + np.array(side.streaming, dtype=np.int64)


def _picked(side: Declarations, order: _Wide, start: _Wide, count: _Wide, rank: _Wide) -> tuple[_Wide, _Wide]:
    """Return the port and position of each edge on one side: port 0, at the end, if that side does not declare it."""
    position = np.full(len(rank), _LATER, dtype=np.int64)
    position += np.arange(len(rank))
    port = np.zeros(len(rank), dtype=np.int64)
    says = count > 0
    chosen = order[(start + np.minimum(rank, count - 1))[says]]
    port[says] = np.array(side.port, dtype=np.int64)[chosen]
    position[says] = chosen
    return port, position


def expand_adapters(
    edges: EdgeTable, template: list[int], templates: list[Template], oids: list[str]
) -> tuple[EdgeTable, list[int], list[tuple[str, str]]]:
    """Insert an artificial drop into every edge between drops of the same kind.

    It is a memory drop between applications, and a copying application between data drops. The new drops are added to
    `template`, `templates` and `oids`.

    Returns
    -------
    edges : EdgeTable
        Both halves of each split edge, and all other edges.
    hosts : list of int
        The source of the edge of each new drop.
    joined : list of (str, str)
        Names of the templates at the ends, once for each pair.
    """
    kinds = np.fromiter((one.kind for one in templates), dtype=np.int8, count=len(templates))
    rows = np.array(template, dtype=np.int64)
    same = kinds[rows[edges.source]] == kinds[rows[edges.target]]
    split = np.flatnonzero(same)
    if not len(split):
        return edges, [], []
    taken = set(oids)
    made: dict[tuple[int, int], list[int]] = {}
    first = len(template)
    hosts = []
    for source, target in zip(edges.source[split].tolist(), edges.target[split].tolist(), strict=True):
        made.setdefault((template[source], template[target]), []).append(len(template))
        hosts.append(source)
        oids.append(_free_name(f"{oids[source]}-to-{oids[target]}", taken))
        template.append(-1)
    joined = []
    for (before, after), drops in made.items():
        ends = templates[before], templates[after]
        joined.append((ends[0].name, ends[1].name))
        for drop in drops:
            template[drop] = len(templates)
        templates.append(_adapter(*ends, len(drops)))
    others = EdgeTable(*(column[~same] for column in edges))
    halves = _halves(EdgeTable(*(column[split] for column in edges)), np.arange(first, first + len(split)))
    return EdgeTable(*(np.concatenate(parts) for parts in zip(others, *halves, strict=True))), hosts, joined


def _halves(edges: EdgeTable, adapters: np.ndarray) -> tuple[EdgeTable, EdgeTable]:
    """Return the edges from the sources of `edges` to `adapters`, and those from there to the targets."""
    no_port = np.zeros(len(adapters), dtype=np.int64)
    return (
        edges._replace(target=adapters, target_port=no_port),
        edges._replace(source=adapters, source_port=no_port),
    )


def _free_name(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    taken.add(name)
    return name


def _adapter(before: Template, after: Template, drops: int) -> Template:
    between_apps = before.kind is Kind.APP
    return Template(
        key=f"{before.key}-to-{after.key}",
        name=f"{before.name} to {after.name}",
        kind=Kind.DATA if between_apps else Kind.APP,
        component="dlg.data.drops.memory.InMemoryDROP" if between_apps else "dlg.apps.simple.CopyApp",
        category="Memory" if between_apps else "DALiuGEApp",
        axes=(Axis("", "", "list", drops),) if drops > 1 else (),
        artificial=True,
        origin=f"{before.key} -> {after.key}",
    )


def number_links(
    edges: EdgeTable, template: Sequence[int], templates: Sequence[Template], ports: Sequence[str]
) -> tuple[list[Link], npt.NDArray[np.int32]]:
    """Assign a link to every edge, so that sorting by link keeps the order that applications declare.

    The inputs (and outputs) of an application are sorted by link and then by drop. For each application, in the
    declared order, an edge gets the first link of its signature that follows the link of the edge before; if there is
    none, a new link is made. Graphs in the order of dropflow get one link for each signature.
    """
    rows = np.array(template, dtype=np.int64)
    is_app = np.fromiter((one.kind is Kind.APP for one in templates), dtype=np.bool_, count=len(templates))
    leaves_app = is_app[rows[edges.source]]
    app = np.where(leaves_app, edges.source, edges.target)
    other = np.where(leaves_app, edges.target, edges.source)
    position = np.where(leaves_app, edges.by_source, edges.by_target)
    order = np.lexsort((position, leaves_app, app))
    links: list[Link] = []
    known: dict[tuple[int, ...], list[int]] = {}
    chosen = np.empty(len(order), dtype=np.int32)
    seen, last = (-1, False), (-1, -1)
    signature = (rows[edges.source], rows[edges.target], edges.source_port, edges.target_port, edges.streaming)
    columns = zip(*(column[order].tolist() for column in (app, leaves_app, other, *signature)), strict=True)
    for edge, (holder, leaves, drop, *words) in zip(order.tolist(), columns, strict=True):
        if (holder, leaves) != seen:
            seen, last = (holder, leaves), (-1, -1)
        candidates = known.setdefault(tuple(words), [])
        link = next((number for number in candidates if (number, drop) > last), -1)
        if link < 0:
            link = len(links)
            candidates.append(link)
            source, target, source_port, target_port, streaming = words
            links.append(
                Link(
                    source=source,
                    target=target,
                    source_port=ports[source_port],
                    target_port=ports[target_port],
                    streaming=bool(streaming),
                )
            )
        last = (link, drop)
        chosen[edge] = link
    return links, chosen


def collecting(graph: PhysicalGraph) -> tuple[Template, ...]:
    """Return the templates with `collects`: the ports at which a drop has several edges of one link."""
    before = graph.predecessors
    target = np.repeat(np.arange(graph.drops, dtype=np.int64), np.diff(before.ptr))
    edge, count = np.unique(target * max(len(graph.links), 1) + before.link, return_counts=True)
    templates = list(graph.templates)
    for row in np.unique(edge[count > 1] % max(len(graph.links), 1)).tolist():
        link = graph.links[row]
        known = templates[link.target]
        if link.target_port not in known.collects:
            ports = (*known.collects, link.target_port)
            templates[link.target] = msgspec.structs.replace(known, collects=ports)
    return tuple(templates)
