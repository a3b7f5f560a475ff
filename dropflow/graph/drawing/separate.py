"""Rectangles near the places where they are wanted, without overlaps."""

import numpy as np
import numpy.typing as npt

__all__ = ["scale_for", "separated"]

Numbers = npt.NDArray[np.float64]

_FITS = 0.75
"""Share of the nodes that do not overlap only by the scale; the others are moved."""
_SMALLEST, _LARGEST = 0.3, 2.5


def scale_for(places: Numbers, wide: float, high: float) -> float:
    """Return by how much distances between places grow so that most nodes of this size do not overlap.

    Parameters
    ----------
    places : float array, shape (nodes, 2)
        Middles of the nodes.
    wide, high : float
        Size of a node with the gap to the next one.
    """
    if len(places) <= 1:
        return 1.0
    needed = np.zeros(len(places))
    with np.errstate(divide="ignore"):
        for at, place in enumerate(places):
            x, y = np.abs(places - place).T
            apart = np.minimum(wide / x, high / y)
            apart[at] = 0.0
            needed[at] = apart.max()
    at = int((len(needed) - 1) * _FITS)
    return float(np.clip(np.sort(needed)[at], _SMALLEST, _LARGEST))


def separated(places: Numbers, sizes: Numbers, gaps: tuple[float, float]) -> Numbers:
    """Return the middles of rectangles that are at least the gaps apart in one direction, and in their wanted order.

    Of each two, the direction in which they are farther apart for their sizes keeps them apart. In this direction the
    later one moves right or down if there is too little room. So no two overlap, in one pass for each direction.

    Parameters
    ----------
    places : float array, shape (rectangles, 2)
        Wanted middles.
    sizes : float array, shape (rectangles, 2)
        Widths and heights.
    gaps : tuple of float
        Least distance beside and below each other.
    """
    found = places.copy()
    for axis in (0, 1):
        order = np.argsort(places[:, axis], kind="stable")
        for count, at in enumerate(order.tolist()):
            before = order[:count]
            needed = (sizes[before] + sizes[at]) / 2 + gaps
            share = np.abs(places[before] - places[at]) / needed
            is_beside = share[:, 0] >= share[:, 1]
            held = is_beside if axis == 0 else ~is_beside
            if held.any():
                least = (found[before, axis] + needed[:, axis])[held].max()
                found[at, axis] = max(found[at, axis], least)
    return found
