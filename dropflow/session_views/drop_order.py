"""Orders in which a list of drops can be shown: the same on a node and merged from several."""

from collections.abc import Callable

from dropflow.rest.session_records import DropInfo
from dropflow.states import DropState

__all__ = ["order_of"]

_Key = Callable[[DropInfo], tuple[int | str, int]]

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
