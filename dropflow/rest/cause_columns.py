"""Root causes of a session as columns, which managers merge and sort without the records themselves."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dropflow.rest.session_records import FailureInfo

__all__ = ["CauseColumns", "columns_of", "merged_columns", "packed_columns"]


class CauseColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Drops that are root causes, those with the most drops in ERROR first; lost nodes are not among them.

    Attributes
    ----------
    rows, counts, took_along : bytes
        Rows in the whole graph, and the numbers of `dropflow.rest.session_records.FailureInfo`, as uint32,
        little-endian. Base64 in JSON.
    """

    rows: bytes = b""
    counts: bytes = b""
    took_along: bytes = b""

    def __len__(self) -> int:
        return len(self.rows) // 4

    def arrays(self) -> "tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]":
        """Return rows, counts and how many each took along."""
        import numpy as np  # noqa: PLC0415 - takes long to load

        rows, counts, along = (
            np.frombuffer(column, "<u4").astype(np.int64) for column in (self.rows, self.counts, self.took_along)
        )
        return rows, counts, along


def packed_columns(
    rows: "npt.NDArray[np.int64]", counts: "npt.NDArray[np.int64]", took_along: "npt.NDArray[np.int64]"
) -> CauseColumns:
    """Return columns in the order in which they are given."""
    return CauseColumns(
        rows=rows.astype("<u4").tobytes(),
        counts=counts.astype("<u4").tobytes(),
        took_along=took_along.astype("<u4").tobytes(),
    )


def columns_of(failures: "Sequence[FailureInfo]") -> CauseColumns:
    """Return the columns of records of drops, in their order."""
    import numpy as np  # noqa: PLC0415 - takes long to load

    rows, counts, along = (
        (
            np.array(column, np.int64)
            for column in zip(*((one.row, one.count, one.took_along) for one in failures), strict=True)
        )
        if failures
        else (np.zeros(0, np.int64),) * 3
    )
    return packed_columns(rows, counts, along)


def merged_columns(parts: Sequence[CauseColumns]) -> CauseColumns:
    """Return the causes of several nodes, with the numbers of each added up.

    Causes with equal numbers are sorted by row, as on each node.
    """
    import numpy as np  # noqa: PLC0415 - takes long to load

    arrays = [part.arrays() for part in parts]
    if not arrays:
        return CauseColumns()
    every, counts, along = (np.concatenate(columns) for columns in zip(*arrays, strict=True))
    rows, places = np.unique(every, return_inverse=True)
    # The sums of whole numbers are exact in a float below 2**53.
    sums = np.bincount(places, weights=counts, minlength=len(rows)).astype(np.int64)
    taken = np.bincount(places, weights=along, minlength=len(rows)).astype(np.int64)
    order = np.lexsort((rows, -sums))
    return packed_columns(rows[order], sums[order], taken[order])
