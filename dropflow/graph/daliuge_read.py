"""Reading physical graphs in DALiuGE's JSON, of all versions.

Drops that differ only in identity and relations share one `Template`, so that a graph of 68 000 drops becomes a few
templates and columns. A document is read drop by drop: only one dictionary is in memory at a time.
"""

import json
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.errors import BadGraphError
from dropflow.failure import Problem, Severity, refuse_errors
from dropflow.graph.build import from_columns
from dropflow.graph.daliuge_fields import CONTAINERS, template_of
from dropflow.graph.nesting import too_deep
from dropflow.graph.physical import MOST_ROWS, PhysicalGraph
from dropflow.graph.templates import Axis, Kind, Link, Template

_INDEX_DIGITS = 10
"""Digits of an index in an id: those of the largest number of 32 bits."""
_Wide = npt.NDArray[np.int64]
_LATER = 1 << 40
"""Added to the positions of edges that their application does not declare: they follow those that it declares."""
_OUTWARDS = ("outputs", "consumers", "streamingConsumers")
_RELATIONS = (*_OUTWARDS, "inputs", "producers", "streamingInputs")
_IDENTITY = ("oid", "uid", "iid", "rank", "loop_ctx", "proc_index", "humanReadableKey", "node", "island")
_OWN = frozenset((*_RELATIONS, *_IDENTITY, "reprodata", "ports", "port_map"))
"""Keys in which instances of one node differ."""
_MOST_PROBLEMS = 200
"""Problems of one graph that are reported."""
_MOST_PRIORITY = 1 << 31
"""Magnitude from which a priority is ignored: it must fit into 32 bits with a sign."""
_LARGE_BYTES = 1 << 20
"""Bytes above which a text without a drop is refused before it is parsed."""
_MOST_EMPTY = 1000
"""Placeholders of nodes keep their numbers if no more of them than this are missing."""

# Index spaces of templates, from the instance ids of drops.


def index_in(drop: dict[str, Any]) -> tuple[int, ...] | None:
    """Return the index tuple of a drop, with the root level in front, or None if it has no valid one."""
    text = drop.get("iid")
    pieces = text.replace("/", "-").split("-") if isinstance(text, str) else drop.get("rank")
    if not isinstance(pieces, list) or not pieces:
        return None
    index = tuple(int(piece) if str(piece).isdecimal() and len(str(piece)) <= _INDEX_DIGITS else -1 for piece in pieces)
    return None if min(index) < 0 or index[0] else index


def counted(template: Sequence[int]) -> npt.NDArray[np.int32]:
    """Return the number of each row among the rows of its template."""
    seen: dict[int, int] = {}
    instances = np.empty(len(template), dtype=np.int32)
    for row, number in enumerate(template):
        instances[row] = seen.setdefault(number, 0)
        seen[number] += 1
    return instances


def with_axes(
    templates: list[Template],
    template: list[int],
    indices: list[tuple[int, ...] | None],
    trailing: dict[int, tuple[int, bool]],
) -> tuple[list[Template], npt.NDArray[np.int32]]:
    """Return the templates with the index spaces of their drops, and the position of each drop in its index space.

    Drops with missing or repeated indices, or indices of different lengths, are numbered in the order of the document.
    """
    members: dict[int, list[int]] = {}
    for row, number in enumerate(template):
        members.setdefault(number, []).append(row)
    instance = counted(template)
    changed = list(templates)
    for number, rows in members.items():
        known = {index[1:] for row in rows if (index := indices[row]) is not None}
        depths = {len(index) for index in known}
        shape: tuple[int, ...] = ()
        if len(known) == len(rows) and len(depths) == 1:
            shape = tuple(max(level) + 1 for level in zip(*known, strict=True))
        if len(known) < len(rows) or len(depths) != 1 or math.prod(shape) > MOST_ROWS:
            axes = _axes((len(rows),) if len(rows) > 1 else (), 0, is_mpi=False)
        else:
            loops, is_mpi = trailing[number]
            axes = _axes(shape, loops, is_mpi=is_mpi, job=templates[number].key)
            if _has_room(templates[number].axes, shape):
                axes = templates[number].axes
                shape = tuple(axis.size for axis in axes)
            instance[rows] = [_flat((indices[row] or (0,))[1:], shape) for row in rows]
        changed[number] = msgspec.structs.replace(changed[number], axes=axes)
    return changed, instance


def _axes(shape: tuple[int, ...], loops: int, *, is_mpi: bool, job: str = "") -> tuple[Axis, ...]:
    kinds = ["list"] * (len(shape) - loops) + ["loop"] * loops
    axes = [Axis("", "", kind, size) for kind, size in zip(kinds, shape, strict=True)]
    if is_mpi and axes:
        axes[-1] = Axis(job, job, "mpi", shape[-1])  # the ranks of two jobs are two groups
    return tuple(axes)


def _has_room(axes: tuple[Axis, ...], shape: tuple[int, ...]) -> bool:
    """Return whether an index space that a document declares has all indices of its drops."""
    sizes = tuple(axis.size for axis in axes)
    return (
        len(sizes) == len(shape)
        and all(size >= least for size, least in zip(sizes, shape, strict=True))
        and math.prod(sizes) <= MOST_ROWS
    )


def _flat(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    position = 0
    for at, size in zip(index, shape, strict=True):
        position = position * size + at
    return position


# The table of edges, with links, adapters and order, from the declarations at the ends of edges.
#
# In DALiuGE's JSON an edge may be declared by its source, by its target or by both, each naming only its own port. Two
# drops may have several edges, at different ports: then the k-th declaration on one side belongs to the k-th on the
# other.


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
    is_declared = count > 0
    chosen = order[(start + np.minimum(rank, count - 1))[is_declared]]
    port[is_declared] = np.array(side.port, dtype=np.int64)[chosen]
    position[is_declared] = chosen
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
    kinds = np.fromiter((entry.kind for entry in templates), dtype=np.int8, count=len(templates))
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
    is_app = np.fromiter((entry.kind is Kind.APP for entry in templates), dtype=np.bool_, count=len(templates))
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
        at = bisect_left(candidates, last[0] + (drop <= last[1]))  # the first of them after the edge before
        link = candidates[at] if at < len(candidates) else len(links)
        if link == len(links):
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


class ByteSource(Protocol):
    """A binary stream with a document, such as a file or ``sys.stdin.buffer``."""

    def read(self) -> bytes:
        """Return the whole document."""
        ...


def read_pg(document: Sequence[Any], *, name: str, findings: list[Problem] | None = None) -> PhysicalGraph:
    """Read a physical graph from a list of drops (DALiuGE's PG or PGT).

    Accepts plain lists, lists that end in a reproducibility record, and ``[name, [drop, ...]]``; edges declared on
    either side; old names of kinds and classes. An edge between two drops of the same kind gets an artificial drop. The
    drops keep their ids and their order.

    Parameters
    ----------
    document : sequence
        The decoded document.
    name : str
        Name of the graph; empty to use the name in the document.
    findings : list of Problem, optional
        Gets warnings and notes.

    Raises
    ------
    BadGraphError
        With all problems: PG001 (not a drop, or a value that is not valid), PG002 (a drop refers to one that does not
        exist), PG003 (two drops have one id).
    """
    items = list(document)
    if _is_wrapped(items):
        name, items = name or items[0], items[1]
    return _Reading(findings).graph(iter(items), len(items), name)


def read_pg_stream(
    stream: ByteSource, *, name: str, findings: list[Problem] | None = None, max_depth: int | None = None
) -> PhysicalGraph:
    """Read a physical graph from a JSON document; see `read_pg`.

    The text is in memory once, and the drops are decoded one at a time.

    Parameters
    ----------
    max_depth : int, optional
        Maximal nesting of lists and objects; not checked by default.

    Raises
    ------
    BadGraphError
        See `read_pg`; also PG001 if the text is not JSON, not a list, or nested too deeply.
    """
    text = stream.read()
    if max_depth is not None and too_deep(text, max_depth):
        raise _too_deep(max_depth, name)
    if len(text) > _LARGE_BYTES and b'"oid"' not in text:
        # Parsing 200 MB of nested lists without a drop would take gigabytes.
        raise _not_a_list(name)
    try:
        raw = msgspec.json.decode(text, type=list[msgspec.Raw])
        if len(raw) > 1 and bytes(memoryview(raw[0])[:1]) == b'"':
            name = name or msgspec.json.decode(raw[0])
            raw = msgspec.json.decode(raw[1], type=list[msgspec.Raw])
    except msgspec.ValidationError:
        raise _not_a_list(name) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return read_pg(_lenient(text, name), name=name, findings=findings)
    return _Reading(findings).graph(_decoded(raw, name), len(raw), name)


def _decoded(raw: list[msgspec.Raw], name: str) -> Iterator[Any]:
    """Decode drop after drop, so that only one dictionary is in memory at a time."""
    try:
        for item in raw:
            yield msgspec.json.decode(item)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_json(error, name) from None


def _lenient(text: bytes, name: str) -> Sequence[Any]:
    """Decode with Python's parser, which accepts NaN and Infinity as Python writes them."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _not_json(error, name) from None
    if not isinstance(document, list):
        raise _not_a_list(name)
    return document


def _not_json(error: Exception, name: str) -> BadGraphError:
    finding = _problem("PG001", f"the document is not JSON: {error}", "", hint="is the file complete?")
    return BadGraphError(f"PG001 {finding.text}", problems=(finding,), where=name, hint=finding.hint)


def _too_deep(limit: int, name: str) -> BadGraphError:
    text = f"lists and objects are nested more than {limit} levels deep"
    finding = _problem(
        "PG001", text, "", hint="graphs are never nested this deeply: the file is not a graph, or is damaged"
    )
    return BadGraphError(f"PG001 {finding.text}", problems=(finding,), where=name, hint=finding.hint)


def _not_a_list(name: str) -> BadGraphError:
    finding = _problem("PG001", "the document is not a list of drops", "", hint="a physical graph is a JSON list")
    return BadGraphError(f"PG001 {finding.text}", problems=(finding,), where=name, hint=finding.hint)


def _is_wrapped(items: list[Any]) -> bool:
    return len(items) > 1 and isinstance(items[0], str) and isinstance(items[1], list)


def _problem(code: str, text: str, where: str, *, hint: str = "", severity: Severity = Severity.ERROR) -> Problem:
    return Problem(code=code, severity=severity, where=where, text=text, hint=hint)


class _Reading:
    """One document being read: columns that grow drop by drop."""

    def __init__(self, findings: list[Problem] | None) -> None:
        self._findings = findings
        self._problems: list[Problem] = []
        self._unlisted = 0
        self._numbers: dict[str, int] = {}
        """A number for every text id of a drop or of a reference to one."""
        self._first_reference: dict[int, tuple[str, str]] = {}
        self._oids: list[str] = []
        self._rows: dict[int, int] = {}
        self._templates: list[Template] = []
        self._known: dict[bytes, int] = {}
        self._template: list[int] = []
        self._priority: list[int] = []
        self._index: list[tuple[int, ...] | None] = []
        self._trailing: dict[int, tuple[int, bool]] = {}
        self._nodes: list[tuple[str, str]] = []
        self._ports: dict[str, int] = {"": 0}
        self._from_sources = Declarations()
        self._from_targets = Declarations()

    def graph(self, drops: Iterator[Any], count: int, name: str) -> PhysicalGraph:
        """Read all drops and make the graph."""
        for position, drop in enumerate(drops):
            if position == count - 1 and _is_reproducibility_record(drop):
                break
            self._add(drop, f"/{position}")
        self._refuse_strangers()
        if self._unlisted:
            self._problems.append(_problem("PG001", f"and {self._unlisted} more problems like these", ""))
        refuse_errors(self._problems, name=name)
        return self._build(name)

    def _complain(self, finding: Problem) -> None:
        if len(self._problems) < _MOST_PROBLEMS:
            self._problems.append(finding)
        else:
            self._unlisted += 1

    def _add(self, drop: Any, where: str) -> None:
        if not isinstance(drop, dict):
            self._complain(_problem("PG001", "this is not a drop", where, hint="each drop is a JSON object"))
            return
        oid = drop.get("oid")
        if not isinstance(oid, str | int) or isinstance(oid, bool) or oid == "":
            self._complain(_problem("PG001", "this drop has no oid", where, hint="give each drop a unique text as oid"))
            return
        oid = str(oid)
        if not _is_unicode(oid):
            self._complain(_problem("PG001", f"the oid {oid!a} has half of a surrogate pair", where))
            return
        number = self._numbers.setdefault(oid, len(self._numbers))
        if number in self._rows:
            self._complain(_problem("PG003", f"there are two drops {oid!r}", f"{where}/oid", hint="rename one of them"))
            return
        shared = {key: value for key, value in drop.items() if key not in _OWN}
        self._priority.append(_take_priority(shared))
        template = self._template_row(shared, oid, where)
        self._rows[number] = len(self._oids)
        self._oids.append(oid)
        self._template.append(template)
        self._index.append(index_in(drop))
        self._note_levels(template, drop)
        self._nodes.append((_text(drop.get("node")), _text(drop.get("island"))))
        for key in _RELATIONS:
            if key not in drop:
                continue
            streaming = key.startswith("streaming")
            for other, port in self._entries(drop[key], oid, f"{where}/{key}"):
                if key in _OUTWARDS:
                    self._from_sources.add(number, other, streaming, port)
                else:
                    self._from_targets.add(other, number, streaming, port)

    def _template_row(self, shared: dict[str, Any], oid: str, where: str) -> int:
        if "name" not in shared and "nm" not in shared:
            shared["name"] = shared.get("lg_key", oid)
        try:
            words = msgspec.json.encode(shared)
        except UnicodeEncodeError:
            words = repr(shared).encode("utf-8", "backslashreplace")
            text = f"a text in drop {oid!r} has half of a surrogate pair"
            self._complain(_problem("PG001", text, where, hint="remove the character"))
        row = self._known.setdefault(words, len(self._templates))
        if row == len(self._templates):
            template, wrong = template_of(shared, oid)
            self._templates.append(template)
            for key, text, hint in wrong:
                self._complain(_problem("PG001", text, f"{where}/{key}" if key else where, hint=hint))
        return row

    def _note_levels(self, template: int, drop: dict[str, Any]) -> None:
        """Record which of the innermost levels of a template are loops, and whether the last one is an MPI rank."""
        index, context = self._index[-1] or (), drop.get("loop_ctx")
        loops = 0
        if isinstance(context, str) and context and "-".join(map(str, index[1:])).endswith(context):
            loops = min(context.count("-") + 1, len(index) - 1)
        seen = (loops, "proc_index" in drop)
        if self._trailing.setdefault(template, seen) != seen:
            self._trailing[template] = (0, False)

    def _entries(self, entries: Any, oid: str, where: str) -> Iterator[tuple[int, int]]:
        """Yield (number of the other drop, number of the port) for each entry of a relation."""
        if isinstance(entries, dict):
            entries = [{other: port} for other, port in entries.items()]
        if entries is not None and not isinstance(entries, list):
            self._complain(_problem("PG001", f"a relation of drop {oid!r} is not a list", where))
            return
        for entry in entries or ():
            pairs = entry.items() if isinstance(entry, dict) else ((entry, ""),)
            for other, port in pairs:
                if not isinstance(other, str | int) or not isinstance(port, str | None):
                    text = f"a relation of drop {oid!r} is neither an oid nor an oid with a port"
                    self._complain(_problem("PG001", text, where, hint='write "oid" or {"oid": "port"}'))
                    continue
                number = self._numbers.setdefault(str(other), len(self._numbers))
                if number not in self._rows:
                    self._first_reference.setdefault(number, (oid, where))
                yield number, self._ports.setdefault(port or "", len(self._ports))

    def _refuse_strangers(self) -> None:
        names = list(self._numbers)
        for number, (holder, where) in self._first_reference.items():
            if number not in self._rows:
                text = f"drop {holder!r} refers to {names[number]!r}, which does not exist"
                self._complain(_problem("PG002", text, where, hint="add the drop or remove the reference"))

    def _build(self, name: str) -> PhysicalGraph:
        row_of = np.full(max(len(self._numbers), 1), -1, dtype=np.int64)
        row_of[list(self._rows)] = list(self._rows.values())
        drops = len(self._oids)
        edges = match(self._from_sources.renumbered(row_of), self._from_targets.renumbered(row_of), drops)
        templates, instance = with_axes(self._templates, self._template, self._index, self._trailing)
        edges, hosts, joined = expand_adapters(edges, self._template, templates, self._oids)
        self._tell([_adapted(before, after) for before, after in joined])
        links, link = number_links(edges, self._template, templates, list(self._ports))
        part, places, meta = self._places()
        kinds = counted(self._template[drops:])
        graph = from_columns(
            name=name,
            prefix=name,
            templates=templates,
            links=links,
            template=np.array(self._template, dtype=np.int32),
            instance=np.concatenate([instance, kinds]),
            source=edges.source.astype(np.int32),
            target=edges.target.astype(np.int32),
            link=link,
            part=np.concatenate([part, part[np.array(hosts, dtype=np.int64)]]),
            oids=self._oids,
            meta=meta,
        )
        return replace(graph, places=places, templates=collecting(graph), priority=self._priorities(len(hosts)))

    def _priorities(self, adapters: int) -> npt.NDArray[np.int32] | None:
        """Return the priority of each drop, 0 for those without one and for adapters; None if no drop has one."""
        if not any(self._priority):
            return None
        column = np.array(self._priority + [0] * adapters, dtype=np.int32)
        column.flags.writeable = False
        return column

    def _tell(self, findings: list[Problem]) -> None:
        if self._findings is not None:
            self._findings += findings

    def _places(self) -> tuple[npt.NDArray[np.int32], tuple[str, ...], dict[str, str]]:
        """Return the part of each drop, the name of the node of each part, and the islands as a note."""
        missing = sum(not node for node, _ in self._nodes)
        if missing:
            if missing < len(self._nodes):
                text = f"{missing} drops have no node: the placement of the others is ignored"
                self._tell([_problem("PG001", text, "", severity=Severity.WARNING, hint="give every drop a node")])
            return np.zeros(len(self._nodes), dtype=np.int32), (), {}
        nodes = list(dict.fromkeys(node for node, _ in self._nodes))
        placeholders = all(map(_is_placeholder, nodes))
        if placeholders:
            nodes.sort(key=lambda node: int(node[1:]))
        number = {node: part for part, node in enumerate(nodes)}
        if placeholders and nodes and int(nodes[-1][1:]) < _MOST_EMPTY + 2 * len(nodes):
            first = self._placeholders_of_islands()
            if first > int(nodes[0][1:]):
                first = 0
            number = {node: int(node[1:]) - first for node in nodes}  # a plan may leave nodes empty
        part = np.fromiter((number[node] for node, _ in self._nodes), dtype=np.int32, count=len(self._nodes))
        by_node = {node: island for node, island in reversed(dict.fromkeys(self._nodes)) if island}
        meta = (
            {"islands": json.dumps([by_node.get(node, "") for node in nodes])} if by_node and not placeholders else {}
        )
        return part, () if placeholders else tuple(nodes), meta

    def _placeholders_of_islands(self) -> int:
        """Return how many placeholders stand for islands: DALiuGE numbers these first, then the nodes."""
        islands = {island for _, island in self._nodes}
        return max(int(island[1:]) for island in islands) + 1 if all(map(_is_placeholder, islands)) else 0


def _is_placeholder(name: str) -> bool:
    return name[:1] == "#" and name[1:].isdecimal() and len(name) <= _INDEX_DIGITS


def _adapted(before: str, after: str) -> Problem:
    text = f"edges from {before!r} to {after!r} join drops of the same kind: an artificial drop was inserted into each"
    return _problem("LG041", text, "", severity=Severity.INFO)


def _take_priority(shared: dict[str, Any]) -> int:
    """Remove the priority of an application and return it, 0 for none. A parameter of that name has a record."""
    value = shared.get("priority")
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < _MOST_PRIORITY:
        return 0
    if any(isinstance(shared.get(key), dict) and "priority" in shared[key] for key in CONTAINERS):
        return 0
    del shared["priority"]
    return int(value)


def _is_reproducibility_record(item: Any) -> bool:
    return (
        isinstance(item, dict) and "oid" not in item and ("rmode" in item or not item.keys() & {"categoryType", "type"})
    )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(value: Any) -> str:
    return "" if value is None else str(value)
