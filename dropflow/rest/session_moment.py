"""A session as it was at a moment: what `dropflow.times.moments` finds, for pages and clients."""

from typing import Annotated

import msgspec
from msgspec import Meta

from dropflow.drop_counts import NO_DROPS, DropCounts

__all__ = ["CauseMoment", "MomentQuery", "NodeMoment", "SessionMoment"]


class MomentQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The moment, in seconds since the epoch, and whether the states of all drops are wanted."""

    time: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    states: bool = False


class NodeMoment(msgspec.Struct, frozen=True, kw_only=True):
    """The drops of one logical node."""

    key: str
    name: str
    drops: int
    counts: DropCounts


class CauseMoment(msgspec.Struct, frozen=True, kw_only=True):
    """A root cause: its row in the graph, the drops in ERROR because of it, and those of them that it took along."""

    row: int
    count: int
    took_along: int


class SessionMoment(msgspec.Struct, frozen=True, kw_only=True):
    """A session at a moment.

    Attributes
    ----------
    time : float
        The moment, in seconds since the epoch.
    began, ended : float
        When the first attempt was ready, and the last one that has ended was committed. Later moments are as now.
    drops, settled, running, queued : int
        As in `dropflow.rest.session_records.SessionInfo`; `queued` are all attempts that were ready and did not run.
    counts : DropCounts
        All drops whose state is known.
    logical : tuple of NodeMoment
        By logical node, in the order of the graph.
    states : bytes
        The state of each drop of the graph, by row, as uint8; 255 if it is not known. Base64 in JSON. Empty unless they
        were asked for.
    missing : tuple of str
        Nodes that did not answer.
    causes : tuple of CauseMoment
        The most harmful root causes of failures; at most a thousand.
    """

    time: float
    began: float
    ended: float
    drops: int
    settled: int
    running: int
    queued: int
    counts: DropCounts = NO_DROPS
    logical: tuple[NodeMoment, ...] = ()
    states: bytes = b""
    missing: tuple[str, ...] = ()
    causes: tuple[CauseMoment, ...] = ()
