r"""The three forms of output: a table for people, JSON for programs, only errors for scripts.

Standard output gets the answer and nothing else; notes, progress and errors go to standard error. With ``json``
standard output gets exactly one object, also for an error. Names and texts of users may have any character: control
characters are printed as ``\x1b``, also into pipes, which often end at a terminal.
"""

import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar, Protocol

import msgspec

from dropflow.formatting import printable

__all__ = ["CommandOutput", "JsonOutput", "OutputKind", "QuietOutput", "Reply", "output_for"]


_MOST_QUIET = 8


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
        """The answer for people, line by line."""
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
        """Print one line that is not part of the answer to standard error."""
        sys.stderr.write(printable(text) + "\n")


class JsonOutput(CommandOutput):
    """For programs: exactly one JSON object on standard output, on one line."""

    kind = OutputKind.JSON

    def answer(self, reply: Reply) -> None:
        """Print the answer as JSON."""
        sys.stdout.write(msgspec.json.encode(reply).decode() + "\n")
        sys.stdout.flush()

    def error(self, reply: Reply) -> None:
        """Print the error as JSON."""
        self.answer(reply)


class QuietOutput(CommandOutput):
    """For scripts that check the exit status: silent unless something is wrong, and brief then."""

    kind = OutputKind.QUIET

    def error(self, reply: Reply) -> None:
        """Print the first lines of the error to standard error."""
        lines = list(reply.lines())
        for line in lines[:_MOST_QUIET]:
            sys.stderr.write(printable(line) + "\n")
        if len(lines) > _MOST_QUIET:
            sys.stderr.write(f"... and {len(lines) - _MOST_QUIET} more lines with --output table\n")
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
