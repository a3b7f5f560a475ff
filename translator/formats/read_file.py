"""Reading of graph files, with clear errors."""

from pathlib import Path

from dropflow.errors import BadFileError
from translator.options import ReadOptions


def read_file(path: Path, options: ReadOptions | None = None) -> bytes:
    """Return the bytes of a graph file.

    Parameters
    ----------
    path : Path
        A regular file or a pipe.
    options : ReadOptions, optional
        At most `max_bytes` are read.

    Raises
    ------
    BadFileError
        There is no such file, it is a directory, there is no permission to read it, or it is too large.
    """
    limit = (options or ReadOptions()).max_bytes
    where = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise BadFileError("there is no such file", where=where, hint=_neighbour(path)) from None
    except IsADirectoryError:
        raise BadFileError("this is a directory", where=where, hint="give a graph file in it") from None
    except PermissionError:
        raise BadFileError("no permission to read this file", where=where, hint="check its owner and mode") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadFileError(f"the file cannot be read: {reason}", where=where) from error
    if len(data) > limit:
        raise BadFileError(
            f"the file has more than the {limit:,} bytes that are allowed",
            where=where,
            hint="give the logical graph, which is small, or a .dfg file",
        )
    return data


def _neighbour(path: Path) -> str:
    """Return a hint with a similar name in the directory."""
    from difflib import get_close_matches  # noqa: PLC0415 - only needed for a message

    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f"there is no directory {path.parent} either"
    near = get_close_matches(path.name, names, 1)
    return f"did you mean {near[0]!r}?" if near else "check the spelling"
