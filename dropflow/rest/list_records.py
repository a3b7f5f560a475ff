"""The answers that are lists: JSON answers are always objects, so each list has a name in one."""

from collections.abc import Sequence

import msgspec

from dropflow.rest.schema import Child, FailureInfo, NodeInfo, PageQuery, ProbeResult, ResultInfo, SessionInfo

__all__ = [
    "ChildList",
    "Done",
    "EpochRequest",
    "FailureList",
    "NodeList",
    "ProbeResultList",
    "ResultList",
    "SessionList",
]


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """All node managers at or below a manager."""

    nodes: tuple[NodeInfo, ...]


class ChildList(msgspec.Struct, frozen=True, kw_only=True):
    """The direct children of a manager."""

    children: tuple[Child, ...]


class ProbeResultList(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager found at the addresses that it tried, in the order in which they were named."""

    reaches: tuple[ProbeResult, ...]


class SessionList(msgspec.Struct, frozen=True, kw_only=True):
    """All sessions, the youngest first."""

    sessions: tuple[SessionInfo, ...]


class FailureList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the root causes of a session, the most harmful first.

    Attributes
    ----------
    total : int
        How many there are in all.
    missing : tuple of str
        Nodes that could not be asked; of those, the causes that they told last.
    """

    failures: tuple[FailureInfo, ...]
    total: int
    offset: int = 0
    limit: int = 100
    missing: tuple[str, ...] = ()

    @classmethod
    def page(cls, failures: Sequence[FailureInfo], query: PageQuery, *, missing: Sequence[str] = ()) -> "FailureList":
        """Return the page of all `failures` that `query` asks for."""
        return cls(
            failures=tuple(failures[query.offset : query.offset + query.limit]),
            total=len(failures),
            offset=query.offset,
            limit=query.limit,
            missing=tuple(missing),
        )


class ResultList(msgspec.Struct, frozen=True, kw_only=True):
    """What a session left for people. `missing` names the nodes that could not be asked."""

    results: tuple[ResultInfo, ...]
    missing: tuple[str, ...] = ()


class EpochRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start or undo this deployment of a session; `reason` says why it is undone or cancelled."""

    epoch: int
    reason: str = ""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """It is done, and there is nothing more to tell."""
