"""The comparison of two sessions: graph, parameters, programs, drops, times and failures.

It follows from what reports are made from (`dropflow.web.report.SessionReport`), of sessions and of the
directories of runs. Its size does not grow with the number of drops: each list ends after some hundred rows, and
says how many there are.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import msgspec
import numpy as np

from dropflow.api.submission_note import META as SUBMISSION
from dropflow.api.submission_note import options_of
from dropflow.graph.codec import digest
from dropflow.graph.differences import NodeDifference, ValueDifference, graph_differences, matched_templates
from dropflow.graph.drop_counts import DropCounts
from dropflow.graph.notes import planning_of, software_of
from dropflow.graph.physical import PhysicalGraph
from dropflow.times.statistics import NodeProfile
from dropflow.times.timeline import profile
from dropflow.web.cause_groups import Cause, without_numbers
from dropflow.web.report import SessionReport
from dropflow.web.signature import (
    ContentDifference,
    Levels,
    SessionSignature,
    content_differences,
    levels_of,
    signature,
)

__all__ = [
    "CauseDifference",
    "ComparedNode",
    "ComparedSession",
    "Comparison",
    "Listed",
    "NodeTimes",
    "SettingDifference",
    "Total",
    "comparison_of",
]


_MOST = 300
_TEXT = 500
_T = TypeVar("_T")


class Listed(msgspec.Struct, Generic[_T], frozen=True, kw_only=True):
    """The first rows of a list, and how many it has."""

    rows: tuple[_T, ...] = ()
    total: int = 0

    @property
    def left_out(self) -> int:
        """How many rows are not there."""
        return self.total - len(self.rows)


class ComparedSession(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two sessions.

    Attributes
    ----------
    session, graph, status : str
    digest : str
        Of its graph (`dropflow.graph.codec`), which includes the nodes of its drops.
    started : float
        Seconds since the epoch.
    drops, edges : int
    counts : DropCounts
        Its drops by what has become of them.
    is_over : bool
    signature : SessionSignature
        What it computed.
    """

    session: str
    graph: str
    status: str
    digest: str
    started: float
    drops: int
    edges: int
    counts: DropCounts
    is_over: bool
    signature: SessionSignature


class SettingDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A value of the sessions that is not in their logical graph.

    Attributes
    ----------
    group : str
        ``version``, ``nodes``, ``plan`` or ``option``.
    name : str
    first, second : str
        Empty if it is not known.
    """

    group: str
    name: str
    first: str
    second: str

    @property
    def differs(self) -> bool:
        """Whether the values differ."""
        return self.first != self.second


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """A number of both sessions. `unit` is ``seconds``, ``bytes`` or ``count``."""

    name: str
    unit: str
    first: float
    second: float

    @property
    def ratio(self) -> float | None:
        """The second number divided by the first; None if one of them is 0."""
        return _ratio(self.first, self.second)


class NodeTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts of a logical node in one session: how many, median and 95 % of their seconds, and all together."""

    attempts: int
    failed: int
    median: float
    p95: float
    seconds: float


class ComparedNode(msgspec.Struct, frozen=True, kw_only=True):
    """The times of a logical node; None for the session in which it had no attempts."""

    name: str
    category: str
    first: NodeTimes | None
    second: NodeTimes | None

    @property
    def cost(self) -> float:
        """Seconds of its attempts in the session in which they took longer."""
        return max(0.0 if one is None else one.seconds for one in (self.first, self.second))

    @property
    def ratio(self) -> float | None:
        """Seconds of all attempts in the second session, divided by those in the first; None if one has none."""
        return None if self.first is None or self.second is None else _ratio(self.first.seconds, self.second.seconds)


class CauseDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A root cause of failures.

    Attributes
    ----------
    change : str
        ``new`` (only in the second session), ``gone`` (only in the first) or ``same``.
    name, code, kind, text : str
        Logical node, code, kind and text of the error; the text of the second session, if it has the cause.
    first, second : int
        Drops in ERROR because of it.
    first_text : str
        Text in the first session, if it differs in paths or numbers; else empty.
    """

    change: str
    name: str
    code: str
    kind: str
    text: str
    first: int
    second: int
    first_text: str = ""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two sessions.

    Attributes
    ----------
    first, second : ComparedSession
    levels : Levels
        At which levels both are the same.
    nodes : Listed of NodeDifference
        Logical nodes that were added, removed or changed.
    values : Listed of ValueDifference
        Their parameters and other properties.
    links_removed, links_added : Listed of str
    settings : Listed of SettingDifference
        Those that differ.
    totals : tuple of Total
        Those that are not 0 in both.
    times : Listed of ComparedNode
        Those that took most first.
    contents : Listed of ContentDifference
        Results that differ for sure.
    causes : Listed of CauseDifference
        New ones first, then those that are gone, then those in both.
    warnings : tuple of str
        What is missing in the comparison.
    """

    first: ComparedSession
    second: ComparedSession
    levels: Levels
    nodes: Listed[NodeDifference]
    values: Listed[ValueDifference]
    links_removed: Listed[str]
    links_added: Listed[str]
    settings: Listed[SettingDifference]
    totals: tuple[Total, ...]
    times: Listed[ComparedNode]
    contents: Listed[ContentDifference]
    causes: Listed[CauseDifference]
    warnings: tuple[str, ...] = ()

    @property
    def is_same_graph(self) -> bool:
        """Whether both have the same logical nodes, values, links and numbers of drops."""
        return not (self.nodes.total or self.links_removed.total or self.links_added.total)

    @property
    def verdict(self) -> str:
        """What differs in the graph, in one sentence."""
        if self.is_same_graph:
            places = "" if self.first.digest == self.second.digest else ", with other places or ids of drops"
            return f"Both ran the same graph with the same parameters{places}."
        parts = []
        counts = {change: sum(one.change == change for one in self.nodes.rows) for change in _CHANGES}
        if self.nodes.left_out:
            parts.append(f"{self.nodes.total:,} logical nodes")
        else:
            parts += [f"{count} {_nodes(count)} {change}" for change, count in counts.items() if count]
        if self.values.total:
            parts.append(f"{self.values.total:,} {'value differs' if self.values.total == 1 else 'values differ'}")
        links = self.links_removed.total + self.links_added.total
        if links:
            parts.append(f"{links:,} {'link differs' if links == 1 else 'links differ'}")
        return f"The graphs differ: {', '.join(parts)}."


_CHANGES = ("removed", "added", "changed")


def comparison_of(first: SessionReport, second: SessionReport) -> Comparison:
    """Return what differs between two sessions."""
    found = graph_differences(first.graph, second.graph)
    one, two = _session(first), _session(second)
    contents = tuple(content_differences((first.graph, first.results), (second.graph, second.results)))
    return Comparison(
        first=one,
        second=two,
        levels=levels_of(one.signature, two.signature, len(contents)),
        nodes=_listed(found.nodes),
        values=_listed(found.values),
        links_removed=_listed(found.links_removed),
        links_added=_listed(found.links_added),
        settings=_listed([one for one in _settings(first, second) if one.differs]),
        totals=tuple(_totals(first, second)),
        times=_listed(sorted(_times(first, second), key=lambda one: -one.cost)),
        contents=_listed(contents),
        causes=_listed(list(_causes(first.causes, second.causes))),
        warnings=tuple(text for report in (first, second) for text in _warnings(report)),
    )


def _listed(rows: Sequence[_T]) -> Listed[_T]:
    return Listed(rows=tuple(rows[:_MOST]), total=len(rows))


def _ratio(first: float, second: float) -> float | None:
    return second / first if first > 0 and second > 0 else None


def _nodes(count: int) -> str:
    return "logical node" if count == 1 else "logical nodes"


def _session(report: SessionReport) -> ComparedSession:
    detail, graph = report.detail, report.graph
    return ComparedSession(
        session=detail.session,
        graph=detail.graph,
        status=detail.status,
        digest=digest(graph),
        started=detail.started or detail.created,
        drops=graph.drops,
        edges=graph.edges,
        counts=detail.counts,
        is_over=detail.is_over,
        signature=signature(graph, report.results),
    )


def _settings(first: SessionReport, second: SessionReport) -> Iterator[SettingDifference]:
    for group, one, two in (
        ("version", dict(_versions(first)), dict(_versions(second))),
        ("nodes", dict(_places(first)), dict(_places(second))),
        ("plan", dict(_plan(first.graph)), dict(_plan(second.graph))),
        ("option", dict(_options(first.graph)), dict(_options(second.graph))),
    ):
        for name in dict.fromkeys((*one, *two)):
            yield SettingDifference(group=group, name=name, first=one.get(name, ""), second=two.get(name, ""))


def _versions(report: SessionReport) -> Iterator[tuple[str, str]]:
    """Yield the versions that were recorded, and those of the managers, without the names of these."""
    yield from software_of(report.graph).items()
    if report.versions:
        yield "dropflow of the managers now", ", ".join(sorted({version for _, version in report.versions}))


def _places(report: SessionReport) -> Iterator[tuple[str, str]]:
    nodes = report.detail.nodes
    yield "number of nodes", str(len(nodes))
    yield "names of nodes", _few(sorted(nodes))
    yield "parts", str(report.graph.parts)
    yield "edges between parts", str(_cut_edges(report.graph))


def _cut_edges(graph: PhysicalGraph) -> int:
    part = np.repeat(graph.part, np.diff(graph.successors.ptr))
    return int(np.count_nonzero(part != graph.part[graph.successors.neighbour]))


def _plan(graph: PhysicalGraph) -> Iterator[tuple[str, str]]:
    for name, value in planning_of(graph).items():
        yield name, _text(value)
    if graph.planned is not None and graph.drops:
        ends = graph.planned[1]
        if np.isfinite(ends).any():
            yield "planned seconds", f"{float(np.nanmax(ends)):.6g}"
    yield "priorities", "no" if graph.priority is None else "yes"


def _options(graph: PhysicalGraph) -> Iterator[tuple[str, str]]:
    if SUBMISSION in graph.meta:
        for name, value in msgspec.to_builtins(options_of(graph)).items():
            if name != "until":  # the walltime is another one each time
                yield name, _text(value)


def _text(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 10:,} more" if len(names) > 10 else ""  # noqa: PLR2004 - what fits on a line
    return ", ".join(names[:10]) + more


def _totals(first: SessionReport, second: SessionReport) -> Iterator[Total]:
    one, two = _numbers(first), _numbers(second)
    for name, (unit, number) in one.items():
        if number or two[name][1]:
            yield Total(name=name, unit=unit, first=number, second=two[name][1])


def _numbers(report: SessionReport) -> dict[str, tuple[str, float]]:
    attempts = report.analysis.attempts
    records, path = attempts.records, report.analysis.waits.path
    return {
        "time": ("seconds", report.detail.seconds),
        "critical path": ("seconds", float((attempts.ended - attempts.began)[path].sum())),
        "attempts, running in all": ("seconds", float(records["ran"].sum(dtype=np.float64))),
        "processor time": ("seconds", float(records["processor"].sum(dtype=np.float64))),
        "attempts": ("count", len(attempts)),
        "failed attempts": ("count", int(np.count_nonzero(attempts.failed))),
        "bytes read": ("bytes", float(records["read"].sum(dtype=np.float64))),
        "bytes written": ("bytes", float(records["written"].sum(dtype=np.float64))),
        "bytes between nodes": ("bytes", sum(one.size for one in report.traffic)),
        "largest memory of an attempt": ("bytes", float(records["memory"].max(initial=0.0))),
        "drops": ("count", report.graph.drops),
    }


def _times(first: SessionReport, second: SessionReport) -> Iterator[ComparedNode]:
    ours, theirs = (
        {one.key: one for one in profile(report.graph, report.analysis.attempts.records)} for report in (first, second)
    )
    pairs = matched_templates(first.graph.templates, second.graph.templates)
    taken = set(pairs.values())
    for row, template in enumerate(first.graph.templates):
        other = second.graph.templates[pairs[row]] if row in pairs else None
        one, two = ours.get(template.key), theirs.get(other.key) if other is not None else None
        if one is not None or two is not None:
            shown = other or template
            yield ComparedNode(name=shown.name, category=shown.category, first=_of(one), second=_of(two))
    for row, template in enumerate(second.graph.templates):
        if row not in taken and template.key in theirs:
            two = theirs[template.key]
            yield ComparedNode(name=template.name, category=template.category, first=None, second=_of(two))


def _of(found: NodeProfile | None) -> NodeTimes | None:
    if found is None:
        return None
    return NodeTimes(
        attempts=found.attempts, failed=found.failed, median=found.median, p95=found.p95, seconds=found.seconds
    )


def _causes(first: Sequence[Cause], second: Sequence[Cause]) -> Iterator[CauseDifference]:
    """Yield new causes, those that are gone, and those in both.

    Texts may hold paths and numbers of their session, so causes without a partner of the same text are matched without
    these.
    """
    pairs: dict[int, int] = {}
    for words in (lambda one: (*_kind(one), one.first.text), lambda one: (*_kind(one), _without_numbers(one))):
        free: dict[tuple[str, ...], list[int]] = {}
        taken = set(pairs.values())
        for row, cause in enumerate(second):
            if row not in taken:
                free.setdefault(words(cause), []).append(row)
        for row, cause in enumerate(first):
            alike = free.get(words(cause)) if row not in pairs else None
            if alike:
                pairs[row] = alike.pop(0)
    taken = set(pairs.values())
    yield from (_cause("new", cause, 0, cause.count) for row, cause in enumerate(second) if row not in taken)
    yield from (_cause("gone", cause, cause.count, 0) for row, cause in enumerate(first) if row not in pairs)
    for row, other in pairs.items():
        one, two = first[row], second[other]
        before = one.first.text if one.first.text != two.first.text else ""
        yield _cause("same", two, one.count, two.count, before)


def _kind(cause: Cause) -> tuple[str, ...]:
    return cause.first.name, cause.first.code, cause.first.kind


def _without_numbers(cause: Cause) -> str:
    return without_numbers(_PATH.sub("#", cause.first.text))


_PATH = re.compile(r"\S*/\S*")
"""Paths and numbers differ between sessions that failed in the same way."""


def _cause(change: str, cause: Cause, first: int, second: int, before: str = "") -> CauseDifference:
    shown = cause.first
    return CauseDifference(
        change=change,
        name=shown.name,
        code=shown.code,
        kind=shown.kind,
        text=_text(shown.text),
        first=first,
        second=second,
        first_text=_text(before),
    )


def _warnings(report: SessionReport) -> Iterator[str]:
    name = report.detail.session
    if not report.detail.is_over:
        yield f"{name} is not over: its numbers are those of now."
    for node in report.missing:
        yield f"Node {node} of {name} did not answer: its attempts are missing."
    for node in report.results.missing:
        yield f"Node {node} of {name} did not answer: its results are missing."
    listed = sum(one.count for one in report.failures if one.drop)
    if report.detail.counts.in_error > listed:
        rest = report.detail.counts.in_error - listed
        yield f"Causes of {rest:,} drops in error of {name} are not compared: there are too many causes."
