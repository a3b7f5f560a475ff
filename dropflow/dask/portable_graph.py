"""A translated dask graph for other processes: its templates carry the code of their tasks."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from dask.task_spec import DataNode

from dropflow.dask.chunk_inputs import chunk_inputs
from dropflow.dask.lost_stores import is_store, refuse_lost_stores
from dropflow.dask.translate import TranslatedGraph
from dropflow.dask_tasks.task_app import DASK_TASK, KEYS_FIELD, TASKS_FIELD
from dropflow.dask_tasks.task_pages import TaskEntry, encode_pages
from dropflow.data.kept_content import KEPT_CONTENT, KeptContent, kept_contents_field
from dropflow.graph.builder import from_columns
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Argument, Kind, Link
from dropflow.graph.text_ids import oids

__all__ = ["portable"]

_MEMORY, _CATEGORY = "dlg.data.drops.memory.InMemoryDROP", "Memory"
_KEPT = "~kept"


def portable(tasks: TranslatedGraph, *, is_elsewhere: bool = True) -> PhysicalGraph:
    """Return a graph whose attempts can run in any process that has the modules that its tasks need.

    The drops are those of `tasks`, which has no constants (``runs_constants``). The values of wanted keys are kept,
    even if there are readers. Persisted chunks are contents of their sessions, in the places that they have now.

    Parameters
    ----------
    is_elsewhere : bool
        Whether tasks run in another directory than this process.

    Raises
    ------
    AppError
        A task cannot be pickled, or would lose what it stores.
    GoneError
        A persisted chunk was released.
    """
    graph = _with_kept(tasks.graph, _read_results(tasks))
    fields = _fields(tasks, graph, is_elsewhere=is_elsewhere)
    given = _given_contents(tasks, graph)
    templates = []
    for row, template in enumerate(graph.templates):
        if template.kind is Kind.APP:
            made = msgspec.structs.replace(template, component=DASK_TASK, arguments=fields[row])
        elif row in given:
            name, category = KEPT_CONTENT.dropclass, KEPT_CONTENT.category
            made = msgspec.structs.replace(template, component=name, category=category, arguments=(given[row],))
        else:
            made = msgspec.structs.replace(template, component=_MEMORY, category=_CATEGORY)
        templates.append(made)
    return replace(graph, templates=tuple(templates))


def _given_contents(tasks: TranslatedGraph, graph: PhysicalGraph) -> dict[int, Argument]:
    """Return the field of each template whose drops are persisted chunks."""
    chunks = chunk_inputs(tasks)
    drops = np.fromiter(chunks, dtype=np.int32, count=len(chunks))
    found: dict[int, dict[str, KeptContent]] = {}
    for (drop, chunk), name in zip(chunks.items(), oids(graph, drops), strict=True):
        session, row = chunk.where
        place = session.places[row]
        content = KeptContent(session.name, row, place.oid, place.path, place.size, place.checksum)
        found.setdefault(int(graph.template[drop]), {})[name] = content
    return {row: kept_contents_field(contents) for row, contents in found.items()}


def _read_results(tasks: TranslatedGraph) -> IntColumn:
    """Return the data drops of wanted keys that have readers, ascending."""
    wanted = np.unique(np.fromiter(tasks.results.values(), dtype=np.int32))
    ptr = tasks.graph.successors.ptr
    return wanted[ptr[wanted] < ptr[wanted + 1]]


def _with_kept(graph: PhysicalGraph, kept: IntColumn) -> PhysicalGraph:
    """Return a graph in which these data drops have templates of their own, and persist."""
    if not len(kept):
        return graph
    templates = list(graph.templates)
    names = {template.key for template in templates}
    template = graph.template.copy()
    for row in np.unique(template[kept]).tolist():
        key = templates[row].key + _KEPT
        while key in names:
            key += "~"
        names.add(key)
        template[kept[graph.template[kept] == row]] = len(templates)
        templates.append(msgspec.structs.replace(templates[row], key=key, persist=True))
    source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(graph.successors.ptr))
    target = graph.successors.neighbour
    pairs, link = np.unique(template[source].astype(np.int64) * len(templates) + template[target], return_inverse=True)
    made = from_columns(
        name=graph.name,
        prefix=graph.prefix,
        templates=templates,
        links=[Link(source=pair // len(templates), target=pair % len(templates)) for pair in pairs.tolist()],
        template=template,
        instance=graph.instance,
        source=source,
        target=target,
        link=link,
        meta=graph.meta,
    )
    return replace(made, priority=graph.priority)


def _fields(tasks: TranslatedGraph, graph: PhysicalGraph, *, is_elsewhere: bool) -> dict[int, tuple[Argument, ...]]:
    """Return the fields of each application template."""
    count, template = tasks.tasks, graph.template
    inputs = _named_inputs(tasks, graph)
    order = np.lexsort((graph.instance[:count], template[:count]))
    ends = np.cumsum(np.bincount(template[:count], minlength=len(tasks.labels))).tolist()
    labels = _labels(tasks, graph)
    instance = graph.instance[:count].tolist()
    fields: dict[int, tuple[Argument, ...]] = {}
    start = 0
    for row, end in enumerate(ends):
        members = order[start:end].tolist()
        start = end
        nothing: dict[Any, Any] = {}
        entries = [
            TaskEntry(instance[drop], tasks.nodes[drop], *inputs.get(drop, (nothing, nothing))) for drop in members
        ]
        if entries and is_store(entries[0].node):
            refuse_lost_stores([one.node for one in entries], _constants(tasks), is_elsewhere=is_elsewhere)
        pages = encode_pages(entries, graph.templates[row].name)
        fields[row] = (
            Argument(name=TASKS_FIELD, type="Object", value=pages),
            Argument(name=KEYS_FIELD, type="Object", value=labels.get(row, {})),
        )
    return fields


def _constants(tasks: TranslatedGraph) -> dict[Hashable, DataNode]:
    return {key: node for key, node in zip(tasks.keys, tasks.nodes, strict=True) if isinstance(node, DataNode)}


def _labels(tasks: TranslatedGraph, graph: PhysicalGraph) -> dict[int, dict[str, str]]:
    """Return the first part of the keys of inputs, by the beginning of their ids, for each application template."""
    made = _group_of(tasks, graph)
    found: dict[int, dict[str, str]] = {}
    for link in graph.links:
        if link.source in made and graph.templates[link.target].kind is Kind.APP and tasks.labels[made[link.source]]:
            head = f"{graph.prefix}_{graph.templates[link.source].key}"
            found.setdefault(link.target, {})[head] = tasks.labels[made[link.source]]
    return found


def _group_of(tasks: TranslatedGraph, graph: PhysicalGraph) -> dict[int, int]:
    """Return the application template whose tasks make the data of each data template."""
    return {link.target: link.source for link in graph.links if graph.templates[link.source].kind is Kind.APP} | {
        row: row - len(tasks.labels) for row in range(len(tasks.labels), 2 * len(tasks.labels))
    }


def _named_inputs(
    tasks: TranslatedGraph, graph: PhysicalGraph
) -> dict[int, tuple[Mapping[str, Hashable], Mapping[Hashable, Hashable]]]:
    """Return the keys of inputs that their ids do not tell, and aliases, of each task that has some."""
    plain = {row for row, label in enumerate(tasks.labels) if not label}
    count, keys = tasks.tasks, tasks.keys
    if not plain and not tasks.aliases and len(keys) == count:
        return {}
    group = graph.template[:count]
    odd = np.flatnonzero(np.isin(group, np.fromiter(plain, dtype=np.int32))).astype(np.int32)
    # Persisted chunks have no task whose template has the name of their keys.
    odd = np.concatenate([odd, np.arange(count, len(keys), dtype=np.int32)])
    names = {keys[row]: name for row, name in zip(odd.tolist(), oids(graph, odd + count), strict=True)}
    found: dict[int, tuple[Mapping[str, Hashable], Mapping[Hashable, Hashable]]] = {}
    for drop in range(count):
        named: dict[str, Hashable] = {}
        aliases: dict[Hashable, Hashable] = {}
        for key in tasks.nodes[drop].dependencies:
            target = tasks.aliases.get(key, key)
            if target is not key and target != key:
                aliases[key] = target
            if target in names:
                named[names[target]] = target
        if named or aliases:
            found[drop] = (named, aliases)
    return found
