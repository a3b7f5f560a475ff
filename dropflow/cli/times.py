"""``dropflow times`` and ``timeline``: how long attempts waited and ran, and when."""

import errno
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click
import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.option_types import ConnectionOptions, connection_options, output_options, runs
from dropflow.cli.output import CommandOutput
from dropflow.cli.progress import columns
from dropflow.errors import BadFileError, UsageError
from dropflow.formatting import format_brief, format_size, plural

__all__ = [
    "are_directories",
    "check_targets",
    "replacing",
    "runs_argument",
    "sections_of_directories",
    "sections_of_session",
    "timeline_command",
    "times_command",
]


# The times of the attempts of a run or a session, for commands that show them.

if TYPE_CHECKING:
    from dropflow.graph.physical import PhysicalGraph
    from dropflow.times.octets import TimesSection


runs_argument = click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=runs)


def are_directories(manager: ConnectionOptions, runs: Sequence[str]) -> bool:
    """Return whether RUN... are directories of a run, and not a session of a manager.

    Raises
    ------
    UsageError
        Several sessions are named.
    """
    here = manager.url is None and all(Path(run, "graph.dfg").exists() or "/" in run for run in runs)
    if not here and len(runs) > 1:
        raise UsageError(f"{len(runs)} sessions are named", where=runs[1], hint="name one session, or directories")
    return here


def sections_of_directories(runs: Sequence[str]) -> "tuple[PhysicalGraph, list[TimesSection]]":
    """Return the graph and the records of the directories of one session."""
    from dropflow.times.measured_run import read_parts

    return read_parts([Path(run) for run in runs])


def sections_of_session(manager: ConnectionOptions, session: str) -> "tuple[PhysicalGraph, list[TimesSection]]":
    """Return the graph and the records of a session, of all nodes that answer."""
    from dropflow.cli.connection import connect
    from dropflow.times.octets import read_sections

    with connect(manager) as client:
        sections = list(read_sections(client.times(session).chunks, where=client.url))
        return client.graph(session), sections


if TYPE_CHECKING:
    from dropflow.times.statistics import TimesStatistics


class TimesReply(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of the attempts of a run."""

    ok: bool = True
    run: str
    statistics: "TimesStatistics"

    def lines(self) -> Iterator[str]:
        """Templates, slowest attempts, critical path, and use of workers."""
        found = self.statistics
        failed = f", {found.failed} failed" if found.failed else ""
        yield f"{self.run}: {plural(found.attempts, 'attempt')}{failed}, {format_brief(found.ended - found.began)}"
        yield from (f"node {node} did not answer: its attempts are missing" for node in found.missing)
        if not found.attempts:
            return
        yield from self._templates()
        if found.slowest:
            yield "slowest attempts:"
            rows = [
                (one.name, one.drop, one.attempt, format_brief(one.ran), format_brief(one.waited))
                for one in found.slowest
            ]
            yield from columns(rows, header=("node", "drop", "attempt", "ran", "waited"))
        yield from self._critical()
        yield from self._traffic()
        yield "workers:"
        lanes = [
            (one.node, one.lane, one.attempts, *(format_brief(getattr(one, field)) for field in _USES))
            for one in found.lanes
        ]
        yield from columns(lanes, header=("node", "worker", "attempts", "busy", *(f"for {use}" for use in _USES[1:])))

    def _traffic(self) -> Iterator[str]:
        found = self.statistics.traffic
        if found:
            total = format_size(sum(one.size for one in found))
            cut = f", the first {_SHOWN_PAIRS} of {len(found)} pairs" if len(found) > _SHOWN_PAIRS else ""
            yield f"moved between nodes: {total}{cut}:"
            rows = [
                (
                    one.source,
                    one.target,
                    one.contents,
                    format_size(one.size),
                    format_size(one.shared_size) if one.shared_contents else "",
                    format_size(one.planned) if one.planned else "",
                )
                for one in found[:_SHOWN_PAIRS]
            ]
            yield from columns(rows, header=("from", "to", "contents", "bytes", "in place", "planned"))
            if self.statistics.uncounted:
                nodes = ", ".join(self.statistics.uncounted)
                yield f"these sums are incomplete: what {nodes} received is not known"

    def _templates(self) -> Iterator[str]:
        rows = [
            (
                one.name,
                one.attempts,
                one.failed,
                format_brief(one.median),
                format_brief(one.p95),
                format_brief(one.longest),
                format_brief(one.waited),
                format_brief(one.queued),
                format_brief(one.planned) if one.planned else "",
                format_brief(one.processor),
                format_size(one.memory) if one.memory else "",
            )
            for one in self.statistics.templates
        ]
        header = ("node", "attempts", "failed", "median", "95 %", "longest", "ready", "queued")
        yield from columns(rows, header=(*header, "planned", "processor", "memory"))

    def _critical(self) -> Iterator[str]:
        found = self.statistics
        cut = f", the {len(found.critical)} longest" if len(found.critical) < found.critical_steps else ""
        yield (
            f"critical path: {plural(found.critical_steps, 'attempt')}, which ran {format_brief(found.critical_ran)}"
            f" and waited {format_brief(found.critical_waited)}{cut}:"
        )
        rows = [
            (
                one.name,
                one.drop,
                one.node,
                one.waited_for,
                format_brief(one.moved),
                format_brief(one.waited - one.moved),
                format_brief(one.ran),
            )
            for one in found.critical
        ]
        yield from columns(rows, header=("node", "drop", "on", "after", "moving", "for worker", "ran"))


_SHOWN_PAIRS = 20
_USES = ("busy", "data", "message", "worker", "rest")


@click.command("times")
@output_options
@click.option(
    "--slowest", metavar="N", type=click.IntRange(0, 1000), default=10, show_default=True, help="List N slow attempts."
)
@click.option(
    "--steps",
    metavar="N",
    type=click.IntRange(0, 1000),
    default=20,
    show_default=True,
    help="List N steps of the critical path, the longest ones.",
)
@runs_argument
@connection_options
def times_command(
    output: CommandOutput, *, manager: ConnectionOptions, runs: tuple[str, ...], slowest: int, steps: int
) -> Exit:
    """Show how long attempts of RUN waited and ran, by logical node, and its critical path as executed.

    RUN is a session of a manager, or the directory of a run, also of one that is running or was killed. Of a session of
    managers, its directories on its nodes may be given together. Attempts that have not ended are not counted.

    'ready' is the median from when an attempt could begin until it was given to the workers, 'queued' from then
    until one began it. Each step of the critical path began 'after' data, after a worker was free, or after an
    attempt of the same drop that had failed; 'moving' is how long its data or a message about them took to its
    node, 'for worker' how long it then waited until a worker had room, or had started. Workers were idle 'for'
    data, for a message that the data are there, or for a worker, although the attempt that they ran next was ready;
    'for rest' is after their last attempt. What was 'moved between nodes' is counted by the nodes that received it;
    'in place' was read where it is, on a file system that both see, and 'planned' follows from the volumes that the
    graph declares.
    """
    here = are_directories(manager, runs)
    output.answer(_of_directories(runs, slowest, steps) if here else _of_session(manager, runs[0], slowest, steps))
    return Exit.FINISHED


def _of_directories(runs: tuple[str, ...], slowest: int, steps: int) -> TimesReply:
    from dropflow.times.attempts import attempts_of
    from dropflow.times.timeline import analyse, statistics_of
    from dropflow.times.traffic import traffic_of, uncounted_nodes

    graph, sections = sections_of_directories(runs)
    found = analyse(graph, attempts_of(sections))
    traffic, uncounted = traffic_of(graph, sections), uncounted_nodes(sections)
    statistics = statistics_of(found, most=slowest, most_steps=steps, traffic=traffic, uncounted=uncounted)
    return TimesReply(run=graph.name, statistics=statistics)


def _of_session(manager: ConnectionOptions, session: str, slowest: int, steps: int) -> TimesReply:
    from dropflow.api.requests import StatisticsQuery
    from dropflow.cli.connection import connect

    with connect(manager) as client:
        statistics = client.times_statistics(session, StatisticsQuery(slowest=slowest, steps=steps))
    return TimesReply(run=session, statistics=statistics)


# Files that commands write: traces, pictures, reports and graphs.

_FULL = (errno.ENOSPC, errno.EDQUOT)


def check_targets(trace: str | None, svg: str | None, png: str | None) -> None:
    """Refuse files that cannot be written, before anything is computed.

    Raises
    ------
    MissingDependencyError
        PNG pictures cannot be written here.
    UsageError
        There is no such directory, or the name is that of a directory.
    """
    from dropflow.errors import MissingDependencyError, UsageError, install_hint
    from dropflow.times.timeline_files import has_png

    if png is not None and not has_png():
        hint = f"{install_hint('png')}, or write --svg"
        raise MissingDependencyError("PNG pictures need the package pillow", where="--png", hint=hint)
    for file in (trace, svg, png):
        if file is not None and not Path(file).parent.is_dir():
            raise UsageError("no such directory", where=str(Path(file).parent), hint="make it, or name another file")
        if file is not None and Path(file).is_dir():
            raise UsageError("not a regular file", where=file, hint="name a file")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when the block ends without an exception; else `path` stays as it is.

    A path that is no regular file, such as a device, is written in place.

    Raises
    ------
    BadFileError
        It cannot be written.
    """
    in_place = path.exists() and not path.is_file()
    unfinished = path if in_place else path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}")
    try:
        try:
            with unfinished.open("wb" if in_place else "xb") as stream:
                yield stream
            if not in_place:
                unfinished.replace(path)
        finally:
            if not in_place:
                unfinished.unlink(missing_ok=True)
    except OSError as error:
        hint = "make room, or name another file" if error.errno in _FULL else "name another file"
        raise BadFileError(f"cannot be written: {error.strerror or error}", where=str(path), hint=hint) from error


# ``dropflow timeline``: when the attempts of a run ran, as a trace for Perfetto or as a picture.

_ENDINGS = (".json", ".svg", ".png")


class TimelineReply(msgspec.Struct, frozen=True, kw_only=True):
    """The timeline that was written, and where."""

    ok: bool = True
    run: str
    attempts: int
    seconds: float
    files: tuple[str, ...]
    missing: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """What the files show, and which nodes are missing."""
        yield f"{self.run}: {plural(self.attempts, 'attempt')}, {format_brief(self.seconds)}"
        yield from (f"node {node} did not answer: its attempts are missing" for node in self.missing)
        yield from (f"  {file}" for file in self.files)


@click.command("timeline")
@output_options
@click.option(
    "-o",
    "files",
    metavar="FILE",
    multiple=True,
    required=True,
    help="Write FILE.json, a trace for https://ui.perfetto.dev, or a picture, FILE.svg or FILE.png. May be repeated.",
)
@runs_argument
@connection_options
def timeline_command(
    output: CommandOutput, *, manager: ConnectionOptions, runs: tuple[str, ...], files: tuple[str, ...]
) -> Exit:
    """Write when the attempts of RUN ran, on which worker: as a trace for Perfetto, or as a picture.

    RUN is a session of a manager, or the directory of a run, also of one that is running or was killed. Of a session of
    managers, its directories on its nodes may be given together. PNG needs the extra png. 'dropflow schedule' writes
    the timeline of a plan in the same forms.
    """
    _check(files)
    here = are_directories(manager, runs)
    from dropflow.times.attempts import attempts_of, check_rows
    from dropflow.times.executed import executed_picture, executed_trace
    from dropflow.times.timeline import analyse
    from dropflow.times.timeline_files import write_png, write_svg

    graph, sections = sections_of_directories(runs) if here else sections_of_session(manager, runs[0])
    attempts = attempts_of(sections)
    check_rows(graph, attempts, runs[0])
    found = analyse(graph, attempts)
    for file in files:
        with replacing(Path(file)) as stream:
            if file.endswith(".json"):
                stream.writelines(executed_trace(found))
            else:
                (write_svg if file.endswith(".svg") else write_png)(executed_picture(found), stream)
    output.answer(
        TimelineReply(
            run=graph.name if here else runs[0],
            attempts=len(attempts),
            seconds=attempts.end - attempts.start,
            files=files,
            missing=tuple(section.node for section in sections if section.missing),
        )
    )
    return Exit.FINISHED


def _check(files: tuple[str, ...]) -> None:
    for file in files:
        if not file.endswith(_ENDINGS):
            raise UsageError("the form of the file is not known", where=file, hint=f"end it with {', '.join(_ENDINGS)}")
        trace, svg, png = (file if file.endswith(ending) else None for ending in _ENDINGS)
        check_targets(trace, svg, png)
