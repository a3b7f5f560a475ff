"""The comparison of two sessions: graph, parameters, programs, drops, times and failures.

It follows from what reports are made from (`dropflow.web.report.SessionReport`), of sessions and of the directories of
runs. Its size does not grow with the number of drops: each list ends after some hundred rows, with the number of all
rows.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from dropflow.api.drop_records import ResultInfo
from dropflow.api.requests import ResultList
from dropflow.formatting import DASH, few, format_brief, format_count, format_size, plural, single_line, value_text
from dropflow.graph.codec import digest
from dropflow.graph.differences import Difference, graph_differences, matched_templates
from dropflow.graph.drop_counts import DropCounts
from dropflow.graph.notes import SUBMISSION, planning_of, software_of, submission_options
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import iid, label
from dropflow.times.timeline import profile
from dropflow.web.cause_groups import Cause, without_numbers
from dropflow.web.report import SessionReport
from dropflow.web.signature import Level, Levels, SessionSignature, levels_of, modes_of, signature
from dropflow.web.views import Listed, listed

_MOST_ROWS = 300
"""Rows of each table."""
_TEXT_CHARACTERS = 500
"""Characters of a value."""
_PROFILE = (("in all", "seconds", "seconds"), ("median", "median", "seconds"), ("attempts", "attempts", "count"))
"""Word, field of a profile and unit of the numbers of a logical node."""
_PATH = re.compile(r"\S*/\S*")
"""Paths and numbers differ between sessions that failed in the same way."""


def content_differences(
    first: tuple[PhysicalGraph, ResultList], second: tuple[PhysicalGraph, ResultList]
) -> Iterator[Difference]:
    """Yield the results that differ for sure: in size or checksum, or because only one session has them.

    Results match by their logical nodes and indices. What only one session has is left out if a node of the other one
    did not answer.
    """
    (graph, ours), (other_graph, theirs) = first, second
    pairs = matched_templates(graph.templates, other_graph.templates)
    known = {_place(other_graph, result): result for result in theirs.results}
    for result in ours.results:
        row, instance = _place(graph, result)
        other = known.pop((pairs[row], instance), None) if row in pairs else None
        if other is None:
            if not theirs.missing:
                yield Difference(subject=label(graph, result.drop), what="result", left=_spelled(result))
        elif result.size != other.size or (
            result.checksum != other.checksum and None not in (result.checksum, other.checksum)
        ):
            yield Difference(
                subject=label(graph, result.drop), what="result", left=_spelled(result), right=_spelled(other)
            )
    if not ours.missing:
        for missing in known.values():
            yield Difference(subject=label(other_graph, missing.drop), what="result", right=_spelled(missing))


def _place(graph: PhysicalGraph, result: ResultInfo) -> tuple[int, str]:
    """Return the row of the template of a result, and its index."""
    return int(graph.template[result.drop]), iid(graph, result.drop)


def _spelled(result: ResultInfo) -> str:
    known = "no checksum" if result.checksum is None else f"CRC-32 {result.checksum:08x}"
    return f"{format_size(result.size)}, {known}"


class ComparedSession(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two sessions.

    Attributes
    ----------
    session, graph, status : str
    digest : str
        Digest of its graph (`dropflow.graph.codec`), which includes the nodes of its drops.
    started : float
        Seconds since the epoch.
    drops, edges : int
    counts : DropCounts
        Its drops by what has become of them.
    is_over : bool
    signature : SessionSignature
        Digests of its graph, parameters, results and software.
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


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The differences of two sessions.

    Attributes
    ----------
    first, second : ComparedSession
    levels : Levels
        At which levels both are the same.
    modes : dict
        In which of DALiuGE's modes of reproducibility they are.
    graph : Listed of Difference
        Logical nodes, their drops, parameters and other properties, and links.
    settings : Listed of Difference
        Versions, nodes, plans and options.
    totals, times : Listed of Difference
        Numbers of the sessions, and of their logical nodes, those that took most first; also those that are the same.
    results : Listed of Difference
        Results that certainly differ.
    failures : Listed of Difference
        Drops in error by root cause, also those that are the same: new causes first, then those that are gone.
    warnings : tuple of str
        Parts that are missing in the comparison, and why.
    """

    first: ComparedSession
    second: ComparedSession
    levels: Levels
    modes: dict[str, Level]
    graph: Listed[Difference]
    settings: Listed[Difference]
    totals: Listed[Difference]
    times: Listed[Difference]
    results: Listed[Difference]
    failures: Listed[Difference]
    warnings: tuple[str, ...] = ()

    @property
    def modes_by_state(self) -> dict[Level, str]:
        """The names of the modes that are the same, different or unknown."""
        states = dict.fromkeys(self.modes.values())
        return {state: ", ".join(mode for mode, level in self.modes.items() if level == state) for state in states}

    @property
    def is_same_graph(self) -> bool:
        """Whether both have the same logical nodes, values, links and numbers of drops."""
        return not self.graph.total

    @property
    def parts(self) -> tuple[tuple[str, Listed[Difference]], ...]:
        """The lists that have rows, each with its title."""
        lists = (
            ("Graph and parameters", self.graph),
            ("Nodes, plan, options and versions", self.settings),
            ("Results that differ", self.results),
            ("Totals", self.totals),
            ("Times by logical node", self.times),
            ("Failures by root cause", self.failures),
        )
        return tuple(part for part in lists if part[1].rows)

    @property
    def verdict(self) -> str:
        """One sentence: whether the graphs differ."""
        if not self.is_same_graph:
            return f"The graphs differ: {plural(self.graph.total, 'difference')}."
        places = "" if self.first.digest == self.second.digest else ", with other places or ids of drops"
        return f"Both ran the same graph with the same parameters{places}."


def spelled(value: str | float | None, unit: str) -> str:
    """Return one side of a `Difference` as text."""
    if value is None:
        return DASH
    if isinstance(value, str):
        return single_line(value, _TEXT_CHARACTERS) or '""'
    if unit == "seconds":
        return format_brief(value)
    return format_size(value) if unit == "bytes" else format_count(int(value))


def comparison_of(first: SessionReport, second: SessionReport) -> Comparison:
    """Return the differences of two sessions."""
    before, after = _session(first), _session(second)
    results = tuple(content_differences((first.graph, first.results), (second.graph, second.results)))
    levels = levels_of(before.signature, after.signature, len(results))
    return Comparison(
        first=before,
        second=after,
        levels=levels,
        modes=modes_of(levels),
        graph=listed(graph_differences(first.graph, second.graph), _MOST_ROWS),
        settings=listed(tuple(_settings(first, second)), _MOST_ROWS),
        totals=listed(tuple(_totals(first, second)), _MOST_ROWS),
        times=listed(_times(first, second), _MOST_ROWS),
        results=listed(results, _MOST_ROWS),
        failures=listed(tuple(_failures(first.causes, second.causes)), _MOST_ROWS),
        warnings=tuple(text for report in (first, second) for text in _warnings(report)),
    )


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


def _settings(first: SessionReport, second: SessionReport) -> Iterator[Difference]:
    for what, ours, theirs in (
        ("version", dict(_versions(first)), dict(_versions(second))),
        ("nodes", dict(_places(first)), dict(_places(second))),
        ("plan", dict(_plan(first.graph)), dict(_plan(second.graph))),
        ("option", dict(_options(first.graph)), dict(_options(second.graph))),
    ):
        for name in dict.fromkeys((*ours, *theirs)):
            if ours.get(name) != theirs.get(name):
                yield Difference(subject=name, what=what, left=ours.get(name), right=theirs.get(name))


def _versions(report: SessionReport) -> Iterator[tuple[str, str]]:
    """Yield the versions that were recorded, and those of the managers, without the names of these."""
    yield from software_of(report.graph).items()
    if report.versions:
        yield "dropflow of the managers now", ", ".join(sorted({version for _, version in report.versions}))


def _places(report: SessionReport) -> Iterator[tuple[str, str]]:
    nodes = report.detail.nodes
    yield "number of nodes", str(len(nodes))
    yield "names of nodes", few(sorted(nodes), 10)
    yield "parts", str(report.graph.parts)
    yield "edges between parts", str(_cut_edges(report.graph))


def _cut_edges(graph: PhysicalGraph) -> int:
    part = np.repeat(graph.part, np.diff(graph.successors.ptr))
    return int(np.count_nonzero(part != graph.part[graph.successors.neighbour]))


def _plan(graph: PhysicalGraph) -> Iterator[tuple[str, str]]:
    for name, value in planning_of(graph).items():
        yield name, value_text(value, _TEXT_CHARACTERS)
    if graph.planned is not None and graph.drops:
        ends = graph.planned[1]
        if np.isfinite(ends).any():
            yield "planned seconds", f"{float(np.nanmax(ends)):.6g}"
    yield "priorities", "no" if graph.priority is None else "yes"


def _options(graph: PhysicalGraph) -> Iterator[tuple[str, str]]:
    if SUBMISSION in graph.meta:
        for name, value in msgspec.to_builtins(submission_options(graph)).items():
            if name != "until":  # the walltime is another one each time
                yield name, value_text(value, _TEXT_CHARACTERS)


def _totals(first: SessionReport, second: SessionReport) -> Iterator[Difference]:
    ours, theirs = _numbers(first), _numbers(second)
    for name, (unit, number) in ours.items():
        if number or theirs[name][1]:
            yield Difference(subject=name, what="total", left=number, right=theirs[name][1], unit=unit)


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
        "bytes between nodes": ("bytes", sum(entry.size for entry in report.traffic)),
        "largest memory of an attempt": ("bytes", float(records["memory"].max(initial=0.0))),
        "drops": ("count", report.graph.drops),
    }


def _times(first: SessionReport, second: SessionReport) -> list[Difference]:
    ours, theirs = (
        {node.key: node for node in profile(report.graph, report.analysis.attempts.records)}
        for report in (first, second)
    )
    pairs = matched_templates(first.graph.templates, second.graph.templates)
    matched = [
        (template, second.graph.templates[pairs[row]] if row in pairs else None)
        for row, template in enumerate(first.graph.templates)
    ]
    taken = set(pairs.values())
    matched += [(template, template) for row, template in enumerate(second.graph.templates) if row not in taken]
    costs = []
    for row, (template, other) in enumerate(matched):
        left = ours.get(template.key) if row < len(first.graph.templates) else None
        right = theirs.get(other.key) if other is not None else None
        if left is not None or right is not None:
            cost = max(each.seconds for each in (left, right) if each is not None)
            costs.append((cost, (other or template).name, left, right))
    return [
        Difference(
            subject=name,
            what=what,
            left=None if left is None else getattr(left, field),
            right=None if right is None else getattr(right, field),
            unit=unit,
        )
        for _, name, left, right in sorted(costs, key=lambda each: -each[0])
        for what, field, unit in _PROFILE
    ]


def _failures(first: Sequence[Cause], second: Sequence[Cause]) -> Iterator[Difference]:
    """Yield new causes, those that are gone, and those in both, with the drops in error because of them.

    Texts may hold paths and numbers of their session, so causes without a partner of the same text are matched without
    these.
    """
    pairs: dict[int, int] = {}
    for words in (
        lambda group: (*_kind(group), group.first.text),
        lambda group: (*_kind(group), _without_numbers(group)),
    ):
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
    yield from (_failure(cause, None, cause.count) for row, cause in enumerate(second) if row not in taken)
    yield from (_failure(cause, cause.count, None) for row, cause in enumerate(first) if row not in pairs)
    for row, other in pairs.items():
        before_cause, after_cause = first[row], second[other]
        before = f" (first: {before_cause.first.text})" if before_cause.first.text != after_cause.first.text else ""
        yield _failure(after_cause, before_cause.count, after_cause.count, before)


def _kind(cause: Cause) -> tuple[str, ...]:
    return without_numbers(cause.first.name), cause.first.code, cause.first.kind


def _without_numbers(cause: Cause) -> str:
    return without_numbers(_PATH.sub("#", cause.first.text))


def _failure(cause: Cause, left: int | None, right: int | None, before: str = "") -> Difference:
    shown = cause.first
    text = value_text(f"{shown.code} {shown.text}{before}".strip(), _TEXT_CHARACTERS)
    return Difference(subject=cause.name, what=text, left=left, right=right, unit="count")


def _warnings(report: SessionReport) -> Iterator[str]:
    name = report.detail.session
    if not report.detail.is_over:
        yield f"{name} is not over: its numbers are those of now."
    for node in report.missing:
        yield f"Node {node} of {name} did not answer: its attempts are missing."
    for node in report.results.missing:
        yield f"Node {node} of {name} did not answer: its results are missing."
    listed = sum(failure.count for failure in report.failures if failure.drop)
    if report.detail.counts.in_error > listed:
        rest = report.detail.counts.in_error - listed
        yield f"Causes of {rest:,} drops in error of {name} are not compared: there are too many causes."
