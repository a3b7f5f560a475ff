"""``dropflow log``: what the drops of a run or session wrote to their logs, or a manager to its own."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.api.logs import LEVELS, LOG_START
from dropflow.cli import candidates
from dropflow.cli.common_options import connection_options, output_options, patience_option
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, OutputKind
from dropflow.cli.run_or_session import is_run_directory, refuse_without_run
from dropflow.errors import UsageError
from dropflow.files import GRAPH_FILE, SessionLock, refuse_other_directory
from dropflow.formatting import printable, printable_chunks
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from dropflow.api.logs import LogLine, LogPage, LogQuery
    from dropflow.api.patience import PatientClient

_PAGE_LINES = 2000
"""Lines of a page of a log that is read at once."""
_POLL_SECONDS = 5.0
"""Seconds of one long poll for new lines."""
_ASKED_AGAIN = 3
"""Number of times that nodes which do not answer are asked again at the end of a session."""


class LogReply(msgspec.Struct, frozen=True, kw_only=True):
    """The log of one drop."""

    ok: bool = True
    session: str
    drop: str
    log: str

    def lines(self) -> Iterator[str]:
        """Yield the lines of the log."""
        yield from self.log.splitlines()


class LogRecordsReply(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a log, the oldest first, and the nodes whose lines are missing because they did not answer."""

    ok: bool
    session: str = ""
    manager: str = ""
    records: "tuple[LogLine, ...]"
    missing: list[str] = []

    def lines(self) -> Iterator[str]:
        """Return nothing: other forms of output print lines as they come."""
        yield from ()


@click.command("log")
@output_options
@click.argument("run", metavar="[RUN]", required=False, shell_complete=candidates.runs)
@click.argument("drop", metavar="[DROP]", required=False, shell_complete=candidates.drops)
@connection_options
@patience_option
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they are written, until the session is over.")
@click.option(
    "--text", "--search", "text", default="", metavar="TEXT", help="Only lines with this text, ignoring case."
)
@click.option(
    "--level",
    type=click.Choice(LEVELS, case_sensitive=False),
    help="Only lines of this level and above; output of programs counts as INFO.",
)
@click.option(
    "--drops", default="", metavar="TEXT", help="Only drops with this text in their id or logical node's name."
)
@click.option(
    "--node",
    default="",
    metavar="NAME",
    shell_complete=candidates.nodes,
    help="Only lines that were written on this node.",
)
@click.option(
    "--manager",
    "of_manager",
    default="",
    metavar="NAME",
    shell_complete=candidates.nodes,
    help="The log of this node, island or master manager instead of that of a session.",
)
@click.option("-n", "--last", type=click.IntRange(0, 1_000_000), metavar="N", help="Begin with the last N lines.")
def log_command(
    output: CommandOutput,
    *,
    manager: ConnectionOptions,
    patience: float,
    run: str | None,
    drop: str | None,
    of_manager: str,
    follow: bool,
    text: str,
    level: str | None,
    drops: str,
    node: str,
    last: int | None,
) -> Exit:
    r"""Print what drops of RUN wrote to their logs, in the order of time, or the log of one DROP.

    RUN is a session of a manager, or the directory of a run, also of one that was killed or still runs. DROP is a text
    id as reports show it, or the end of one if only one drop ends so. On a terminal, control characters are printed as
    \x1b; a file or another program gets the log of a drop as it is. With an option, its lines have their time and level
    too. With --output json, the answer has each line as a record; with --follow, too, each record is an object on a
    line of its own, printed as it comes. Exit status 1 if a node did not answer: its lines are missing. With --manager
    NAME and without RUN, print what that manager wrote to its own log; --follow prints new lines until Ctrl-C.
    While the manager is away, --follow asks it again (see --patience).
    """
    from dropflow.api.logs import LogQuery

    if (run is None) is (not of_manager):
        raise UsageError("the log of a run, session or manager is wanted", hint="give either RUN or --manager NAME")
    if drop is not None and drops:
        raise UsageError("--drops cannot be used with DROP", hint="leave one of them out")
    is_whole = not (follow or text or level or drops or node or last is not None)
    query = LogQuery(text=text, level=(level or "").upper(), drop=drops, node=node)  # type: ignore[arg-type]

    def printed(log: _RunLog | _SessionLog) -> Exit:
        if drop is None:
            return _print_log(output, log, query, last, follow=follow, with_drop=True)
        if is_whole:
            return _log_of_drop(output, log, drop)
        of_drop = msgspec.structs.replace(query, oid=log.oid(drop))
        return _print_log(output, log, of_drop, last, follow=follow, with_drop=False)

    if run is not None:
        refuse_without_run(run)
        if is_run_directory(run):
            if node:
                raise UsageError(f"--node is for sessions: {run} is the directory of a run", hint="leave it out")
            return printed(_RunLog(run))
    with closing(_connected(manager, patience if follow else 0.0)) as client:
        if run is not None:
            return printed(_SessionLog(client, run))
        own = msgspec.structs.replace(query, node="")
        return _print_log(output, _ManagerLog(client, of_manager), own, last, follow=follow, with_drop=True)


def _connected(manager: ConnectionOptions, patience: float) -> "PatientClient":
    """Return a client that asks a manager that is away again; a wrong address or credential is reported now."""
    from dropflow.api.operations import INFO
    from dropflow.api.patience import PatientClient
    from dropflow.submission.connection import connect_to, manager_url

    client = PatientClient(partial(connect_to, manager_url(manager), manager), seconds=patience)
    if patience:
        client.client.call(INFO)
    return client


class _RunLog:
    """The log of a run in a directory on this machine."""

    def __init__(self, run: str) -> None:
        from dropflow.graph.codec import load
        from managers.node.session_log import SessionLogs, name_in

        self.whose = {"session": run}
        self._run = Path(run)
        refuse_other_directory(self._run)
        self._graph = load(self._run / GRAPH_FILE)
        self._logs, self._name_of = SessionLogs(), partial(name_in, self._graph)

    def page(self, query: "LogQuery") -> "LogPage":
        """Return a page of it."""
        return self._logs.page(str(self._run / "logs"), "local", query, self._name_of, is_over=self.is_over())

    def is_over(self) -> bool:
        """Return whether no more lines can come."""
        return not SessionLock.is_held(self._run)

    def oid(self, drop: str) -> str:
        """Return the text id of a drop."""
        from dropflow.graph.text_ids import find_drop, oid

        return oid(self._graph, find_drop(self._graph, drop))

    def chunks(self, drop: str) -> Iterable[bytes]:
        """Return the log of a drop."""
        from managers.node.session_log import log_download

        return log_download(self._run / "logs", self.oid(drop), where=str(self._run)).chunks


class _SessionLog:
    """The log of a session."""

    def __init__(self, client: "PatientClient", session: str) -> None:
        self.whose = {"session": session}
        self._client = client
        self._session = session

    def page(self, query: "LogQuery") -> "LogPage":
        """Return a page of it."""
        return self._client.ask(lambda client: client.session_log(self._session, query))

    def is_over(self) -> bool:
        """Return whether no more lines can come."""
        return self._client.ask(lambda client: client.session(self._session)).is_over

    def oid(self, drop: str) -> str:
        """Return the text id of a drop."""
        return self._client.ask(lambda client: client.drop(self._session, drop)).oid

    def chunks(self, drop: str) -> Iterable[bytes]:
        """Return the log of a drop."""
        return self._client.ask(lambda client: client.log(self._session, drop)).chunks


class _ManagerLog:
    """The log of a manager."""

    def __init__(self, client: "PatientClient", name: str) -> None:
        self.whose = {"manager": name}
        self._client = client
        self._name = name

    def page(self, query: "LogQuery") -> "LogPage":
        """Return a page of it."""
        return self._client.ask(lambda client: client.manager_log(self._name, query))

    def is_over(self) -> bool:
        """Return False: more lines can always come."""
        return False


def _print_log(
    output: CommandOutput,
    log: _RunLog | _SessionLog | _ManagerLog,
    query: "LogQuery",
    last: int | None,
    *,
    follow: bool,
    with_drop: bool,
) -> Exit:
    one_answer = output.kind is OutputKind.JSON and not follow
    printer = _Printer(output, with_drop=with_drop, keep=one_answer)
    status = Exit.FINISHED
    try:
        cursor = LOG_START if last is None else _print_last(log, query, last, printer)
        _print_on(log, query, cursor, printer, follow=follow)
    except KeyboardInterrupt:
        status = Exit.INTERRUPTED
    else:
        status = Exit.FAILED if printer.silent else Exit.FINISHED
    if one_answer:
        reply = LogRecordsReply(ok=status is Exit.FINISHED, records=tuple(printer.kept), missing=sorted(printer.silent))
        output.answer(msgspec.structs.replace(reply, **log.whose))
    return status


def _log_of_drop(output: CommandOutput, log: _RunLog | _SessionLog, drop: str) -> Exit:
    chunks = log.chunks(drop)
    if output.kind is OutputKind.TABLE:
        # To a file or another program, the log goes as it is.
        shown = printable_chunks(chunks) if sys.stdout.isatty() else chunks
        for chunk in shown:  # a log may be larger than memory
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    else:
        output.answer(LogReply(session=log.whose["session"], drop=drop, log=b"".join(chunks).decode(errors="replace")))
    return Exit.FINISHED


class _Printer:
    """Prints pages of lines.

    Attributes
    ----------
    silent : set of str
        Nodes that did not answer the last time.
    kept : list of LogLine
        The lines, if they are kept instead of printed.
    """

    def __init__(self, output: CommandOutput, *, with_drop: bool, keep: bool) -> None:
        self.silent: set[str] = set()
        self.kept: list[LogLine] = []
        self._keep = keep
        self._output = output
        self._with_drop = with_drop

    def show(self, page: "LogPage") -> None:
        """Print the lines of a page, and name nodes that did not answer."""
        for node in page.missing:
            if node not in self.silent:
                self._output.note(f"{node} did not answer: its lines are missing, or come later")
        self.silent = set(page.missing)
        if self._keep:
            self.kept += page.lines
        elif page.lines and self._output.kind is not OutputKind.QUIET:
            encoded = "".join(f"{self._format(line)}\n" for line in page.lines).encode(errors="replace")
            sys.stdout.buffer.write(encoded)
            sys.stdout.buffer.flush()

    def _format(self, line: "LogLine") -> str:
        from dropflow.api.logs import format_line
        from dropflow.formatting import format_stamp

        if self._output.kind is OutputKind.JSON:
            return msgspec.json.encode(line).decode()
        moment = format_stamp(line.time)
        shown = format_line(line, moment) if self._with_drop else f"{moment} {line.level:<7} {line.text}"
        return printable(shown)


def _print_last(log: _RunLog | _SessionLog | _ManagerLog, query: "LogQuery", last: int, printer: _Printer) -> str:
    """Print the last lines, and return the cursor of those that follow."""
    pages: list[LogPage] = []
    wanted, end = msgspec.structs.replace(query, limit=max(min(last, _PAGE_LINES), 1)), ""
    while True:
        page = log.page(wanted)
        end = end or page.newer
        pages.append(page)
        left = last - sum(len(page.lines) for page in pages)
        if left <= 0 or page.is_first:
            break
        wanted = msgspec.structs.replace(wanted, before=page.older, limit=min(left, _PAGE_LINES))
    if last:
        for page in reversed(pages):
            printer.show(page)
    return end or LOG_START


def _print_on(
    log: _RunLog | _SessionLog | _ManagerLog, query: "LogQuery", cursor: str, printer: _Printer, *, follow: bool
) -> None:
    """Print the lines after a cursor; with `follow`, until the session is over."""
    is_over, again = False, 0
    while True:
        seconds = _POLL_SECONDS if follow and not is_over else 0.0
        page = log.page(msgspec.structs.replace(query, after=cursor, limit=_PAGE_LINES, seconds=seconds))
        printer.show(page)
        is_same, cursor = page.newer in ("", cursor), page.newer or cursor
        if not page.is_last and not is_same:
            continue
        again += 1 if is_over and page.missing else 0
        if not follow or (is_over and not page.lines and (not page.missing or again > _ASKED_AGAIN)):
            return
        if not page.lines:
            is_over = log.is_over()
