"""``dropflow compare``: what differs between two sessions."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from dropflow.cli.candidates import runs
from dropflow.cli.exit_status import Exit
from dropflow.cli.options import ConnectionOptions, connection_options, output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.run_reports import report_of_run
from dropflow.cli.tables import columns
from dropflow.drop_counts import failed_words
from dropflow.formatting import format_brief, format_count, format_size, format_time, plural, single_line

if TYPE_CHECKING:
    from dropflow.session_views.comparison import CauseDifference, Comparison, NodeTimes, Total

__all__ = ["command"]

_SHOWN = 25
_WIDE = 60


class CompareReply(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two sessions."""

    ok: bool = True
    same_graph: bool
    comparison: "Comparison"

    def lines(self) -> Iterator[str]:
        """Both sessions, what differs in their graphs and settings, totals, times by logical node, and causes."""
        found = self.comparison
        for number, one in (("first", found.first), ("second", found.second)):
            begun = f", begun {format_time(one.started)}" if one.started else ""
            drops = f"{plural(one.drops, 'drop')}, {failed_words(one.counts)}"
            yield f"{number}: {one.session}, {one.status.lower()}{begun}: {drops}"
        yield from (f"note: {text}" for text in found.warnings)
        yield found.verdict
        for level, state in msgspec.structs.asdict(found.levels).items():
            yield f"  {level}: {state}"
        for number, one in (("first", found.first), ("second", found.second)):
            if found.levels.contents == "unknown" and one.signature.contents_note:
                yield f"  contents of the {number}: {one.signature.contents_note}"
        yield from self._graph()
        yield from _part(
            "settings that differ",
            ("group", "name", "first", "second"),
            [(one.group, one.name, _short(one.first), _short(one.second)) for one in found.settings.rows],
        )
        yield from _part(
            "totals",
            ("", "first", "second", "ratio"),
            [(one.name, *_both(one), _times(one.ratio)) for one in found.totals],
        )
        yield from _part(
            "times by logical node, those that took most first; each with the first and the second session",
            ("node", "attempts", "", "median", "", "95 %", "", "in all", "", "ratio"),
            [
                (_short(one.name, 40), *_pairs(one.first, one.second), _times(one.ratio))
                for one in found.times.rows[:_SHOWN]
            ],
            found.times.total,
        )
        yield from _part(
            "results that differ",
            ("name", "first", "second"),
            [(one.name, one.first or "(none)", one.second or "(none)") for one in found.contents.rows[:_SHOWN]],
            found.contents.total,
        )
        yield from self._causes()

    def _graph(self) -> Iterator[str]:
        found = self.comparison
        signs = {"added": "+", "removed": "-", "changed": "~"}
        yield from _part(
            "logical nodes",
            ("", "name", "category", "drops, first", "second"),
            [(signs[one.change], one.name, one.category, one.first, one.second) for one in found.nodes.rows[:_SHOWN]],
            found.nodes.total,
        )
        yield from _part(
            "values",
            ("node", "what", "first", "second"),
            [(one.node, one.what, _short(one.first), _short(one.second)) for one in found.values.rows[:_SHOWN]],
            found.values.total,
        )
        for sign, links in (("-", found.links_removed), ("+", found.links_added)):
            yield from (f"  {sign} link {one}" for one in links.rows[:_SHOWN])
            if links.total > _SHOWN:
                yield f"  {sign} {plural(links.total - _SHOWN, 'more link')}"

    def _causes(self) -> Iterator[str]:
        found = self.comparison.causes
        yield from _part(
            "failures by root cause, with the drops in error because of them",
            ("", "node", "code", "first", "second", "text"),
            [_cause_row(one) for one in found.rows[:_SHOWN]],
            found.total,
        )


def _part(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]], total: int = 0) -> Iterator[str]:
    if rows:
        yield f"{title}:"
        yield from columns(rows, header=header)
    if total > len(rows):
        yield f"  {total - len(rows):,} more; --output json has them"


def _short(text: str | None, most: int = _WIDE) -> str:
    return "(none)" if text is None else single_line(text, most) or '""'


def _both(total: "Total") -> tuple[str, str]:
    return _measure(total.first, total.unit), _measure(total.second, total.unit)


def _measure(number: float, unit: str) -> str:
    if unit == "seconds":
        return format_brief(number)
    return format_size(number) if unit == "bytes" else format_count(int(number))


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"x {ratio:.2f}"


def _pairs(first: "NodeTimes | None", second: "NodeTimes | None") -> tuple[str, ...]:
    found: list[str] = []
    for name in ("attempts", "median", "p95", "seconds"):
        for one in (first, second):
            value = None if one is None else getattr(one, name)
            found.append("" if value is None else format_count(value) if name == "attempts" else format_brief(value))
    return tuple(found)


def _cause_row(cause: "CauseDifference") -> tuple[object, ...]:
    text = _short(cause.text) if not cause.first_text else f"{_short(cause.text)} (first: {_short(cause.first_text)})"
    return cause.change, cause.name, cause.code, cause.first, cause.second, text


@click.command("compare")
@output_options
@click.argument("first", metavar="RUN", shell_complete=runs)
@click.argument("second", metavar="OTHER", shell_complete=runs)
@click.option("--other-to", "other_url", metavar="URL", help="The manager of OTHER, if it is not that of RUN.")
@connection_options
def command(
    output: CommandOutput, *, manager: ConnectionOptions, first: str, second: str, other_url: str | None
) -> Exit:
    """Show what differs between two sessions: graph, parameters, versions, plan, drops, times and failures.

    RUN and OTHER are sessions of a manager, or directories of runs; either may be running. Ratios are OTHER divided by
    RUN. 'same' at a level means the same components and links (graph), also the same parameters, the same versions of
    dropflow and Python (software), and the same results by size and checksum (contents). The exit status is 0 whether
    or not they differ; 'same_graph' of the answer as JSON says whether both ran the same graph with the same
    parameters.
    """
    from dropflow.session_views.comparison import comparison_of

    found = comparison_of(report_of_run(manager, first), report_of_run(manager, second, other_url=other_url))
    output.answer(CompareReply(same_graph=found.is_same_graph, comparison=found))
    return Exit.FINISHED
