"""The log of a session or a manager as text, page by page."""

from collections.abc import Callable, Iterator

import msgspec

from dropflow.formatting import format_stamp
from dropflow.logs.records import LogPage, LogQuery, LogTextQuery, format_line

__all__ = ["log_text"]

_PAGE = 5000
_START = "-:-1"
"""A cursor before all lines of any node: no node is called so."""


def log_text(read: Callable[[LogQuery], LogPage], query: LogTextQuery) -> Iterator[bytes]:
    """Yield the lines that match and are there now, the oldest first.

    Nodes that do not answer are named in the first line, or where they fail to answer. Raises as `read`, which returns
    a page, also while it is read.
    """
    wanted = LogQuery(**msgspec.structs.asdict(query), after=_START, limit=_PAGE)
    silent: set[str] = set()
    while True:
        page = read(wanted)
        yield _text(page, silent)
        silent.update(page.missing)
        if page.is_last or page.newer == wanted.after:
            return
        wanted = msgspec.structs.replace(wanted, after=page.newer)


def _text(page: LogPage, silent: set[str]) -> bytes:
    missing = [f"[lines of node {node} are missing: it did not answer]" for node in page.missing if node not in silent]
    lines = [format_line(line, format_stamp(line.time)) for line in page.lines]
    return "".join(f"{line}\n" for line in (*missing, *lines)).encode(errors="replace")
