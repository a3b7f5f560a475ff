"""How a session ended, in lines for people: its status, its drops by state, and the causes of its failures."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dropflow.cli.output import shell_command
from dropflow.errors import BadFileError, StorageError
from dropflow.formatting import few, format_duration, plural
from dropflow.graph.drop_counts import DropCounts, IncompleteDrop, failed_words
from dropflow.states import SessionState

if TYPE_CHECKING:
    from dropflow.api.session_records import FailureInfo
    from dropflow.web.cause_groups import Cause

_SHOWN_CAUSES = 10
"""Kinds of failures that are printed."""
_SHOWN_INCOMPLETE = 10
"""Incomplete results that are printed."""
_DETAIL_LINES = 12
"""Lines at the end of a traceback that are printed."""
_SHOWN_CHARACTERS = 600
"""Characters of a line of a failure that are printed."""


def headline(status: str, drops: int, seconds: float, states: Mapping[str, int], text: str = "") -> str:
    """Return the first line about a session: its status, time, and drops by state."""
    counts = ", ".join(f"{count:,} {state}" for state, count in states.items() if count)
    text = beside_status(status, text)
    why = f"  {text}" if text else ""
    return f"{status}  {plural(drops, 'drop')} in {format_duration(seconds)}  ({counts or 'nothing to do'}){why}"


def beside_status(status: str, text: str) -> str:
    """Return the text to print beside a status, without repeating it: ``CANCELLED  enough``."""
    return text.removeprefix("cancelled").removeprefix(": ") if status == SessionState.CANCELLED.name else text


def count_lines(counts: DropCounts) -> Iterator[str]:
    """Yield how many drops failed, were taken along, and are lost, if the causes do not show it already."""
    if counts.took_along or counts.lost:
        yield f"  {failed_words(counts)}"


def failure_lines(
    failures: "Sequence[FailureInfo]",
    *,
    log: "Callable[[FailureInfo], str]",
    unlisted: int = 0,
    more: str = "",
) -> Iterator[str]:
    """Yield the first ten root causes: the drop, its node, the error, a hint, and where its log is.

    Failures that `Cause` puts together are one entry. The causes that are not printed are counted, with the place that
    lists all of them.

    Parameters
    ----------
    log : callable
        Returns where the log of a failed drop is, or the command that prints it; empty if there is none.
    unlisted : int
        Drops in error because of causes that are not among `failures`.
    more : str
        Where all causes are listed.
    """
    if not failures and unlisted <= 0:
        return
    from dropflow.web.cause_groups import causes

    groups = causes(failures)
    for group in groups[:_SHOWN_CAUSES]:
        yield from _cause_lines(group, log(group.first) if group.first.drop else "")
    if len(groups) > _SHOWN_CAUSES:
        yield f"... and {plural(len(groups) - _SHOWN_CAUSES, 'more kind')} of failures"
    if unlisted > 0:
        yield f"... and {plural(unlisted, 'drop')} in error because of other causes"
    if more and (len(groups) > _SHOWN_CAUSES or unlisted > 0):
        yield f"all causes: {more}"


def session_failure_lines(
    failures: "Sequence[FailureInfo]", session: str, *, unlisted: int = 0, url: str = ""
) -> Iterator[str]:
    """Yield the root causes of a session, whose page is at `url`, with the commands that print logs."""
    yield from failure_lines(
        failures,
        log=lambda failure: shell_command("log", session, failure.drop) if failure.has_log else "",
        unlisted=unlisted,
        more=url and f"{url}/causes",
    )


def _cause_lines(cause: "Cause", log: str) -> Iterator[str]:
    first = cause.first
    if first.drop:
        others = f", took {plural(first.took_along, 'drop')} along" if first.took_along else ""
        what = f"failed: {cause.name} ({first.drop})"
        if cause.rest:
            others = f" and {plural(len(cause.rest), 'other')} alike"
            others += f", took {plural(cause.took_along, 'drop')} along" if cause.took_along else ""
    else:
        others = f", and {plural(first.count, 'drop')} with it" if first.count else ""
        is_stored = first.code in (StorageError.code, BadFileError.code)  # stored data of the node is damaged or gone
        what = f"failed: {first.name}" if is_stored or not first.node else f"lost: node {first.name}"
    where = f" on {first.node}" if first.node and first.drop else ""
    tries = f", after {first.attempts} attempts" if first.attempts > 1 else ""
    yield f"  {what}{where}{others}{tries}"
    yield f"    {first.code} {_beginning(cause.text)}"
    if cause.is_varied:
        yield f"    the first of them: {_beginning(first.text)}"
    if first.hint:
        yield f"    {first.hint}"
    yield from (f"    with {line}" for line in first.inputs)
    yield from (f"    | {_beginning(line)}" for line in first.detail.splitlines()[-_DETAIL_LINES:])
    if log:
        yield f"    log: {log}"
    if cause.rest:
        yield f"    alike: {few([failure.drop for failure in cause.rest])}"


def _beginning(text: str) -> str:
    """Return a text for a terminal: an exception may have the content of a file in it."""
    rest = len(text) - _SHOWN_CHARACTERS
    return text if rest <= 0 else f"{text[:_SHOWN_CHARACTERS]}... ({plural(rest, 'more character')}: see the log)"


def incomplete_lines(incomplete: Sequence[IncompleteDrop]) -> Iterator[str]:
    """Yield the first results that are made from less than all of their data."""
    for drop in incomplete[:_SHOWN_INCOMPLETE]:
        yield f"{drop.name} ({drop.drop}) is made from {100 * drop.fraction:.3g} % of its data"
    if len(incomplete) > _SHOWN_INCOMPLETE:
        yield f"... and {plural(len(incomplete) - _SHOWN_INCOMPLETE, 'more result')}, see --output json"
