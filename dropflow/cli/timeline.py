"""``dropflow timeline``: when the attempts of a run ran, as a trace for Perfetto or as a picture."""

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import ConnectionOptions, connection_options, output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.picture_files import check_targets, replacing
from dropflow.cli.recorded_times import are_directories, runs_argument, sections_of_directories, sections_of_session
from dropflow.errors import UsageError
from dropflow.formatting import format_brief, plural

__all__ = ["command"]

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
def command(
    output: CommandOutput, *, manager: ConnectionOptions, runs: tuple[str, ...], files: tuple[str, ...]
) -> Exit:
    """Write when the attempts of RUN ran, on which worker: as a trace for Perfetto, or as a picture.

    RUN is a session of a manager, or the directory of a run, also of one that is running or was killed. Of a session of
    managers, its directories on its nodes may be given together. PNG needs the extra png. 'dropflow schedule' writes
    the timeline of a plan in the same forms.
    """
    _check(files)
    here = are_directories(manager, runs)
    from dropflow.times.analysis import analyse
    from dropflow.times.attempts import attempts_of, check_rows
    from dropflow.times.executed import executed_picture, executed_trace
    from dropflow.times.picture import write_png, write_svg

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
