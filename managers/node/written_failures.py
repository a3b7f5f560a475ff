"""Root causes of a session that is over, as they were written when it ended."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from dropflow.engine.reports import FailureReport, RankedCauses
from dropflow.rest.session_records import FailureInfo

__all__ = ["WrittenFailures", "written_report"]


class WrittenFailures:
    """Answers as the failure table of a session that runs does (`managers.node.drop_pages.FailureReports`).

    Parameters
    ----------
    reports : sequence of FailureReport
        Lost nodes first, then those that put the most drops in ERROR.
    """

    def __init__(self, reports: Sequence[FailureReport]) -> None:
        self._reports = reports

    @property
    def lost_count(self) -> int:
        """The number of lost nodes, which are the first reports."""
        return len(self._reports) - len(self._ranked.rows)

    def causes(self) -> RankedCauses:
        """Return the drops that are root causes, without lost nodes."""
        return self._ranked

    @cached_property
    def _ranked(self) -> RankedCauses:
        drops = [one for one in self._reports if one.row >= 0]
        rows = np.array([one.row for one in drops], np.int64)
        counts = np.array([one.count for one in drops], np.int64)
        return RankedCauses(rows, counts, np.array([one.took_along for one in drops], np.int64), rows)

    def reports(self, start: int = 0, stop: int | None = None) -> Sequence[FailureReport]:
        """Return root causes, all or a part."""
        return self._reports[start:stop]

    def reports_in(self, rows: Sequence[int]) -> Sequence[FailureReport]:
        """Return the root causes among drops, whose rows are those in the whole graph."""
        wanted = {*rows}
        return tuple(one for one in self._reports if one.row in wanted)


def written_report(failure: FailureInfo, logs: str) -> FailureReport:
    """Return the report from which a failure was made; `logs` is the directory of logs."""
    return FailureReport(
        drop=failure.drop,
        name=failure.name,
        code=failure.code,
        kind=failure.kind,
        text=failure.text if failure.node else "",  # only the node of the drop has the text
        hint=failure.hint,
        detail=failure.detail,
        count=failure.count,
        took_along=failure.took_along,
        attempts=failure.attempts,
        log=logs if failure.has_log else "",
        row=failure.row,
        drops=failure.drops,
    )
