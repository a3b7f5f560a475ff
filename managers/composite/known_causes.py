"""Root causes of a session on several children: ordered by columns of numbers, with the records of one page only."""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from dropflow.rest.cause_columns import columns_of, merged_columns
from dropflow.rest.operation_records import FailureList, FailureQuery
from dropflow.rest.session_records import FailureInfo
from managers.composite.merging import merge_failures

__all__ = ["KnownCauses"]


class KnownCauses:
    """What children have told about the root causes of a session.

    Parameters
    ----------
    answers : sequence of FailureList
        Of children that answer, with columns and the records of lost nodes.
    remembered : sequence of FailureInfo
        From the last reports of the other children.

    Attributes
    ----------
    lost : tuple of FailureInfo
        Lost nodes, the most harmful first.
    columns : CauseColumns
        Drops that are causes, the most harmful first.
    """

    def __init__(self, answers: Sequence[FailureList], remembered: Sequence[FailureInfo]) -> None:
        without_row = [one for one in remembered if one.row < 0]
        self.lost = merge_failures([*(one for answer in answers for one in answer.failures), *without_row])
        self._remembered = [one for one in remembered if one.row >= 0]
        known = [answer.columns for answer in answers if answer.columns is not None]
        self.columns = merged_columns([*known, columns_of(self._remembered)])

    @property
    def total(self) -> int:
        """Number of all causes."""
        return len(self.lost) + len(self.columns)

    def page(
        self, query: FailureQuery, records: Callable[[Sequence[int]], Sequence[FailureInfo]]
    ) -> tuple[FailureInfo, ...]:
        """Return a page of all causes, the most harmful first; of equal ones lost nodes first, then by row.

        Parameters
        ----------
        records : callable
            Returns the records of the causes in some rows, of all children that answer.
        """
        rows, counts, along = self.columns.arrays()
        lost = len(self.lost)
        every = np.concatenate((np.full(lost, -1), rows))
        harm = np.concatenate((np.array([one.count for one in self.lost], np.int64), counts))
        order = np.lexsort((every, -harm))[query.offset : query.offset + query.limit]
        found = records([int(every[at]) for at in order if at >= lost])
        wanted = {one.row: one for one in merge_failures([*found, *self._remembered])}
        shown = []
        for at in order.tolist():
            if at < lost:
                shown.append(self.lost[at])
            elif (one := wanted.get(int(rows[at - lost]))) is not None:  # else it was tried again meanwhile
                numbers = {"count": int(counts[at - lost]), "took_along": int(along[at - lost])}
                shown.append(msgspec.structs.replace(one, **numbers))
        return tuple(shown)
