"""Files of traces and pictures that commands write."""

from pathlib import Path

__all__ = ["check_targets"]


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
