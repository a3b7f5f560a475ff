"""The nodes with neighbours of the drops of a slice, and the links that a session needs to them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import numpy as np

from dropflow.graph.slices import Slice
from managers.messages import Message


class NeighbourNodes:
    """The nodes with neighbours of each drop of a slice.

    Parameters
    ----------
    piece : Slice
        The drops of this node, and their neighbours on other nodes.
    """

    def __init__(self, piece: Slice) -> None:
        graph, own = piece.graph, piece.is_own
        names = sorted({*graph.places, piece.node})
        home = np.array([names.index(place) for place in graph.places], dtype=np.int32)[graph.part]
        here = names.index(piece.node)
        out = graph.successors
        source = np.repeat(np.arange(graph.drops, dtype=np.int64), np.diff(out.ptr))
        target = out.neighbour.astype(np.int64)
        down = np.flatnonzero(own[source] & ~own[target])
        up = np.flatnonzero(own[target] & ~own[source])
        # One key for each drop and node; the lowest bit is 1 if the node is downstream and needs contents.
        key = np.concatenate(
            [
                (source[down] * len(names) + home[target[down]]) * 2 + 1,
                (target[up] * len(names) + home[source[up]]) * 2,
            ]
        )
        key = np.unique(key)
        # A node that is both up- and downstream of a drop has both keys; the second key, which needs contents, counts.
        pair = key >> 1
        last = np.ones(len(key), dtype=np.bool_)
        last[:-1] = pair[1:] != pair[:-1]
        key, pair = key[last], pair[last]
        drop, node = np.divmod(pair, len(names))
        ptr = np.zeros(graph.drops + 1, dtype=np.int64)
        np.cumsum(np.bincount(drop, minlength=graph.drops), out=ptr[1:])
        self.nodes = tuple(names)
        self._here = here
        self._homes = np.ascontiguousarray(home, dtype=np.int32)
        self._home = self._homes.data
        self._ptr = ptr.data
        self._node = np.ascontiguousarray(node, dtype=np.int32).data
        self._wants = np.ascontiguousarray(key & 1, dtype=np.uint8).data
        self._near = frozenset(node.tolist())

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Nodes that hold a neighbour of a drop here."""
        return tuple(self.nodes[node] for node in sorted(self._near))

    def of(self, drop: int) -> Iterator[tuple[int, int]]:
        """Yield the node (index of `nodes`) of every neighbour on another node, and whether it is downstream."""
        for at in range(self._ptr[drop], self._ptr[drop + 1]):
            yield self._node[at], self._wants[at]

    def home(self, drop: int) -> int:
        """Return the node (index of `nodes`) that a drop lives on."""
        return self._home[drop]

    def ghosts_on(self, node: str) -> list[int]:
        """Return the drops of the slice that live on `node`; none for an unknown node or this one."""
        if node not in self.nodes or self.nodes.index(node) == self._here:
            return []
        ghosts: list[int] = np.flatnonzero(self._homes == self.nodes.index(node)).tolist()
        return ghosts


class NodeLinks(Protocol):
    """The methods of links that a node and its sessions call: of `managers.links.Links`, and of simulated links."""

    def connect(self, peer: str, address: str, incarnation: int = 0) -> None:
        """Open the link to a peer, to its process with this incarnation or a later one."""
        ...

    def last_seen(self) -> dict[str, tuple[int, float]]:
        """Return the incarnation of each peer, and the time of its last packet."""
        ...

    def refused(self, addresses: Mapping[str, str]) -> dict[str, bool]:
        """Try to connect to peers, and return whether the host of each refuses that."""
        ...

    def send(self, peer: str, message: Message) -> None:
        """Queue a message, without waiting for room."""
        ...

    def has_room(self, peer: str) -> bool:
        """Return whether `peer` has no more unprocessed data than its window."""
        ...

    def wait_for_room(self, peer: str, *, give_up: Callable[[], bool]) -> None:
        """Wait until `has_room`; `give_up` is evaluated again after each `wake_waiting`."""
        ...

    def wake_waiting(self) -> None:
        """Make all threads that wait evaluate `give_up` again."""
        ...

    def content_grew(self, session: str, drop: int) -> None:
        """Answer the peers that wait for a content which has grown or ended."""
        ...

    def close_content(self, session: str, drop: int | None = None) -> None:
        """Close a content that was released or replaced; without `drop`, all contents of the session."""
        ...
