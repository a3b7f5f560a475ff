"""The store of each class name in a graph."""

from collections.abc import Callable, Mapping

import numpy as np

from dropflow.data.database import RDBMS, DatabaseStore
from dropflow.data.directory import DIRECTORY, DirectoryStore
from dropflow.data.file import FILE, FILES, JSON, FilesStore, FileStore, JsonStore
from dropflow.data.kept_content import KEPT_CONTENT, KeptContentStore
from dropflow.data.memory import (
    END,
    MEMORY,
    NULL_DROP,
    PYTHON_OBJECT,
    SHARED_MEMORY,
    MemoryStore,
    NullStore,
    SharedMemoryStore,
)
from dropflow.data.ngas import NGAS, NgasStore
from dropflow.data.parameter_set import PARAMETER_SET, ParameterSetStore
from dropflow.data.store import Store
from dropflow.data.url import S3, URL, S3Store, UrlStore
from dropflow.errors import DropflowError, MissingDependencyError, UnknownComponentError
from dropflow.formatting import did_you_mean
from dropflow.graph.components import Component
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind, Template

_STORES: tuple[tuple[Component, Callable[[Template], Store]], ...] = (
    (MEMORY, MemoryStore),
    (PYTHON_OBJECT, MemoryStore),
    (SHARED_MEMORY, SharedMemoryStore),
    (FILE, FileStore),
    (FILES, FilesStore),
    (DIRECTORY, DirectoryStore),
    (JSON, JsonStore),
    (URL, UrlStore),
    (S3, S3Store),
    (NGAS, NgasStore),
    (RDBMS, DatabaseStore),
    (PARAMETER_SET, ParameterSetStore),
    (NULL_DROP, NullStore),
    (END, NullStore),
    (KEPT_CONTENT, KeptContentStore),
)

DATA_COMPONENTS: tuple[Component, ...] = tuple(component for component, _ in _STORES if component is not KEPT_CONTENT)
"""The definitions of the data classes that users choose, for the palette and the reference."""

_FROM_OUTSIDE = (FILE, FILES, DIRECTORY, JSON, URL, S3, NGAS, RDBMS, KEPT_CONTENT)

_BY_CLASS: Mapping[str, int] = {
    name: row for row, (component, _) in enumerate(_STORES) for name in (component.dropclass, *component.aliases)
}
_BY_LAST: Mapping[str, int] = {name.rpartition(".")[2].lower(): row for name, row in _BY_CLASS.items()}
"""Rows by the last part of a class name: DALiuGE moved packages, but did not rename classes."""

_BY_CATEGORY: Mapping[str, Component] = {
    "memory": MEMORY,
    "sharedmemory": SHARED_MEMORY,
    "plasma": SHARED_MEMORY,
    "plasmaflight": SHARED_MEMORY,
    "pythonobject": PYTHON_OBJECT,
    "file": FILE,
    "directory": DIRECTORY,
    "json": JSON,
    "s3": S3,
    "ngas": NGAS,
    "rdbms": RDBMS,
    "parameterset": PARAMETER_SET,
    "null": NULL_DROP,
    "nulldrop": NULL_DROP,
    "end": END,
}
_DALIUGE_PACKAGES = ("dlg", "dfms")
_UNSUPPORTED: Mapping[str, str] = {
    "container": "a container of other drops",
    "icebergtable": "an Iceberg table",
}
_OTHER = "use a File, Directory, Memory or SharedMemory node in its place"


def component_for(template: Template) -> Component:
    """Return the definition of the class of a data node, or of its category.

    Raises
    ------
    UnknownComponentError
        There is none. The hint has the nearest known class.
    MissingDependencyError
        The class is known, but this version of dropflow does not support it.
    """
    return _STORES[_row(template)][0]


def store_for(template: Template) -> Store:
    """Return the store of a data node, with the parameters of the node.

    Raises
    ------
    UnknownComponentError, MissingDependencyError
        As `component_for`.
    BadParameterError
        Lists every parameter that cannot be used.
    """
    return _STORES[_row(template)][1](template)


def is_read_from_outside(template: Template) -> bool:
    """Return whether a drop of a data node that no application writes has the content of an existing file or directory.

    That of other nodes is made from the graph.
    """
    try:
        return component_for(template) in _FROM_OUTSIDE
    except DropflowError:
        return True


def outside_roots(graph: PhysicalGraph) -> list[int]:
    """Return the data drops without producers whose content is read from outside of the session."""
    outside = np.array(
        [template.kind is Kind.DATA and is_read_from_outside(template) for template in graph.templates], np.bool_
    )
    rows: list[int] = np.flatnonzero(outside[graph.template] & (np.diff(graph.predecessors.ptr) == 0)).tolist()
    return rows


def is_outside_files(template: Template) -> bool:
    """Return whether contents of a data node are in a store or database, and not in memory or files."""
    try:
        return component_for(template) in (URL, S3, NGAS, RDBMS)
    except DropflowError:
        return True


def may_have_version(template: Template) -> bool:
    """Return whether `dropflow.data.remote.store_version` may tell when the contents of a data node change."""
    return component_for(template) in (URL, S3)


def _row(template: Template) -> int:
    name = template.component.strip()
    category = template.category.strip().lower()
    if not name:
        component = _BY_CATEGORY.get(category)
        if component is not None:
            return _BY_CLASS[component.dropclass]
        raise _later(template, category) or UnknownComponentError(
            f"data node '{template.name}' has no class, and category '{template.category}' implies none",
            where=template.name,
            hint=f"give it a 'dropclass': {_OTHER}",
        )
    row = _BY_CLASS.get(name)
    if row is not None:
        return row
    package, last = name.partition(".")[0], name.rpartition(".")[2].lower()
    if package in _DALIUGE_PACKAGES and last in _BY_LAST:
        return _BY_LAST[last]
    raise _later(template, last.removesuffix("drop")) or _unknown(template, name)


def _later(template: Template, what: str) -> MissingDependencyError | None:
    if what not in _UNSUPPORTED:
        return None
    return MissingDependencyError(
        f"data node '{template.name}' ({template.component or template.category}) is {_UNSUPPORTED[what]}, "
        "which this version of dropflow does not support",
        where=template.name,
        hint=_OTHER,
    )


def _unknown(template: Template, name: str) -> UnknownComponentError:
    return UnknownComponentError(
        f"data node '{template.name}' has the unknown class '{name}'",
        where=template.name,
        hint=did_you_mean(name, _BY_CLASS, cutoff=0.7) or _OTHER,
    )
