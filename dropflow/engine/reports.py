"""How a session went, in words that tell people what to do: root causes of failures, and the end."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from dropflow.engine.api import Exchange
from dropflow.engine.core import Core
from dropflow.engine.events import Lost, row_of_foreign
from dropflow.failure import Failure
from dropflow.graph.names import oid
from dropflow.graph.physical import PhysicalGraph
from dropflow.ids import drop_file_name
from dropflow.states import SessionState

__all__ = ["FailureReport", "Reporter", "SessionResult"]

_NAMED = 20


class FailureReport(msgspec.Struct, frozen=True, kw_only=True):
    """One root cause: the drop that failed by itself, and how many ended in ERROR because of it, itself included.

    Of a cause on another node only its `row` in the whole graph is known for certain, and the `count` on this node;
    `text` is empty. A lost node is a cause without a `drop`; `drops` are the first of its drops that were not settled.
    """

    drop: str
    name: str
    code: str
    kind: str
    text: str
    hint: str = ""
    detail: str = ""
    count: int = 1
    attempts: int = 1
    log: str = ""
    row: int = -1
    drops: tuple[str, ...] = ()


class SessionResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a session ended.

    Attributes
    ----------
    states : dict
        Number of drops by the name of their state.
    failures : tuple of FailureReport
        By root cause, the most harmful first.
    notes : tuple of str
        What went wrong beside the drops: a journal that could not be written, an instrument that was removed.
    """

    session: str
    status: SessionState
    drops: int
    states: dict[str, int]
    seconds: float
    failures: tuple[FailureReport, ...]
    directory: str
    notes: tuple[str, ...] = ()


class Reporter:
    """Words for the failures of one session.

    Parameters
    ----------
    graph : PhysicalGraph
        What is executed.
    core : Core
        Of the session.
    directory : str
        Of the session, where the logs of its drops are.
    exchange : Exchange or None
        Knows the other nodes.
    """

    def __init__(self, graph: PhysicalGraph, core: Core, directory: str, exchange: Exchange | None) -> None:
        self._graph = graph
        self._core = core
        self._directory = directory
        self._exchange = exchange

    def reports(self, failures: Mapping[int, Failure], lost: Sequence[Lost]) -> tuple[FailureReport, ...]:
        """The root causes of failures so far, lost nodes first, then the most harmful."""
        harmed: dict[int, int] = {}
        for drop, cause in self._core.causes.items():
            if drop not in self._core.remote:  # those are counted where they live
                harmed[cause] = harmed.get(cause, 0) + 1
        ordered = sorted(harmed.items(), key=_most_harmful)
        caused = (self._report(cause, count, failures.get(cause)) for cause, count in ordered)
        return (*(self._lost_report(one) for one in lost), *caused)

    def _lost_report(self, lost: Lost) -> FailureReport:
        there = () if self._exchange is None else self._exchange.on_node(lost.node)
        unsettled = [drop for drop in there if not self._core.state(drop).is_terminal]
        return FailureReport(
            drop="",
            name=lost.node,
            code=lost.failure.code,
            kind=lost.failure.kind,
            text=lost.failure.text,
            hint=lost.failure.hint,
            count=len(unsettled),
            drops=tuple(oid(self._graph, drop) for drop in unsettled[:_NAMED]),
        )

    def _report(self, cause: int, count: int, failure: Failure | None) -> FailureReport:
        if cause < 0:
            return FailureReport(drop="", name="", code="", kind="", text="", count=count, row=row_of_foreign(cause))
        row = cause if self._exchange is None else int(self._exchange.rows[cause])
        name, node = oid(self._graph, cause), self._graph.templates[self._graph.template[cause]]
        if failure is None:
            return FailureReport(drop=name, name=node.name, code="", kind="", text="", count=count, row=row)
        log = Path(self._directory, "logs", f"{drop_file_name(name)}.log")
        return FailureReport(
            drop=name,
            name=node.name,
            code=failure.code,
            kind=failure.kind,
            text=failure.text,
            hint=failure.hint,
            detail=failure.detail,
            count=count,
            attempts=self._core.attempt(cause),
            log=str(log) if log.exists() else "",
            row=row,
        )


def _most_harmful(item: tuple[int, int]) -> tuple[int, int]:
    cause, count = item
    return -count, cause
