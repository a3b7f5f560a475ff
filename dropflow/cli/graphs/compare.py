"""The differences of two runs or sessions, and where their contents begin to differ, for ``dropflow diff``."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
import numpy as np

from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, columns
from dropflow.cli.run_or_session import is_run_directory, report_of
from dropflow.data.survival import surviving_contents
from dropflow.execution.content_location import ContentRecord, Handle
from dropflow.execution.journal import replay
from dropflow.files import JOURNAL
from dropflow.formatting import format_size, format_time, plural, single_line
from dropflow.graph.differences import Difference, graph_differences, matched_templates
from dropflow.graph.drop_counts import failed_words
from dropflow.graph.notes import software_of
from dropflow.graph.order import levels, reached
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import iid, label
from dropflow.preview.difference import SECONDS
from dropflow.submission.options import ConnectionOptions
from dropflow.web.comparison import Comparison, comparison_of, spelled
from dropflow.web.report import SessionReport

_SHOWN_DIFFERENCES = 25
"""Rows of each table of differences."""
_CELL_CHARACTERS = 60
"""Characters of a cell of a table."""
_MOST_BEGINNINGS = 10
"""Drops that are named as the first with another content."""
_PATIENCE = 2 * SECONDS


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """A data drop whose content differs between two sessions, while no content differs that it is made from.

    Attributes
    ----------
    drop : str
        Name of its logical node, with its index.
    left, right : str
        Size and checksum on either side.
    upstream : tuple of Difference
        Differences of the applications and inputs that it is made from; empty if none is recorded.
    how : tuple of str
        Differences of the contents; empty if they are not at hand.
    """

    drop: str
    left: str
    right: str
    upstream: tuple[Difference, ...] = ()
    how: tuple[str, ...] = ()


class CompareReply(msgspec.Struct, frozen=True, kw_only=True):
    """The differences of two sessions, and the drops where their contents begin to differ."""

    ok: bool = True
    same_graph: bool
    comparison: Comparison
    divergences: tuple[Divergence, ...] = ()
    all_divergences: int = 0

    def lines(self) -> Iterator[str]:
        """Both sessions, what differs in their graphs and settings, totals, times by logical node, and causes."""
        comparison = self.comparison
        for number, side in (("first", comparison.first), ("second", comparison.second)):
            begun = f", begun {format_time(side.started)}" if side.started else ""
            drops = f"{plural(side.drops, 'drop')}, {failed_words(side.counts)}"
            yield f"{number}: {side.session}, {side.status.lower()}{begun}: {drops}"
        yield from (f"note: {text}" for text in comparison.warnings)
        yield comparison.verdict
        yield from _level_lines(comparison)
        for number, side in (("first", comparison.first), ("second", comparison.second)):
            if comparison.levels.contents == "unknown" and side.signature.contents_note:
                yield f"  contents of the {number}: {side.signature.contents_note}"
        if self.divergences:
            yield "Contents diverge first at:"
        for drop in self.divergences:
            yield from _divergence_lines(drop)
        if self.all_divergences > len(self.divergences):
            yield f"  and at {self.all_divergences - len(self.divergences):,} more"
        for title, listed in comparison.parts:
            yield f"{title}:"
            rows = [
                (_short(difference.subject), _short(difference.what), *_sides(difference), _times(difference.ratio))
                for difference in listed.rows[:_SHOWN_DIFFERENCES]
            ]
            yield from columns(
                rows, header=("", "", "first", "second", "ratio" if any(row[-1] for row in rows) else "")
            )
            if listed.total > len(rows):
                yield f"  {listed.total - len(rows):,} more; --output json has them"


def _level_lines(comparison: Comparison) -> Iterator[str]:
    yield from (f"  {level}: {state}" for level, state in msgspec.structs.asdict(comparison.levels).items())
    yield from (f"  {state} in DALiuGE's modes {modes}" for state, modes in comparison.modes_by_state.items())


def _divergence_lines(drop: Divergence) -> Iterator[str]:
    yield f"  {drop.drop}: {drop.left} / {drop.right}"
    yield from (f"    {line}" for line in drop.how)
    if not drop.upstream:
        yield "    upstream of it, nothing differs that is recorded: it may depend on time, chance, or a module or file"
    for difference in drop.upstream:
        yield f"    upstream: {difference.subject}, {difference.what}: {' / '.join(_sides(difference))}"


def _short(text: str) -> str:
    return single_line(text, _CELL_CHARACTERS)


def _sides(difference: Difference) -> tuple[str, str]:
    return _short(spelled(difference.left, difference.unit)), _short(spelled(difference.right, difference.unit))


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"x {ratio:.2f}"


def compare(output: CommandOutput, manager: ConnectionOptions, first: str, second: str, other_url: str | None) -> Exit:
    """Answer with what differs between two runs or sessions; the other one may be at another manager."""
    reports = report_of(manager, first), report_of(manager, second, other_url=other_url)
    comparison = comparison_of(*reports)
    places = (
        Path(run) if is_run_directory(run, other_url=url) else None for run, url in ((first, None), (second, other_url))
    )
    left, right = zip(reports, places, strict=True)
    begin, total = divergences(left, right, graph_differences(reports[0].graph, reports[1].graph))
    output.answer(
        CompareReply(
            same_graph=comparison.is_same_graph, comparison=comparison, divergences=begin, all_divergences=total
        )
    )
    return Exit.FINISHED if comparison.is_same_graph else Exit.FAILED


# Where the contents of two runs begin to differ.


class _Side(NamedTuple):
    """The contents of one session: size and checksum, and what is at hand of them."""

    graph: PhysicalGraph
    known: Mapping[int, tuple[int, int]]
    records: Mapping[int, ContentRecord]
    directory: Path | None

    @classmethod
    def of(cls, report: SessionReport, directory: Path | None) -> "_Side":
        """Return all contents of the directory of a run, or the results of a session."""
        if directory is not None:
            records = replay(report.graph, directory / JOURNAL).contents
            known = {
                row: (record.size, record.checksum)
                for row, record in records.items()
                if record.kind not in ("null", "url")
            }
            return cls(report.graph, known, records, directory.absolute())
        return cls(
            report.graph,
            {result.drop: (result.size, result.checksum or 0) for result in report.results.results},
            {},
            None,
        )

    def content(self, drop: int) -> Handle | None:
        """Return a content that is at hand as it was committed."""
        if self.directory is None or drop not in self.records:
            return None
        return surviving_contents({drop: self.records[drop]}, self.directory).get(drop)


def divergences(
    first: tuple[SessionReport, Path | None],
    second: tuple[SessionReport, Path | None],
    differences: Sequence[Difference],
) -> tuple[tuple[Divergence, ...], int]:
    """Return the first drops in the order of the graph whose contents diverge, at most ten, and how many these are.

    Parameters
    ----------
    first, second : tuple
        The report of a session, and its directory if that is at hand.
    differences : sequence of Difference
        Between both graphs.
    """
    ours, theirs = _Side.of(*first), _Side.of(*second)
    graph = ours.graph
    pairs = matched_templates(graph.templates, theirs.graph.templates)
    other = {(int(theirs.graph.template[row]), iid(theirs.graph, row)): row for row in theirs.known}
    differing: dict[int, int] = {}
    for row, (size, checksum) in ours.known.items():
        match = other.get((pairs.get(int(graph.template[row]), -1), iid(graph, row)))
        if match is not None:
            their_size, their_checksum = theirs.known[match]
            if size != their_size or (checksum and their_checksum and checksum != their_checksum):
                differing[row] = match
    after = graph.successors
    readers = {app for row in differing for app in after.of(row)}
    depends = {*reached(after, list(readers))[0].tolist()} if readers else set()
    begin = [row for row in differing if row not in depends]
    level = levels(graph)
    begin.sort(key=lambda row: (int(level[row]), row))
    software = _software(ours.graph, theirs.graph)
    diverging = [
        Divergence(
            drop=label(graph, row),
            left=_spelled(*ours.known[row]),
            right=_spelled(*theirs.known[differing[row]]),
            upstream=(*_upstream(ours, theirs, row, differing[row], differences), *software),
            how=_how(ours.content(row), theirs.content(differing[row])),
        )
        for row in begin[:_MOST_BEGINNINGS]
    ]
    return tuple(diverging), len(begin)


def _upstream(
    ours: _Side, theirs: _Side, row: int, match: int, differences: Sequence[Difference]
) -> tuple[Difference, ...]:
    """Return what differs in the nodes that a drop is made from, and where its producers ran."""
    names = set()
    for side, drop in ((ours, row), (theirs, match)):
        rows = np.unique(side.graph.template[reached(side.graph.predecessors, [drop])[0]]).tolist()
        names |= {side.graph.templates[maker].name for maker in rows}
    causes = [
        difference
        for difference in differences
        if difference.subject in names or {*difference.subject.split(" -> ")} <= names
    ]
    makers = [(label(side.graph, app), _place(side.graph, app)) for side, drop in ((ours, row), (theirs, match))
              for app in side.graph.predecessors.of(drop)[:1]]  # fmt: skip
    if len(makers) == 2 and makers[0][1] != makers[1][1] and all(place for _, place in makers):
        causes.append(Difference(subject=makers[0][0], what="node", left=makers[0][1], right=makers[1][1]))
    if not makers:
        causes.append(Difference(subject=label(ours.graph, row), what="input", left="changed", right="changed"))
    return tuple(causes)


def _software(first: PhysicalGraph, second: PhysicalGraph) -> list[Difference]:
    ours, theirs = software_of(first), software_of(second)
    names = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    return [Difference(subject=name, what="version", left=ours[name], right=theirs[name]) for name in names]


def _place(graph: PhysicalGraph, drop: int) -> str:
    return str(graph.places[graph.part[drop]]) if graph.places else ""


def _spelled(size: int, checksum: int) -> str:
    return f"{format_size(size)}, {f'CRC-32 {checksum:08x}' if checksum else 'no checksum'}"


def _how(left: Handle | None, right: Handle | None) -> tuple[str, ...]:
    """Return how two contents differ, as a process with limits finds it."""
    if left is None or right is None:
        return ()
    with TemporaryDirectory(prefix="dropflow-") as folder:
        paths = []
        for name, handle in (("left", left), ("right", right)):
            path = Path(handle.location)
            if handle.kind == "bytes":
                path = Path(folder, name)
                path.write_bytes(handle.body)
            paths.append(str(path))
        command = [sys.executable, "-m", "dropflow.preview.difference", *paths]
        with suppress(OSError, subprocess.TimeoutExpired):
            ended = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)  # noqa: S603
            lines = ended.stdout.splitlines()
            if ended.returncode:
                why = ended.stderr.strip().rpartition("\n")[2] or f"it was ended by signal {-ended.returncode}"
                lines.append(f"the contents are not compared further: {why}")
            return tuple(lines)
    return ("the contents take too long to compare",)
