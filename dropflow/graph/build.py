"""Two ways to make a physical graph: from whole columns, and drop by drop for small graphs."""

from collections.abc import Sequence
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.errors import InternalError, UsageError
from dropflow.graph.physical import Adjacency, IntColumn, PhysicalGraph, PointerColumn
from dropflow.graph.templates import Kind, Link, Template

_Integers = npt.NDArray[np.integer[Any]]


def from_columns(
    *,
    name: str,
    prefix: str,
    templates: Sequence[Template],
    links: Sequence[Link],
    template: _Integers,
    instance: _Integers,
    source: _Integers,
    target: _Integers,
    link: _Integers,
    part: _Integers | None = None,
    oids: Sequence[str] | None = None,
    meta: dict[str, str] | None = None,
) -> PhysicalGraph:
    """Make a physical graph from columns; its arrays are read-only.

    Edges may be in any order. It is fastest if they are sorted by source, link and target, and fast if they are grouped
    by link with sources ascending in each group, as unrolling writes them. Arrays that already have the right type and
    order are kept, not copied.

    Parameters
    ----------
    name, prefix : str
        See `PhysicalGraph`.
    templates, links : sequences
        The templates and links that the columns refer to.
    template, instance : integer arrays, shape (drops,)
        Row of each drop's template, and its position in the row-major index space of that template.
    source, target, link : integer arrays, shape (edges,)
        Rows of the drops at the ends of each edge, and of the link it was expanded from.
    part : integer array, shape (drops,), optional
        Partition of each drop; all zero when absent.
    oids : sequence of str, optional
        Text ids of the drops, for graphs of other programs.
    meta : dict, optional
        Notes that are kept with the graph.

    Raises
    ------
    InternalError
        The columns differ in length, or refer to rows that do not exist.
    """
    drops = len(template)
    _refuse_uneven(drops, instance, part, oids)
    _refuse_outside("template", template, len(templates))
    _refuse_outside("source", source, drops)
    _refuse_outside("target", target, drops)
    _refuse_outside("link", link, len(links))
    if not len(source) == len(target) == len(link):
        raise InternalError(f"columns of edges differ in length: {len(source)}, {len(target)}, {len(link)}")
    return PhysicalGraph(
        name=name,
        prefix=prefix,
        templates=tuple(templates),
        links=tuple(links),
        template=_frozen(template),
        instance=_frozen(instance),
        part=_frozen(np.zeros(drops, dtype=np.int32) if part is None else part),
        successors=_adjacency(drops, source, target, link),
        oids=None if oids is None else tuple(oids),
        meta=dict(meta or {}),
    )


def _refuse_uneven(drops: int, instance: _Integers, part: _Integers | None, oids: Sequence[str] | None) -> None:
    columns = {"instance": instance, "part": part, "oids": oids}
    for name, column in columns.items():
        if column is not None and len(column) != drops:
            raise InternalError(f"column {name} has {len(column)} rows for {drops} drops")


def _refuse_outside(name: str, column: _Integers, rows: int) -> None:
    if len(column) and (int(column.min()) < 0 or int(column.max()) >= rows):
        raise InternalError(f"column {name} refers to rows outside 0..{rows - 1}")


def _frozen(column: _Integers) -> IntColumn:
    """Return the column as a read-only, contiguous int32 array. The array of the caller stays writable."""
    narrow = np.ascontiguousarray(column, dtype=np.int32).view()
    narrow.flags.writeable = False
    return narrow


def _adjacency(drops: int, source: _Integers, target: _Integers, link: _Integers) -> Adjacency:
    if not _is_sorted(source, link, target):
        # Unrolling writes link after link, so a stable sort by source alone merges a few ascending runs (numpy's stable
        # sort is a timsort) and is nearly always enough.
        order = np.argsort(source, kind="stable")
        source, target, link = source[order], target[order], link[order]
        del order
        if not _is_sorted(source, link, target):
            order = np.lexsort((target, link, source))
            source, target, link = source[order], target[order], link[order]
    ptr: PointerColumn = np.zeros(drops + 1, dtype=np.int64)
    np.cumsum(np.bincount(source, minlength=drops), out=ptr[1:])
    ptr.flags.writeable = False
    return Adjacency(ptr=ptr, neighbour=_frozen(target), link=_frozen(link))


def _is_sorted(first: _Integers, second: _Integers, third: _Integers) -> bool:
    """Return whether the rows are sorted by the first, second and third key."""
    if not bool((first[1:] >= first[:-1]).all()):
        return False
    # Only rows with equal first keys are compared further: none if every drop has one successor.
    ties = np.flatnonzero(first[1:] == first[:-1])
    if not len(ties):
        return True
    lower, upper = second[ties], second[ties + 1]
    if not bool((upper >= lower).all()):
        return False
    ties = ties[upper == lower]
    return bool((third[ties + 1] >= third[ties]).all())


class GraphBuilder:
    """Builds a physical graph drop by drop. Each drop gets its own template with one instance.

    For tests and small graphs made by programs; translated graphs are made by `from_columns`.

    Examples
    --------
    >>> drawing = GraphBuilder("hello")
    >>> _ = drawing.app("greet", component="dlg.apps.simple.HelloWorldApp").data("greeting")
    >>> drawing.connect("greet", "greeting").build().edges
    1
    """

    def __init__(self, name: str = "drawing", *, prefix: str = "") -> None:
        self._name = name
        self._prefix = prefix or name
        self._rows: dict[str, int] = {}
        self._templates: list[Template] = []
        self._links: list[Link] = []
        self._parts: list[int] = []

    def data(self, name: str, *, component: str = "dlg.data.drops.memory.InMemoryDROP", **fields: Any) -> Self:
        """Add a data drop; `fields` are those of `Template`, and ``part``."""
        return self._add(name, Kind.DATA, component, fields)

    def app(self, name: str, *, component: str = "dlg.apps.simple.NullBarrierApp", **fields: Any) -> Self:
        """Add an application drop; `fields` are those of `Template`, and ``part``."""
        return self._add(name, Kind.APP, component, fields)

    def connect(
        self, source: str, target: str, *, source_port: str = "", target_port: str = "", streaming: bool = False
    ) -> Self:
        """Add an edge between two drops that exist, one of them data and the other an application.

        Raises
        ------
        UsageError
            A drop does not exist, or both are of the same kind.
        """
        rows = []
        for name in (source, target):
            if name not in self._rows:
                raise UsageError(f"there is no drop {name!r} to connect", hint="add it before its edges")
            rows.append(self._rows[name])
        if self._templates[rows[0]].kind is self._templates[rows[1]].kind:
            raise UsageError(f"{source!r} and {target!r} are of the same kind", hint="put a drop between them")
        self._links.append(
            Link(source=rows[0], target=rows[1], source_port=source_port, target_port=target_port, streaming=streaming)
        )
        return self

    def build(self) -> PhysicalGraph:
        """Return the graph as built so far. More can be added and built afterwards."""
        drops, edges = len(self._templates), len(self._links)
        return from_columns(
            name=self._name,
            prefix=self._prefix,
            templates=self._templates,
            links=self._links,
            template=np.arange(drops, dtype=np.int32),
            instance=np.zeros(drops, dtype=np.int32),
            source=np.fromiter((link.source for link in self._links), dtype=np.int32, count=edges),
            target=np.fromiter((link.target for link in self._links), dtype=np.int32, count=edges),
            link=np.arange(edges, dtype=np.int32),
            part=np.array(self._parts, dtype=np.int32),
        )

    def _add(self, name: str, kind: Kind, component: str, fields: dict[str, Any]) -> Self:
        if name in self._rows:
            raise UsageError(f"there are two drops {name!r}", hint="names in a drawing are unique")
        self._rows[name] = len(self._templates)
        self._parts.append(fields.pop("part", 0))
        plain = Template(key=name, name=name, kind=kind, component=component)
        self._templates.append(msgspec.structs.replace(plain, **fields))
        return self
