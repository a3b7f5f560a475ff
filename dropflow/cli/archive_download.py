"""Download the results of a session into one tar or zip file."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from dropflow.api.client import Client
from dropflow.api.requests import ArchiveQuery
from dropflow.cli.progress import transfer_progress
from dropflow.errors import LinkError, StorageError
from dropflow.formatting import format_size

__all__ = ["ArchiveReply", "download_archive"]


class ArchiveReply(msgspec.Struct, frozen=True, kw_only=True):
    """The archive that is here now."""

    ok: bool = True
    session: str
    output: str
    format: str
    bytes: int

    def lines(self) -> Iterator[str]:
        """Its size and place."""
        yield f"{format_size(self.bytes)} in {self.output}"


def download_archive(
    client: Client, session: str, format_: Literal["tar", "zip"], target: Path, *, quiet: bool
) -> ArchiveReply:
    """Write an archive of all results; it has its name when it is whole.

    Raises
    ------
    LinkError
        Something is missing, or the connection broke. What arrived is beside it, with ``.incomplete`` appended.
    StorageError
        It cannot be written.
    """
    incomplete = target.with_name(f"{target.name}.incomplete")
    size = 0
    try:
        with transfer_progress(0, 0, quiet=quiet) as count:
            chunks = client.archive(session, ArchiveQuery(format=format_)).chunks
            with incomplete.open("wb") as stream:
                try:
                    for chunk in chunks:
                        stream.write(chunk)
                        size += len(chunk)
                        count(0, len(chunk))
                except LinkError as error:
                    raise LinkError(
                        f"the archive is not complete: {error}",
                        where=str(incomplete),
                        hint="MISSING.txt at its end names what is missing, if the manager could write it; a fetch "
                        "into a directory gets the rest, and can be continued",
                    ) from error
        os.replace(incomplete, target)  # noqa: PTH105 - over a file that is there
    except OSError as error:
        with suppress(OSError):
            incomplete.unlink(missing_ok=True)
        raise StorageError(f"the archive cannot be stored: {error.strerror}", where=str(target)) from error
    return ArchiveReply(session=session, output=str(target), format=format_, bytes=size)
