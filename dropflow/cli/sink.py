"""Where a physical graph goes: a file, or standard output; as ``.dfg`` or as DALiuGE's JSON."""

import secrets
import sys
from pathlib import Path

from dropflow.errors import UsageError
from dropflow.graph.codec import dump
from dropflow.graph.interchange import write_pg
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph_file import save

__all__ = ["format_for", "write_graph"]


_FORMATS = {".dfg": "dfg", ".json": "json", ".pg": "json", ".pgt": "json"}


def format_for(target: str, wanted: str | None) -> str:
    """Return ``dfg`` or ``json``: as wanted, else by the suffix of the file; standard output gets JSON.

    Called before anything is translated, so that a mistake does not cost the time of that.

    Raises
    ------
    UsageError
        A graph cannot be written there, or the suffix is not known and no format is wanted.
    """
    path = Path(target)
    if target == "-":
        return wanted or "json"
    if path.exists() and not path.is_file():
        raise UsageError("this is not a regular file", where=target, hint="name a file for -o")
    if not path.parent.is_dir():
        raise UsageError("there is no such directory", where=str(path.parent), hint="make it, or name another file")
    suffix = path.suffix.lower()
    if wanted is None and suffix not in _FORMATS:
        raise UsageError(
            f"{suffix!r} is not the suffix of a graph" if suffix else "the name of the file has no suffix",
            where=target,
            hint=f"use {', '.join(_FORMATS)}, or --format dfg or --format json with any name",
        )
    return wanted or _FORMATS[suffix]


def write_graph(graph: PhysicalGraph, target: str, wanted: str | None) -> None:
    """Write `graph` to the file `target`, whole or not at all, or to standard output if that is ``-``.

    Raises
    ------
    UsageError
        The file cannot be written there, or a terminal would get the bytes of a ``.dfg`` file.
    """
    form = format_for(target, wanted)
    if target == "-":
        _write_out(graph, form)
        return
    path = Path(target)
    if form == "dfg":
        save(graph, path)
        return
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with unfinished.open("xb") as stream:
            write_pg(graph, stream)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _write_out(graph: PhysicalGraph, form: str) -> None:
    if form == "json":
        write_pg(graph, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    if sys.stdout.isatty():
        raise UsageError("a terminal cannot show a .dfg file", hint="write it to a file with -o, or use --format json")
    for buffer in dump(graph):
        sys.stdout.buffer.write(buffer)
    sys.stdout.buffer.flush()
