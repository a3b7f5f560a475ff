"""Files that commands write: traces, pictures, reports and graphs."""

import errno
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dropflow.errors import BadFileError

__all__ = ["check_targets", "replacing"]

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
    from dropflow.times.picture import has_png

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
