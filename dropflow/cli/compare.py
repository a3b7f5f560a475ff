"""What differs between two runs or sessions, for ``dropflow diff``."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dropflow.cli.candidates import is_run_directory
from dropflow.cli.exit_status import Exit
from dropflow.cli.origin import report_of
from dropflow.cli.output import CommandOutput, columns
from dropflow.formatting import format_time, plural, single_line
from dropflow.graph.drop_counts import failed_words
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from dropflow.cli.divergence import Divergence
    from dropflow.graph.differences import Difference
    from dropflow.web.comparison import Comparison

_SHOWN = 25
_WIDE = 60


class CompareReply(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two sessions."""

    ok: bool = True
    same_graph: bool
    comparison: "Comparison"
    divergences: "tuple[Divergence, ...]" = ()
    all_divergences: int = 0

    def lines(self) -> Iterator[str]:
        """Both sessions, what differs in their graphs and settings, totals, times by logical node, and causes."""
        found = self.comparison
        for number, one in (("first", found.first), ("second", found.second)):
            begun = f", begun {format_time(one.started)}" if one.started else ""
            drops = f"{plural(one.drops, 'drop')}, {failed_words(one.counts)}"
            yield f"{number}: {one.session}, {one.status.lower()}{begun}: {drops}"
        yield from (f"note: {text}" for text in found.warnings)
        yield found.verdict
        yield from _level_lines(found)
        for number, one in (("first", found.first), ("second", found.second)):
            if found.levels.contents == "unknown" and one.signature.contents_note:
                yield f"  contents of the {number}: {one.signature.contents_note}"
        if self.divergences:
            yield "Contents diverge first at:"
        for drop in self.divergences:
            yield from _divergence_lines(drop)
        if self.all_divergences > len(self.divergences):
            yield f"  and at {self.all_divergences - len(self.divergences):,} more"
        for title, listed in found.parts:
            yield f"{title}:"
            rows = [
                (_short(one.subject), _short(one.what), *_sides(one), _times(one.ratio)) for one in listed.rows[:_SHOWN]
            ]
            yield from columns(
                rows, header=("", "", "first", "second", "ratio" if any(row[-1] for row in rows) else "")
            )
            if listed.total > len(rows):
                yield f"  {listed.total - len(rows):,} more; --output json has them"


def _level_lines(found: "Comparison") -> Iterator[str]:
    yield from (f"  {level}: {state}" for level, state in msgspec.structs.asdict(found.levels).items())
    yield from (f"  {state} in DALiuGE's modes {modes}" for state, modes in found.modes_by_state.items())


def _divergence_lines(drop: "Divergence") -> Iterator[str]:
    yield f"  {drop.drop}: {drop.left} / {drop.right}"
    yield from (f"    {line}" for line in drop.how)
    if not drop.upstream:
        yield "    upstream of it, nothing differs that is recorded: it may depend on time, chance, or a module or file"
    for one in drop.upstream:
        yield f"    upstream: {one.subject}, {one.what}: {' / '.join(_sides(one))}"


def _short(text: str) -> str:
    return single_line(text, _WIDE)


def _sides(one: "Difference") -> tuple[str, str]:
    from dropflow.web.comparison import spelled

    return _short(spelled(one.left, one.unit)), _short(spelled(one.right, one.unit))


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"x {ratio:.2f}"


def compare(output: CommandOutput, manager: ConnectionOptions, first: str, second: str, other_url: str | None) -> Exit:
    """Answer with what differs between two runs or sessions; the other one may be at another manager."""
    from dropflow.cli.divergence import divergences
    from dropflow.graph.differences import graph_differences
    from dropflow.web.comparison import comparison_of

    reports = report_of(manager, first), report_of(manager, second, other_url=other_url)
    found = comparison_of(*reports)
    places = (
        Path(run) if is_run_directory(run, has_url=bool(url or manager.url)) else None
        for run, url in ((first, None), (second, other_url))
    )
    one, two = zip(reports, places, strict=True)
    begin, total = divergences(one, two, graph_differences(reports[0].graph, reports[1].graph))
    output.answer(
        CompareReply(same_graph=found.is_same_graph, comparison=found, divergences=begin, all_divergences=total)
    )
    return Exit.FINISHED if found.is_same_graph else Exit.FAILED
