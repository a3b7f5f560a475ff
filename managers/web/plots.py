"""Small plots of the load of a node, as lines of a picture that the page scales."""

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise

import msgspec

from dropflow.formatting import format_count, format_size
from dropflow.preview.records import Line
from dropflow.rest.manager_records import Load
from dropflow.rest.node_history import NodeHistory

__all__ = ["LinePlot", "Plot", "line_plot", "plots_of"]

_WIDTH, _HEIGHT = 300.0, 48.0
_LINE_WIDTH, _LINE_HEIGHT = 700.0, 200.0


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """One plot.

    Attributes
    ----------
    title : str
    now, most : str
        The last value, and that of the upper edge.
    line, area : str
        Points of the line, and of what is under it, in a picture 300 wide and 48 high.
    """

    title: str
    now: str
    most: str
    line: str
    area: str


class LinePlot(msgspec.Struct, frozen=True, kw_only=True):
    """The values of an array with one axis.

    Attributes
    ----------
    low, high, last : str
        The least and the largest value, and the last index.
    areas, lines : tuple of str
        Points of what is between the smallest and the largest value of each interval, and of the line in the middle;
        one for each part of the array without gaps. The picture is 700 wide and 200 high.
    """

    low: str
    high: str
    last: str
    areas: tuple[str, ...]
    lines: tuple[str, ...]


def line_plot(line: Line) -> LinePlot | None:
    """Return the plot of a line; None if it has no number."""
    highs, lows = [one for one in line.highs if one is not None], [one for one in line.lows if one is not None]
    if not highs:
        return None
    top, bottom = max(highs), min(lows)
    # Halves, since the difference of two large numbers may be infinite.
    range_ = (top / 2 - bottom / 2) or 1.0
    areas, lines, most = [], [], max(len(line.lows) - 1, 1)
    pairs = enumerate(zip(line.lows, line.highs, strict=True))
    for has_numbers, part in groupby(pairs, lambda one: one[1][0] is not None):
        if has_numbers:
            edges = [
                (_LINE_WIDTH * at / most, _level(low, bottom, range_), _level(high, bottom, range_))
                for at, (low, high) in part
                if low is not None and high is not None
            ]
            if len(edges) == 1:
                edges.append((edges[0][0] + 1, *edges[0][1:]))
            under = [(x, low) for x, low, _ in reversed(edges)]
            areas.append(" ".join(f"{x:.1f},{y:.1f}" for x, y in [*((x, high) for x, _, high in edges), *under]))
            lines.append(" ".join(f"{x:.1f},{(low + high) / 2:.1f}" for x, low, high in edges))
    ends = {"low": f"{bottom:.6g}", "high": f"{top:.6g}", "last": format_count(line.count - 1)}
    return LinePlot(**ends, areas=tuple(areas), lines=tuple(lines))


def _level(value: float, bottom: float, half_range: float) -> float:
    share = (value / 2 - bottom / 2) / half_range
    return 2 + (_LINE_HEIGHT - 4) * (1 - share)


def plots_of(history: NodeHistory, load: Load) -> tuple[Plot, ...]:
    """Return plots of processor, memory, disk, network, sessions and attempts; none without two samples."""
    samples = history.samples
    if len(samples) < 2:  # noqa: PLR2004 - a line has two ends
        return ()
    times = [one.time for one in samples]
    network = [
        (after.received - before.received + after.sent - before.sent) / max(after.time - before.time, 1e-3)
        for before, after in pairwise(samples)
    ]
    rate: Callable[[float], str] = lambda value: f"{format_size(max(value, 0.0))}/s"  # noqa: E731
    count: Callable[[float], str] = lambda value: format_count(int(value))  # noqa: E731
    return (
        _plot("Processor", times, [one.processor for one in samples], 100.0, lambda value: f"{value:.0f} %"),
        _plot("Memory", times, [one.memory for one in samples], float(load.memory), format_size),
        _plot("Disk", times, [one.disk for one in samples], float(load.disk), format_size),
        _plot("Network", times[1:], network, 0.0, rate),
        _plot("Sessions", times, [one.sessions for one in samples], 0.0, count),
        _plot("Attempts that run", times, [one.running for one in samples], float(load.workers), count),
    )


def _plot(
    title: str, times: Sequence[float], values: Sequence[float], most: float, shown: Callable[[float], str]
) -> Plot:
    """Return a plot from 0 to `most`, or to the greatest value if that is more."""
    top = max(most, *values, 1.0) if len(values) > 1 else max(most, values[0], 1.0)
    length = max(times[-1] - times[0], 1e-3)
    points = [
        (_WIDTH * (time - times[0]) / length, _HEIGHT - (_HEIGHT - 1) * max(value, 0.0) / top)
        for time, value in zip(times, values, strict=True)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    area = f"0,{_HEIGHT:.0f} {line} {points[-1][0]:.1f},{_HEIGHT:.0f}"
    return Plot(title=title, now=shown(values[-1]), most=shown(top), line=line, area=area)
