"""What runs and sessions have computed, from their reports: for ``dropflow diff`` and ``dropflow explain --origin``."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.option_types import ConnectionOptions, is_run_directory
from dropflow.cli.output import CommandOutput
from dropflow.cli.progress import columns, few
from dropflow.formatting import format_brief, format_size, format_time, plural, single_line
from dropflow.graph.drop_counts import failed_words

if TYPE_CHECKING:
    from dropflow.api.records import PageQuery
    from dropflow.graph.differences import Difference
    from dropflow.web.comparison import Comparison
    from dropflow.web.origin import Origin, OriginDrop
    from dropflow.web.report import SessionReport
    from dropflow.web.signature import SessionSignature

__all__ = ["compare", "show_origin"]


def _report_of(
    manager: ConnectionOptions, run: str, *, other_url: str | None = None, has_states: bool = False
) -> "SessionReport":
    """Return the report, with results, of the directory of a run, or of a session.

    Parameters
    ----------
    manager : ConnectionOptions
        Names the manager.
    run : str
        A directory if it is written as a path, or if no address is given and there is a run of that name.
    other_url : str, optional
        The manager of the session, if it is another one.
    has_states : bool
        Whether the states of the drops of a session are read, too.

    Raises
    ------
    NotFoundError
        There is no such run or session.
    DropflowError
        It cannot be read, or the manager cannot be reached.
    """
    if is_run_directory(run, has_url=bool(other_url or manager.url)):
        from dropflow.sessions.report import run_report

        return run_report(Path(run))
    from dropflow.cli.connection import connect_to, manager_url
    from dropflow.web.report import session_report

    url = manager_url(manager if other_url is None else ConnectionOptions(url=other_url))
    if other_url is not None and manager.url is None:  # the token is for the manager of the options
        manager = ConnectionOptions(key=manager.key)
    with connect_to(url, manager) as client:
        return session_report(client, run, has_results=True, has_states=has_states)


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


def _short(text: str) -> str:
    return single_line(text, _WIDE)


def _sides(one: "Difference") -> tuple[str, str]:
    from dropflow.web.comparison import spelled

    return _short(spelled(one.left, one.unit)), _short(spelled(one.right, one.unit))


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"x {ratio:.2f}"


def compare(output: CommandOutput, manager: ConnectionOptions, first: str, second: str, other_url: str | None) -> Exit:
    """Answer with what differs between two runs or sessions; the other one may be at another manager."""
    from dropflow.web.comparison import comparison_of

    found = comparison_of(_report_of(manager, first), _report_of(manager, second, other_url=other_url))
    output.answer(CompareReply(same_graph=found.is_same_graph, comparison=found))
    return Exit.FINISHED if found.is_same_graph else Exit.FAILED


class SignatureReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a session computed."""

    ok: bool = True
    run: str
    signature: "SessionSignature"

    def lines(self) -> Iterator[str]:
        """One line for each level."""
        found = self.signature
        yield self.run
        yield f"  graph       {found.graph}"
        yield f"  parameters  {found.parameters}"
        yield f"  software    {_software(found.software)}"
        yield f"  contents    {found.contents or f'not known: {found.contents_note}'}"


class OriginReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a drop was made from."""

    ok: bool = True
    origin: "Origin"

    def lines(self) -> Iterator[str]:
        """The drop, its logical nodes with their parameters, and a page of the drops on the way."""
        found = self.origin
        content = "" if found.size is None else f", {format_size(found.size)}, {_checksum(found.checksum)}"
        yield f"{found.name} ({found.oid}){content}"
        yield f"  graph {found.graph}, parameters {found.parameters}; software: {_software(found.software)}"
        yield f"upstream of it: {plural(found.total - 1, 'drop')}; roots: {found.roots:,}"
        yield from (f"note: node {node} did not answer: what it has is missing" for node in found.missing)
        yield "logical nodes, the nearest first:"
        for one in found.nodes.rows:
            tried = f", {plural(one.attempts, 'attempt')}, {one.failed} failed" if one.attempts else ""
            ran = f", ran {format_brief(one.seconds)} on {few(one.nodes)}" if one.nodes else ""
            yield f"  {one.name}: {one.drops:,} of {plural(one.all_drops, 'drop')}, {one.component}{tried}{ran}"
            yield from (f"      {name} = {single_line(value, 100)}" for name, value in one.parameters if value)
        if found.nodes.left_out:
            yield f"  {plural(found.nodes.left_out, 'more logical node')}"
        yield f"drops {found.offset + 1:,} to {found.offset + len(found.drops):,} of {found.total:,}:"
        rows = [(one.away, one.name, one.state or "not known", one.digest[:16], _made(one)) for one in found.drops]
        yield from columns(rows, header=("away", "drop", "state", "digest", ""))


def _software(software: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in software.items()) or "not recorded"


def _checksum(checksum: int | None) -> str:
    return "no checksum" if checksum is None else f"CRC-32 {checksum:08x}"


def _made(drop: "OriginDrop") -> str:
    if drop.size is not None:
        return f"{format_size(drop.size)}, {_checksum(drop.checksum)}"
    tried = [
        f"attempt {one.attempt}{' failed' if one.failed else ''} on {one.node}, {format_brief(one.ran)}"
        for one in drop.attempts
    ]
    return "; ".join(tried)


def show_origin(
    output: CommandOutput, manager: ConnectionOptions, run: str, drop: str | None, page: "PageQuery"
) -> Exit:
    """Answer with what a run computed, as a signature, or with what a drop of it was made from."""
    report = _report_of(manager, run, has_states=drop is not None)
    if drop is None:
        from dropflow.web.signature import signature

        name = report.detail.session
        output.answer(SignatureReply(run=name, signature=signature(report.graph, report.results)))
        return Exit.FINISHED
    from dropflow.web.origin import origin_of

    output.answer(OriginReply(origin=origin_of(report, drop, page)))
    return Exit.FINISHED
