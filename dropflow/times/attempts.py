"""The attempts of a session as columns, those of all its nodes together."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from dropflow.errors import ProtocolError
from dropflow.graph.physical import PhysicalGraph
from dropflow.times.octets import RECORD, TimesSection

_Seconds = npt.NDArray[np.float64]
_DEFAULT = 1.0
"""Seconds of a node without a declared time: what the translator assumes, and what palettes begin with."""


@dataclass(frozen=True)
class AttemptColumns:
    """Attempts that have ended, one in each row; those of a node follow each other, in the order of their ends.

    Attributes
    ----------
    nodes : tuple of str
        Names of the nodes.
    node : int32 array, shape (attempts,)
        Index into `nodes`.
    drop : int64 array
        Row in the whole graph.
    attempt : int64 array
        Its number, from 1.
    failed : bool array
    worker : int64 array
        Number of its worker process on its node; 0 for none.
    ready, given, began, ended, committed : float64 arrays
        Seconds since the epoch, by the clock of its node. `committed` of an attempt that failed is when that was noted.
    records : array of `dropflow.times.octets.RECORD`
        The recorded times of attempts.
    idle : dict of str to str
        Nodes without an attempt that has ended, also those that did not answer, and why there is none.
    """

    nodes: tuple[str, ...]
    node: npt.NDArray[np.int32]
    drop: npt.NDArray[np.int64]
    attempt: npt.NDArray[np.int64]
    failed: npt.NDArray[np.bool_]
    worker: npt.NDArray[np.int64]
    ready: _Seconds
    given: _Seconds
    began: _Seconds
    ended: _Seconds
    committed: _Seconds
    records: npt.NDArray[Any]
    idle: dict[str, str]

    def __len__(self) -> int:
        return len(self.drop)

    @property
    def start(self) -> float:
        """Time at which the first attempt was ready; 0 without attempts."""
        return float(self.ready.min()) if len(self) else 0.0

    @property
    def end(self) -> float:
        """Time at which the last attempt was committed; 0 without attempts."""
        return float(self.committed.max()) if len(self) else 0.0


_COLUMNS = tuple(field.name for field in fields(AttemptColumns) if field.name not in ("nodes", "idle"))


def attempts_of(sections: Sequence[TimesSection]) -> AttemptColumns:
    """Return the attempts of all nodes."""
    answered = [section for section in sections if not section.missing]
    records = np.concatenate([section.records for section in answered]) if answered else np.zeros(0, RECORD)
    active = {section.node for section in answered if len(section.records)}
    node = np.repeat(np.arange(len(answered), dtype=np.int32), [len(section.records) for section in answered])
    ready = records["ready"].astype(np.float64)
    given = ready + records["waited"]
    began = given + records["queued"]
    ended = began + records["ran"]
    return AttemptColumns(
        nodes=tuple(section.node for section in answered),
        node=node,
        drop=records["drop"].astype(np.int64),
        attempt=np.abs(records["attempt"].astype(np.int64)),
        failed=records["attempt"] < 0,
        worker=records["worker"].astype(np.int64),
        ready=ready,
        given=given,
        began=began,
        ended=ended,
        committed=ended + records["committed"],
        records=records,
        idle={section.node: _idle_reason(section) for section in sections if section.node not in active},
    )


def ended_by(attempts: AttemptColumns, time: float) -> AttemptColumns:
    """Return the attempts that were committed, or had failed, by then."""
    which = attempts.committed <= time
    columns = {name: getattr(attempts, name)[which] for name in _COLUMNS}
    return AttemptColumns(nodes=attempts.nodes, idle=attempts.idle, **columns)


def last_attempts(attempts: AttemptColumns, drops: int, *, ready_by: float = float("inf")) -> npt.NDArray[np.int64]:
    """Return the row of the last attempt of each drop, of those that were ready at a time; -1 for drops without one.

    The last one is that committed last: a drop of a lost node runs again elsewhere, where its number may be any.
    """
    rows = np.flatnonzero(attempts.ready <= ready_by)
    rows = rows[np.lexsort((attempts.attempt[rows], attempts.committed[rows]))]
    last = np.full(drops, -1, np.int64)
    last[attempts.drop[rows]] = rows  # of several, the last one is kept
    return last


def _idle_reason(section: TimesSection) -> str:
    if section.missing:
        return "it does not answer"
    if section.busy_with:
        word = "sessions" if len(section.busy_with) > 1 else "session"
        return f"its workers are busy with {word} {', '.join(section.busy_with)}"
    return f"no attempt of this session has {'ended' if len(section.running) else 'run'} there"


def check_rows(graph: PhysicalGraph, attempts: AttemptColumns, where: str) -> None:
    """Raise `ProtocolError` if attempts are of drops that the graph does not have."""
    if len(attempts) and attempts.drop.max() >= graph.drops:
        text = f"an attempt is of drop {int(attempts.drop.max())}, but the graph has {graph.drops}"
        raise ProtocolError(text, where=where, hint="the graph and the times are not of one session")


# What a graph plans for its attempts, as far as it is declared.


def planned_seconds(graph: PhysicalGraph) -> list[float]:
    """Return the planned seconds of an attempt of each template; 0 if no time was declared.

    A node with the time of new nodes counts as one without: the two are the same in the graph.
    """
    return [0.0 if seconds == _DEFAULT else float(seconds) for seconds in graph.template_seconds]
