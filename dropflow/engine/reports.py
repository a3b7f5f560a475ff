"""Reports of a session for people: the root causes of its failures, and its result."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.drop_counts import NO_DROPS, DropCounts
from dropflow.engine.core import Core
from dropflow.engine.statistics import errors_by_cause
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid
from dropflow.ids import drop_file_name
from dropflow.states import SessionState

__all__ = ["FailureReport", "RankedCauses", "SessionResult", "cause_reports", "ranked_causes"]


class FailureReport(msgspec.Struct, frozen=True, kw_only=True):
    """One root cause: the drop that failed first, and how many are in ERROR because of it, including itself.

    `took_along` of them are other drops. A drop that was cancelled alone is a cause too, and not in ERROR itself.

    For a cause on another node there are only the `row` in the whole graph and the `count` on this node; `text` is
    empty. A lost node is a cause without a `drop`: `count` is the number of drops on this node that were cancelled
    because of it, and `drops` are the first known drops of the lost node that were not settled.
    """

    drop: str
    name: str
    code: str
    kind: str
    text: str
    hint: str = ""
    detail: str = ""
    count: int = 1
    took_along: int = 0
    attempts: int = 1
    log: str = ""
    row: int = -1
    drops: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """Return the cause, the traceback and the end of the log, for notebooks."""
        from dropflow.notebook import failure_html, log_end  # noqa: PLC0415 - only notebooks need it

        return failure_html(
            self.name,
            self.drop,
            code=self.code,
            text=self.text,
            hint=self.hint,
            detail=self.detail,
            count=self.count,
            log=log_end(self.log) if self.log else "",
        )


class SessionResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a session ended.

    Attributes
    ----------
    states : dict
        Number of drops by the name of their state.
    counts : DropCounts
        How many failed, were taken along, lost, and so on.
    failures : tuple of FailureReport
        By root cause, those that put the most drops in ERROR first.
    notes : tuple of str
        Problems that are no failures of drops: a journal that could not be written, an instrument that was removed.
    infrastructure_faults : int
        How many attempts were ended by their processes, and repeated or given up.
    """

    session: str
    status: SessionState
    drops: int
    states: dict[str, int]
    counts: DropCounts = NO_DROPS
    seconds: float
    failures: tuple[FailureReport, ...]
    directory: str
    notes: tuple[str, ...] = ()
    infrastructure_faults: int = 0


class RankedCauses(NamedTuple):
    """Root causes as columns, those with the most drops in ERROR first.

    Attributes
    ----------
    rows : array of int64
        Rows in the whole graph. Causes with equal numbers are sorted by them, so that nodes that list only the first of
        many causes list the same ones.
    counts, took_along : array of int64
        As of `FailureReport`.
    causes : array of int64
        Rows of the drops here; negative for drops of other nodes.
    """

    rows: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    took_along: npt.NDArray[np.int64]
    causes: npt.NDArray[np.int64]


def ranked_causes(core: Core, rows: Sequence[int] | None = None) -> RankedCauses:
    """Return all root causes of drops in ERROR.

    Parameters
    ----------
    rows : sequence of int, optional
        Row in the whole graph of every drop, where the core has a slice of it.
    """
    causes, counts, along = errors_by_cause(core)
    if rows is None:
        whole = causes
    else:
        known = np.asarray(rows)
        # Of a drop elsewhere, its number here is made from its row (`dropflow.engine.events.foreign`).
        whole = np.where(causes < 0, -causes - 2, known[np.maximum(causes, 0)]) if len(known) else -causes - 2
    order = np.lexsort((whole, -counts))
    return RankedCauses(whole[order], counts[order], along[order], causes[order])


def cause_reports(
    graph: PhysicalGraph,
    core: Core,
    directory: str,
    failures: Mapping[int, Failure],
    *,
    rows: Sequence[int] | None = None,
    ranked: RankedCauses | None = None,
) -> list[FailureReport]:
    """Return the reports of root causes of drops in ERROR, those with the most such drops first.

    Parameters
    ----------
    directory : str
        Of the session.
    failures : mapping of int to Failure
        The last failure of each drop, as far as it is known here.
    rows : sequence of int, optional
        Row in the whole graph of every drop, where `graph` is a slice of it.
    ranked : RankedCauses, optional
        The causes that are reported; by default all.
    """
    chosen = ranked_causes(core, rows) if ranked is None else ranked
    columns = (column.tolist() for column in chosen)
    return [
        _cause_report(graph, core, directory, cause, failures.get(cause), counts=(count, along), row=row)
        for row, count, along, cause in zip(*columns, strict=True)
    ]


def _cause_report(
    graph: PhysicalGraph,
    core: Core,
    directory: str,
    cause: int,
    failure: Failure | None,
    *,
    counts: tuple[int, int],
    row: int,
) -> FailureReport:
    count, along = counts
    if cause < 0:
        return FailureReport(drop="", name="", code="", kind="", text="", count=count, took_along=along, row=row)
    name, node = oid(graph, cause), graph.templates[graph.template[cause]]
    if failure is None:
        return FailureReport(
            drop=name, name=node.name, code="", kind="", text="", count=count, took_along=along, row=row
        )
    log = Path(directory, "logs", f"{drop_file_name(name)}.log")
    return FailureReport(
        drop=name,
        name=node.name,
        code=failure.code,
        kind=failure.kind,
        text=failure.text,
        hint=failure.hint,
        detail=failure.detail,
        count=count,
        took_along=along,
        attempts=core.drops.attempt(cause),
        log=str(log) if log.exists() else "",
        row=row,
    )
