"""A report of a session: one HTML file with pictures and tables, without scripts, that needs no server.

Its size does not grow with the number of drops: pictures are those of the logical graph and of at most 4,000 attempts,
or of how many ran at a time, and tables end after some hundred rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.api.manager import Manager
from dropflow.api.requests import (
    DropStates,
    FailureQuery,
    ResultList,
    plain_states,
)
from dropflow.api.session_records import FailureInfo, SessionDetail
from dropflow.graph.drop_counts import DropCounts, failed_words
from dropflow.graph.logical_drawing import LogicalDrawing, draw_logical
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import UNKNOWN_STATE
from dropflow.times.attempts import attempts_of, check_rows
from dropflow.times.executed import executed_picture
from dropflow.times.octets import read_sections
from dropflow.times.statistics import NodeTraffic, TimesStatistics
from dropflow.times.timeline import Analysis, analyse, statistics_of
from dropflow.times.timeline_files import write_svg
from dropflow.times.traffic import traffic_of, uncounted_nodes
from dropflow.version import __version__
from dropflow.web.cause_groups import Cause, causes
from dropflow.web.frame import STATIC, PageLayout, PageTemplates
from dropflow.web.views import GROUPS, grouped, listed, segments, traffic_grid

_FOLDER = Path(__file__).with_name("templates")
_STYLE_SHEETS = (STATIC / "dropflow.css", STATIC / "traffic.css", _FOLDER / "report.css")
_MOST_SHAPES = 400
"""Logical nodes of a graph whose picture is in the report."""
_MOST_NOTES = 50
"""Notes of the session in the report."""
_MOST_CAUSES = 50
"""Causes of failures in the report."""
_MOST_STEPS = 30
"""Attempts of the critical path in the report."""
_MOST_VERSIONS = 100
"""Nodes whose version is in the report."""
_MOST_NODES = 300
"""Logical nodes in the tables of the report."""
_MOST_PARAMETERS = 40
"""Parameters of a logical node in the report."""
_PARAMETER_CHARACTERS = 2000
"""Characters of a parameter in the report."""
_LETTER_WIDTH = 7.4
"""Units of the drawing: the mean width of a letter."""
_TEMPLATES = PageTemplates(
    _FOLDER,
    layout=PageLayout(navigation=()),
    names={"failed_words": failed_words, "traffic_grid": traffic_grid},
)
_CAUSES = FailureQuery(limit=1000)


class SessionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The data from which a report is made.

    Attributes
    ----------
    detail : SessionDetail
        The session.
    failures : sequence of FailureInfo
        Its root causes.
    analysis : Analysis
        Its graph, its attempts, and what follows from them.
    written : float
        When the report is written, in seconds since the epoch.
    versions : sequence of (str, str)
        Programs and their versions, besides the dropflow that writes the report.
    missing : tuple of str
        Nodes that did not answer.
    traffic : tuple of NodeTraffic
        Contents and bytes that were moved between nodes.
    uncounted : tuple of str
        Nodes that received contents which `traffic` may lack.
    results : ResultList
        Its results; none unless they were asked for.
    states : uint8 array, shape (drops,), or None
        `dropflow.states.DropState` of each drop, 255 for those that are not known; None unless they were asked for.
    inputs : mapping of int to str
        Paths of existing files that were read, by drop; empty for a session of a manager.
    """

    detail: SessionDetail
    failures: Sequence[FailureInfo]
    analysis: Analysis
    written: float
    versions: Sequence[tuple[str, str]] = ()
    missing: tuple[str, ...] = ()
    traffic: tuple[NodeTraffic, ...] = ()
    uncounted: tuple[str, ...] = ()
    results: ResultList = ResultList(results=())
    states: npt.NDArray[np.uint8] | None = None
    inputs: Mapping[int, str] = {}

    @property
    def graph(self) -> PhysicalGraph:
        """The graph that ran."""
        return self.analysis.graph

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Failures by their text, the most harmful first."""
        return causes(self.failures)

    @property
    def statistics(self) -> TimesStatistics:
        """Times of attempts."""
        return statistics_of(
            self.analysis, most_steps=_MOST_STEPS, missing=self.missing, traffic=self.traffic, uncounted=self.uncounted
        )

    @property
    def parameters(self) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
        """Names and parameters of logical nodes."""
        for template in self.graph.templates[:_MOST_NODES]:
            if template.arguments and not template.artificial:
                pairs = tuple(
                    (argument.name, _text(argument.value)) for argument in template.arguments[:_MOST_PARAMETERS]
                )
                yield template.name, pairs

    @property
    def left_out(self) -> tuple[str, ...]:
        """The parts that the report leaves out because they are too large."""
        count, notes = len(self.graph.templates), []
        if count > _MOST_SHAPES:
            notes.append(f"The picture of the graph is left out: it has {count:,} logical nodes.")
        if count > _MOST_NODES:
            notes.append(f"Tables have the first {_MOST_NODES} of {count:,} logical nodes.")
        return tuple(notes)


def report_page(report: SessionReport) -> bytes:
    """Return the report as HTML."""
    drawing = None
    if len(report.graph.templates) <= _MOST_SHAPES:
        drawing = _Picture(draw_logical(report.graph), report.detail)
    timeline = ""
    if len(report.analysis.attempts):
        stream = BytesIO()
        write_svg(executed_picture(report.analysis), stream)
        timeline = stream.getvalue().decode()
    statistics = report.statistics
    shown: Mapping[str, Any] = {
        "report": report,
        "detail": report.detail,
        "drawing": drawing,
        "timeline": timeline,
        "notes": listed(report.detail.notes, _MOST_NOTES),
        "causes": listed(report.causes, _MOST_CAUSES),
        "nodes": listed(report.detail.logical, _MOST_NODES),
        "statistics": statistics,
        "node_times": listed(statistics.templates, _MOST_NODES),
        "bar": _bar,
    }
    return render_page("report", **shown)


def render_page(template: str, **shown: Any) -> bytes:
    """Return a page that needs no server, in the frame of reports."""
    css = "".join(path.read_text() for path in _STYLE_SHEETS)
    return _TEMPLATES.render(template, css=css, own_version=__version__, **shown).encode(errors="replace")


def _bar(counts: DropCounts) -> list[tuple[str, str, float, float, int]]:
    """Return style, word, start, width in per cent, and number of drops of each part of a bar."""
    numbers = grouped(counts)
    return [
        (part.style, group.word, part.start, part.width, numbers[part.style])
        for group, part in zip(GROUPS, segments(numbers), strict=True)
        if numbers[part.style]
    ]


class _Picture:
    """The logical graph as the report's template draws it."""

    def __init__(self, drawing: LogicalDrawing, detail: SessionDetail) -> None:
        self.drawing = drawing
        self._counts = {node.key: node.counts for node in detail.logical}
        self._places = {node.template: node for node in drawing.nodes}

    def bar(self, key: str, width: float) -> list[tuple[str, float, float]]:
        """Return the parts of the bar of a logical node: style, start and width."""
        parts = _bar(self._counts.get(key, DropCounts()))
        return [(style, start * width / 100, part * width / 100) for style, _, start, part, _ in parts]

    def path(self, source: int, target: int) -> str:
        """Return the line of an arrow; empty if one of its ends is not drawn."""
        if source not in self._places or target not in self._places:
            return ""
        width, height = self.drawing.node_width, self.drawing.node_height
        start, stop = self._places[source], self._places[target]
        x, y, end, level = start.x + width, start.y + height / 2, stop.x, stop.y + height / 2
        if end < x:  # to the left: below both
            low = max(y, level) + height
            return f"M{x:.0f} {y:.0f}C{x + 40:.0f} {low:.0f} {end - 40:.0f} {low:.0f} {end:.0f} {level:.0f}"
        bend = max((end - x) / 2, 20)
        return f"M{x:.0f} {y:.0f}C{x + bend:.0f} {y:.0f} {end - bend:.0f} {level:.0f} {end:.0f} {level:.0f}"

    def name(self, text: str, width: float) -> str:
        """Return as much of a name as fits."""
        most = max(int(width / _LETTER_WIDTH), 1)
        return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _PARAMETER_CHARACTERS else f"{text[:_PARAMETER_CHARACTERS]}…"


# The report of a session of a manager, from what any manager or client answers.


def session_report(
    source: Manager, session: str, *, has_results: bool = False, has_states: bool = False
) -> SessionReport:
    """Return the report of a session as it is now.

    Parameters
    ----------
    source : Manager
        A manager, or a client of one.
    session : str
        Its name.
    has_results : bool
        Whether results are read, too, which comparisons and origins need.
    has_states : bool
        Whether states of drops are read, too, which origins need.

    Raises
    ------
    NotFoundError
        There is no such session.
    ProtocolError
        The times are of another graph.
    """
    info, detail = source.info(), source.session(session)
    sections = list(read_sections(source.times(session).chunks, where=session))
    graph, attempts = source.graph(session), attempts_of(sections)
    check_rows(graph, attempts, session)
    nodes = [(f"node {node.name}", node.version) for node in source.nodes() if node.name in detail.nodes]
    return SessionReport(
        detail=detail,
        failures=source.failures(session, _CAUSES).failures,
        analysis=analyse(graph, attempts),
        written=info.time,
        versions=[(f"{info.role} {info.name}", info.version), *nodes[:_MOST_VERSIONS]],
        missing=tuple(sorted(section.node for section in sections if section.missing)),
        traffic=traffic_of(graph, sections),
        uncounted=uncounted_nodes(sections),
        results=source.results(session) if has_results else ResultList(results=()),
        states=_states_of(source.states(session), graph.drops) if has_states else None,
    )


def _states_of(states: DropStates, drops: int) -> npt.NDArray[np.uint8]:
    """Return the state of each drop; 255 for those of nodes that did not answer."""
    signs = np.full(drops, UNKNOWN_STATE, np.uint8)
    signs[states.rows] = states.signs
    return plain_states(signs)
