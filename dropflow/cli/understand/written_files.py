"""Files that commands write in one of several forms: traces, pictures, reports, measurements and answers."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, output_file
from dropflow.errors import UsageError
from dropflow.formatting import format_size


class _Form(msgspec.Struct, frozen=True):
    """A form of files: its text for `--help`, and the suffixes that choose it."""

    help: str
    suffixes: tuple[str, ...] = ()


_FORMS = {
    "trace": _Form("trace (JSON for https://ui.perfetto.dev)"),
    "otlp": _Form("otlp (JSON for an OpenTelemetry collector)"),
    "svg": _Form("svg (a picture)", (".svg",)),
    "html": _Form("html (a report with graph, timeline, failures, times, parameters and versions)", (".html", ".htm")),
    "json": _Form("json (the answer)", (".json",)),
    "profile": _Form("profile (measurements, .npz, for --profile of other commands)", (".npz",)),
}


class WrittenReply(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was written of a run or a plan, and its size in bytes."""

    ok: bool = True
    run: str
    form: str
    file: str
    size: int

    def lines(self) -> Iterator[str]:
        """One line."""
        yield f"{self.file}: {format_size(self.size)}, {self.form} of {self.run}"


def file_options(*forms: str) -> Callable[[Callable[..., Exit]], Callable[..., Exit]]:
    """Return the options about a file that a command writes in one of several forms: `form` and `target`."""

    def decorate(function: Callable[..., Exit]) -> Callable[..., Exit]:
        texts = ", ".join(_FORMS[form].help for form in forms)
        help_text = f"Write a file: {texts}. Without it, the suffix of -o FILE gives the form."
        function = click.option("--format", "form", type=click.Choice(forms), help=help_text)(function)
        return click.option("-o", "target", metavar="FILE", help="Write to FILE; - is standard output.")(function)

    return decorate


def file_form(form: str | None, target: str | None, *forms: str) -> str | None:
    """Return the form of the file to write; None if none is wanted. Called before anything is computed.

    Raises
    ------
    UsageError
        The suffix names no form, there is no such directory, or standard output cannot take it.
    """
    if target is None and form is None:
        return None
    path = Path(target or "-")
    by_suffix = {suffix: name for name in forms for suffix in _FORMS[name].suffixes}
    chosen = form or by_suffix.get(path.suffix.lower())
    if chosen is None:
        hint = f"end it with {', '.join(by_suffix)}, or give --format {', '.join(forms)}"
        raise UsageError("the form of the file is not known", where=str(target), hint=hint)
    if chosen == "profile" and str(path) == "-":
        raise UsageError("measurements are not a text", where="--format profile", hint="name a file with -o FILE.npz")
    if not path.parent.is_dir():
        raise UsageError("no such directory", where=str(path.parent), hint="make it, or name another file")
    if path.is_dir():
        raise UsageError("not a regular file", where=str(path), hint="name a file")
    return chosen


def write_file(
    output: CommandOutput, run: str, form: str, target: str | None, write: Callable[[BinaryIO], object]
) -> None:
    """Write a file, and answer with its size; on standard output, it takes the place of the answer."""
    if target in (None, "-"):
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    file = str(target)
    with output_file(Path(file)) as stream:
        write(stream)
    output.answer(WrittenReply(run=run, form=form, file=file, size=Path(file).stat().st_size))
