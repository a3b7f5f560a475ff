"""Which drops of a graph match a query, and their order: vectors, for lists of a million drops."""

import numpy as np
import numpy.typing as npt

from dropflow.errors import UsageError
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.text_ids import drops_named, oids
from dropflow.rest.session_records import DropQuery
from dropflow.states import DropState

__all__ = ["in_order", "matching"]

States = npt.NDArray[np.uint8]


def matching(graph: PhysicalGraph, rows: IntColumn, states: States, query: DropQuery) -> IntColumn:
    """Return those of `rows` whose state, logical node and names match, in their order.

    Parameters
    ----------
    states : uint8 array, shape (drops,)
        State of each drop of the graph.

    Raises
    ------
    UsageError
        The query names a state that does not exist.
    """
    is_wanted = np.ones(graph.drops, dtype=np.bool_)
    if query.state:
        is_wanted &= np.isin(states, [DropState[name].value for name in _state_names(query.state)])
    if query.key:
        keys = [row for row, template in enumerate(graph.templates) if template.key == query.key]
        is_wanted &= np.isin(graph.template, keys)
    if query.name:
        is_named = np.zeros_like(is_wanted)
        is_named[drops_named(graph, query.name)] = True
        is_wanted &= is_named
    found = rows[is_wanted[rows]]
    if query.text:
        wanted = query.text.lower()
        by_name = np.array([wanted in template.name.lower() for template in graph.templates], dtype=np.bool_)
        hits = by_name[graph.template[found]]
        hits |= np.fromiter((wanted in name.lower() for name in oids(graph, found)), dtype=np.bool_, count=len(found))
        found = found[hits]
    if query.ending:
        ends = (name.endswith(query.ending) for name in oids(graph, found))
        found = found[np.fromiter(ends, dtype=np.bool_, count=len(found))]
    return found


def in_order(
    graph: PhysicalGraph, found: IntColumn, whole: IntColumn, values: npt.NDArray[np.int64] | None, query: DropQuery
) -> IntColumn:
    """Return rows in the order of `dropflow.session_views.drop_order`, which compares single drops.

    Parameters
    ----------
    found : int32 array
        The rows.
    whole : int32 array
        The row of each in the whole graph, which decides between equal ones.
    values : int array or None
        What the rows are sorted by, if it is neither their row nor a name.
    """
    match query.sort.removeprefix("-"):
        case "":
            return found
        case "id":
            values = np.unique(np.array(oids(graph, found), dtype=object), return_inverse=True)[1]
        case "name":
            names = np.array([template.name.casefold() for template in graph.templates], dtype=object)
            values = np.unique(names, return_inverse=True)[1][graph.template[found]]
    order = np.lexsort((whole, np.zeros(len(found), dtype=np.int64) if values is None else values))
    return found[order[::-1] if query.sort.startswith("-") else order]


def _state_names(text: str) -> list[str]:
    names = [name.strip().upper() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in DropState.__members__]
    if unknown:
        raise UsageError(
            f"there is no state {unknown[0]!r}", where="state", hint=f"one of {', '.join(DropState.__members__)}"
        )
    return names
