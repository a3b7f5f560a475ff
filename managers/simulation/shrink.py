"""The fewest faults with which a trial still fails."""

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["shrink"]

T = TypeVar("T")


def shrink(items: Sequence[T], fails: Callable[[Sequence[T]], bool], *, most_runs: int = 100) -> tuple[T, ...]:
    """Return a part of `items` that still fails, and does not without any one of them.

    The algorithm is ddmin without its complements of complements: leave out halves, then quarters, down to single
    items, and begin anew after each success (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing
    input", 2002).

    Parameters
    ----------
    items : sequence
        They fail together.
    fails : callable
        Whether some of them, in their order, fail.
    most_runs : int
        How often to call `fails` at most; then the result may be larger than needed.
    """
    kept, runs = tuple(items), 0
    size = len(kept)
    while size:
        start = 0
        while start < len(kept) and runs < most_runs:
            fewer = kept[:start] + kept[start + size :]
            runs += 1
            if fails(fewer):
                kept = fewer
            else:
                start += size
        size = min(size // 2, len(kept))
    return kept
