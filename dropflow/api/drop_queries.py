"""Queries of the drops of a session: the drops that match, their order, and the drop that a text names."""

from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.api.drop_records import DropInfo, DropPage, DropQuery
from dropflow.errors import AmbiguousError, LinkError, NotFoundError, UsageError
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.text_ids import SHOWN, ambiguous, candidate, drops_named, oids
from dropflow.states import DropState

States = npt.NDArray[np.uint8]
_Key = Callable[[DropInfo], tuple[int | str, int]]

# Vectors, for lists of a million drops.


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
    selected = rows[is_wanted[rows]]
    if query.text:
        wanted = query.text.lower()
        by_name = np.array([wanted in template.name.lower() for template in graph.templates], dtype=np.bool_)
        hits = by_name[graph.template[selected]]
        hits |= np.fromiter(
            (wanted in name.lower() for name in oids(graph, selected)), dtype=np.bool_, count=len(selected)
        )
        selected = selected[hits]
    if query.ending:
        ends = (name.endswith(query.ending) for name in oids(graph, selected))
        selected = selected[np.fromiter(ends, dtype=np.bool_, count=len(selected))]
    return selected


def in_order(
    graph: PhysicalGraph, selected: IntColumn, whole: IntColumn, values: npt.NDArray[np.int64] | None, query: DropQuery
) -> IntColumn:
    """Return rows in the order of `order_of`, which compares single drops.

    Parameters
    ----------
    selected : int32 array
        The rows.
    whole : int32 array
        The row of each in the whole graph, which decides between equal ones.
    values : int array or None
        Order of the rows, if it is neither their row nor a name.
    """
    match query.sort.removeprefix("-"):
        case "":
            return selected
        case "id":
            values = np.unique(np.array(oids(graph, selected), dtype=object), return_inverse=True)[1]
        case "name":
            names = np.array([template.name.casefold() for template in graph.templates], dtype=object)
            values = np.unique(names, return_inverse=True)[1][graph.template[selected]]
    order = np.lexsort((whole, np.zeros(len(selected), dtype=np.int64) if values is None else values))
    return selected[order[::-1] if query.sort.startswith("-") else order]


def _state_names(text: str) -> list[str]:
    names = [name.strip().upper() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in DropState.__members__]
    if unknown:
        raise UsageError(
            f"there is no state {unknown[0]!r}", where="state", hint=f"one of {', '.join(DropState.__members__)}"
        )
    return names


# A row number is never an id: rows are found with `DropQuery.row`.


def find_drop(find: Callable[[DropQuery], DropPage], text: str, *, session: str) -> DropInfo:
    """Return the drop with this id.

    Parameters
    ----------
    find : callable
        Finds drops of the session, on all nodes at or below a manager.
    text : str
        A whole id, the end of one, or a name; see `dropflow.graph.text_ids.drops_named`.
    session : str
        Its name, for errors.

    Raises
    ------
    NotFoundError
        There is no such drop.
    AmbiguousError
        It is not a whole id, and several ids end in it, or several drops have that name, or may: some drops of the
        session are not at or below the manager.
    LinkError
        A node does not answer that may hold the drop, or another one whose id ends in it.
    """
    if not text:
        raise NotFoundError("no drop has an empty id", where=session)
    exact = find(DropQuery(oid=text, limit=1))
    if exact.drops:
        return exact.drops[0]
    query, what = DropQuery(ending=text, limit=SHOWN), "end in"
    page = find(query)
    if not page.drops and not page.missing:
        query, what = DropQuery(name=text, limit=SHOWN), "are named"
        page = find(query)
    if page.total > 1:
        failed = find(msgspec.structs.replace(query, state=DropState.ERROR.name)).drops
        first = {drop.oid: candidate(_label(drop), drop.oid, drop.state) for drop in (*failed, *page.drops)}
        raise ambiguous(text, page.total, list(first.values())[:SHOWN], what=what)
    if page.missing:
        silent = ", ".join(page.missing)
        if page.drops:
            raise LinkError(
                f"{text!r} may name several drops, because {silent} does not answer",
                where=session,
                hint=f"give the whole id, for example {page.drops[0].oid}",
            )
        raise LinkError(
            f"drop {text!r} of session {session!r} is on no node that answers",
            where=session,
            hint=f"it may be on {silent}, which does not answer",
        )
    if not page.drops:
        raise NotFoundError(f"there is no drop {text!r}", where=session, hint="see the list of its drops")
    if page.held < page.whole:
        raise AmbiguousError(
            f"{text!r} may be the end of several ids: only {page.held} of {page.whole} drops are here",
            where=session,
            hint=f"give the whole id, for example {page.drops[0].oid}, or ask a manager of the whole session",
        )
    return page.drops[0]


def _label(drop: DropInfo) -> str:
    """Return what `dropflow.graph.text_ids.label` does; of a drop with an id of another program its name."""
    iid = drop.oid.rpartition(f"_{drop.key}_0-")[2]
    return f"{drop.name} {iid}" if iid != drop.oid else drop.name


# Orders in which a list of drops can be shown: the same on a node and merged from several.


_VALUES: dict[str, Callable[[DropInfo], int | str]] = {
    "row": lambda drop: drop.drop,
    "id": lambda drop: drop.oid,
    "name": lambda drop: drop.name.casefold(),
    "state": lambda drop: DropState[drop.state].value,
    "node": lambda drop: drop.node,
    "attempt": lambda drop: drop.attempt,
    "size": lambda drop: -1 if drop.size is None else drop.size,
}


def order_of(sort: str) -> tuple[_Key, bool]:
    """Return the key of an order of `DropQuery.sort`, and whether it is reversed. Equal drops are in order of rows."""
    value, is_reversed = _VALUES[sort.removeprefix("-")], sort.startswith("-")
    return lambda drop: (value(drop), drop.drop), is_reversed
