"""``dropflow report``: a run or a session as one HTML file."""

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from dropflow.cli.candidates import runs
from dropflow.cli.exit_status import Exit
from dropflow.cli.options import ConnectionOptions, connection_options, output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.picture_files import replacing
from dropflow.cli.recorded_times import are_directories
from dropflow.errors import UsageError
from dropflow.formatting import format_size

__all__ = ["command"]


class ReportReply(msgspec.Struct, frozen=True, kw_only=True):
    """Where the report was written, and its size in bytes."""

    ok: bool = True
    run: str
    status: str
    file: str
    size: int

    def lines(self) -> Iterator[str]:
        """One line."""
        yield f"{self.file}: {format_size(self.size)}, {self.run} is {self.status.lower()}"


@click.command("report")
@output_options
@click.option("-o", "file", metavar="FILE.html", help="The file to write; RUN-report.html unless given.")
@click.argument("run", metavar="RUN", shell_complete=runs)
@connection_options
def command(output: CommandOutput, *, manager: ConnectionOptions, run: str, file: str | None) -> Exit:
    """Write a report of RUN as one HTML file: graph, timeline, failures, times, parameters and versions.

    RUN is a session of a manager, or the directory of a run, also of one that is running or was killed. The file opens
    without a server and a network, has no scripts, and its size does not grow with the number of drops.
    """
    here = are_directories(manager, (run,))
    target = file or f"{Path(run).resolve().name if here else run}-report.html"
    if not target.endswith((".html", ".htm")):
        raise UsageError("the form of the file is not known", where=target, hint="end it with .html")
    from dropflow.session_views.report import report_page

    if here:
        from dropflow.run_report import run_report

        report = run_report(Path(run))
    else:
        from dropflow.cli.connection import connect
        from dropflow.session_views.session_report import session_report

        with connect(manager) as client:
            report = session_report(client, run)
    page = report_page(report)
    with replacing(Path(target)) as stream:
        stream.write(page)
    output.answer(ReportReply(run=report.detail.session, status=report.detail.status, file=target, size=len(page)))
    return Exit.FINISHED
