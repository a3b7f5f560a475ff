r"""The three forms of output: a table for people, JSON for programs, only errors for scripts.

Standard output gets the answer and nothing else; notes, progress and errors go to standard error. With ``json``
standard output gets exactly one object, also for an error. Names and texts of users may have any character: control
characters are printed as ``\x1b``, also into pipes, which often end at a terminal.
"""

import shlex
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, ClassVar, Protocol

import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.errors import (
    BadFileError,
    BadGraphError,
    ClockSkewError,
    DropflowError,
    HttpError,
    InternalError,
    LinkError,
    NoManagerError,
    StorageError,
    UsageError,
)
from dropflow.failure import Problem, Severity
from dropflow.files import DISK_FULL, behind_link, replacing
from dropflow.formatting import plural, printable

_QUIET_ERROR_LINES = 8
"""Lines of an error that ``--output quiet`` prints."""
_SHOWN_PROBLEMS = 50
"""Problems of a graph that are printed, the worst first."""


class OutputKind(StrEnum):
    """Values of ``--output``."""

    TABLE = "table"
    JSON = "json"
    QUIET = "quiet"


class Reply(Protocol):
    """The answer of a command: a frozen struct with a text form."""

    @property
    def ok(self) -> bool:
        """Whether the command succeeded."""
        ...

    def lines(self) -> Iterator[str]:
        """Return the answer for people, line by line."""
        ...


class CommandOutput:
    """Prints answers, errors and notes for people."""

    kind: ClassVar[OutputKind] = OutputKind.TABLE

    def answer(self, reply: Reply) -> None:
        """Print the lines of the answer."""
        for line in reply.lines():
            sys.stdout.write(printable(line) + "\n")
        sys.stdout.flush()

    def error(self, reply: Reply) -> None:
        """Print the lines of the error to standard error."""
        for line in reply.lines():
            sys.stderr.write(printable(line) + "\n")
        sys.stderr.flush()

    def note(self, text: str) -> None:
        """Print one line that is not part of the answer to standard error; a file on a full disk does not get it."""
        try:
            sys.stderr.write(printable(text) + "\n")
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise


class JsonOutput(CommandOutput):
    """Output for programs: exactly one JSON object on standard output, on one line."""

    kind = OutputKind.JSON

    def answer(self, reply: Reply) -> None:
        """Print the answer as JSON."""
        try:
            text = msgspec.json.encode(reply).decode()
        except UnicodeEncodeError:  # a name of a file is no UTF-8: its bytes are escaped, as Python reads them
            import json

            text = json.dumps(msgspec.to_builtins(reply))
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def error(self, reply: Reply) -> None:
        """Print the error as JSON."""
        self.answer(reply)


class QuietOutput(CommandOutput):
    """Output for scripts that check the exit status: silent unless something is wrong, and brief then."""

    kind = OutputKind.QUIET

    def error(self, reply: Reply) -> None:
        """Print the first lines of the error to standard error."""
        lines = list(reply.lines())
        for line in lines[:_QUIET_ERROR_LINES]:
            sys.stderr.write(printable(line) + "\n")
        if len(lines) > _QUIET_ERROR_LINES:
            sys.stderr.write(f"... and {len(lines) - _QUIET_ERROR_LINES} more lines with --output table\n")
        sys.stderr.flush()

    def answer(self, reply: Reply) -> None:
        """Print the answer to standard error if the command did not succeed."""
        if not reply.ok:
            self.error(reply)

    def note(self, text: str) -> None:
        """Print nothing."""


_FORMS: tuple[type[CommandOutput], ...] = (CommandOutput, JsonOutput, QuietOutput)


def output_for(kind: str) -> CommandOutput:
    """Return the output called `kind`."""
    return next(form() for form in _FORMS if form.kind == kind)


# The reply of a command that failed: the one shape of errors, and the exit status for each.


class ErrorText(msgspec.Struct, frozen=True, kw_only=True):
    """One error: its stable code, its class, what is wrong, where, and what to do."""

    code: str
    kind: str
    text: str
    where: str = ""
    hint: str = ""


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    """Why a command failed. `problems` are all problems of the graph, if the graph is the reason."""

    ok: bool = False
    error: ErrorText
    problems: tuple[Problem, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the error, or all problems of the graph."""
        if self.problems:
            yield from problem_lines(self.problems)
            errors = sum(problem.severity is Severity.ERROR for problem in self.problems)
            yield f"not usable: {plural(errors, 'error')}"
            return
        where = f"{self.error.where}: " if self.error.where else ""
        yield f"error {self.error.code}: {where}{self.error.text}"
        if self.error.hint:
            yield f"  {self.error.hint}"


def problem_lines(problems: Iterable[Problem], *, least: Severity = Severity.INFO) -> Iterator[str]:
    """Yield problems of at least the severity `least`, the worst first, with their places and hints; at most fifty."""
    order = list(Severity)
    wanted = [problem for problem in problems if order.index(problem.severity) <= order.index(least)]
    for problem in sorted(wanted, key=lambda problem: order.index(problem.severity))[:_SHOWN_PROBLEMS]:
        where = f" {problem.where}" if problem.where else ""
        yield f"{problem.severity} {problem.code}{where}: {problem.text}"
        if problem.hint:
            yield f"  {problem.hint}"
    if len(wanted) > _SHOWN_PROBLEMS:
        yield f"... and {len(wanted) - _SHOWN_PROBLEMS} more (--output json has them all)"


def graph_problems(error: DropflowError) -> tuple[Problem, ...]:
    """Return the problems of a graph that an error carries."""
    problems = error.problems if isinstance(error, BadGraphError) else ()
    return tuple(problem for problem in problems if isinstance(problem, Problem))


def error_reply(error: BaseException, *, debug: bool = False) -> ErrorReply:
    """Return the reply for `error`; with `debug`, the reply for an internal error has the traceback."""
    if isinstance(error, DropflowError):
        text = ErrorText(
            code=error.code, kind=type(error).__name__, text=error.text, where=error.where, hint=error.hint
        )
        return ErrorReply(error=text, problems=graph_problems(error))
    if isinstance(error, OSError):
        text = ErrorText(
            code=StorageError.code,
            kind=type(error).__name__,
            text=error.strerror or str(error),
            where=str(error.filename or ""),
        )
        return ErrorReply(error=text)
    trace = "".join(traceback.format_exception(error)) if debug else f"{type(error).__name__}: {error}"
    return ErrorReply(
        error=ErrorText(
            code=InternalError.code,
            kind=type(error).__name__,
            text=f"internal error: {trace}",
            hint="this is a bug of dropflow: please report it with the graph and the output of the same command "
            "with --debug",
        )
    )


def exit_for_error(error: BaseException) -> Exit:
    """Return the exit status for `error`."""
    if isinstance(error, NoManagerError):
        return Exit.NO_MANAGER
    if isinstance(error, UsageError) or (
        isinstance(error, HttpError) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
    ):
        return Exit.BAD_INPUT
    if isinstance(error, HttpError | LinkError | ClockSkewError):
        return Exit.UNKNOWN
    if isinstance(error, OSError) or (isinstance(error, DropflowError) and error.retryable):
        return Exit.FAILED
    return Exit.INTERNAL_ERROR


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that the user named, as `dropflow.files.replacing` does.

    Raises
    ------
    BadFileError
        It cannot be written.
    """
    try:
        with replacing(behind_link(path)) as stream:
            yield stream
    except OSError as error:
        hint = "make room, or name another file" if error.errno in DISK_FULL else "name another file"
        raise BadFileError(f"cannot be written: {error.strerror or error}", where=str(path), hint=hint) from error


# Text for people: aligned columns, and commands to paste into a shell.


def columns(rows: Sequence[Sequence[object]], *, header: Sequence[str] = (), indent: str = "  ") -> Iterator[str]:
    """Yield `rows` as aligned columns, numbers to the right; every line starts with `indent`."""
    cells = [[_cell(value) for value in row] for row in rows]
    shown = [list(header), *cells] if header else cells
    if not shown:
        return
    widths = [max(len(row[column]) for row in shown) for column in range(len(shown[0]))]
    right = [bool(rows) and all(isinstance(row[column], int | float) for row in rows) for column in range(len(widths))]
    for row in shown:
        fitted = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        yield (indent + "  ".join(fitted)).rstrip()


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def shell_command(command: str, *names: str) -> str:
    """Return ``dropflow COMMAND NAME...`` quoted for a shell; names that begin with a dash come after ``--``."""
    marked = ["--", *names] if any(name.startswith("-") for name in names) else names
    return shlex.join(["dropflow", command, *marked])
