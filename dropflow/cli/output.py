"""One answer, three ways to give it: a table for people, JSON for programs, nothing but trouble for scripts.

Standard output carries the answer and nothing else; notes, progress and refusals go to standard error. With ``json``
a refusal is an answer too: one object on standard output, whatever happened.
"""

import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import Protocol

import msgspec

__all__ = ["JsonOutput", "Output", "OutputKind", "QuietOutput", "Reply", "TableOutput", "output_for"]


class OutputKind(StrEnum):
    """Values of ``--output``."""

    TABLE = "table"
    JSON = "json"
    QUIET = "quiet"


class Reply(Protocol):
    """What a command answers: a frozen struct with a text form."""

    @property
    def ok(self) -> bool:
        """Whether what was asked was done."""
        ...

    def lines(self) -> Iterator[str]:
        """The answer for people, line by line."""
        ...


class Output(Protocol):
    """Where answers, refusals and notes go."""

    kind: OutputKind

    def answer(self, reply: Reply) -> None:
        """Give the answer of the command."""
        ...

    def refuse(self, reply: Reply) -> None:
        """Say why there is no answer."""
        ...

    def note(self, text: str) -> None:
        """Say something on the side."""
        ...


class TableOutput:
    """For people."""

    kind = OutputKind.TABLE

    def answer(self, reply: Reply) -> None:
        """Print the lines of the answer."""
        for line in reply.lines():
            sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def refuse(self, reply: Reply) -> None:
        """Print the lines of the refusal to standard error."""
        _complain(reply)

    def note(self, text: str) -> None:
        """Print one line to standard error."""
        sys.stderr.write(text + "\n")


class JsonOutput:
    """For programs: exactly one JSON object on standard output, on one line."""

    kind = OutputKind.JSON

    def answer(self, reply: Reply) -> None:
        """Print the answer as JSON."""
        sys.stdout.write(msgspec.json.encode(reply).decode() + "\n")
        sys.stdout.flush()

    def refuse(self, reply: Reply) -> None:
        """Print the refusal as JSON."""
        self.answer(reply)

    def note(self, text: str) -> None:
        """Print one line to standard error."""
        sys.stderr.write(text + "\n")


class QuietOutput:
    """For scripts that look at the exit status: silent unless something is wrong."""

    kind = OutputKind.QUIET

    def answer(self, reply: Reply) -> None:
        """Print an answer only if it is a bad one."""
        if not reply.ok:
            _complain(reply)

    def refuse(self, reply: Reply) -> None:
        """Print the lines of the refusal to standard error."""
        _complain(reply)

    def note(self, text: str) -> None:
        """Say nothing."""


def output_for(kind: str) -> Output:
    """The output called `kind`."""
    outputs: dict[OutputKind, type[TableOutput | JsonOutput | QuietOutput]] = {
        OutputKind.TABLE: TableOutput,
        OutputKind.JSON: JsonOutput,
        OutputKind.QUIET: QuietOutput,
    }
    return outputs[OutputKind(kind)]()


def _complain(reply: Reply) -> None:
    for line in reply.lines():
        sys.stderr.write(line + "\n")
    sys.stderr.flush()
