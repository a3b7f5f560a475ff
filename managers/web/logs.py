"""Texts on pages: the end of a log, the beginning of a download, and code with coloured words."""

import keyword
import re
from contextlib import closing

import msgspec

from dropflow.api.contents import Download

__all__ = [
    "LogTail",
    "code_lines",
    "read_start",
    "tail_of",
]


_LOG_SHOWN = 64 * 1024
_LOG_READ = 16 * 1024 * 1024


class LogTail(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a log. `is_cut`: there is more before it. `is_open`: there is more after it."""

    text: str
    is_cut: bool = False
    is_open: bool = False


def tail_of(download: Download) -> LogTail:
    """Return the last 64 KiB of a log, from the start of a line. At most 16 MiB of the log are read."""
    kept, read, is_open = bytearray(), 0, False
    with closing(download):
        for chunk in download.chunks:
            kept += chunk
            read += len(chunk)
            if len(kept) > 2 * _LOG_SHOWN:
                del kept[:-_LOG_SHOWN]
            if read >= _LOG_READ:
                is_open = True
                break
    is_cut = read > _LOG_SHOWN
    shown = bytes(kept[-_LOG_SHOWN:])
    if is_cut and b"\n" in shown:
        shown = shown.partition(b"\n")[2]
    return LogTail(text=shown.decode("utf-8", "replace"), is_cut=is_cut, is_open=is_open)


def read_start(download: Download, limit: int) -> bytes:
    """Return at most the first `limit` bytes, without fetching the rest."""
    found = bytearray()
    with closing(download):
        for chunk in download.chunks:
            found += chunk
            if len(found) >= limit:
                break
    return bytes(found[:limit])


# Splits text into lines, and code into words to be coloured. Code is only read, never parsed or
# executed.

_LIMIT = 200_000
_WORDS = frozenset(keyword.kwlist) | {"match", "case", "self"}
_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<text>[rbfuRBFU]{0,2}(?:\"\"\"(?:[^\\"]|\\.|"(?!""))*+(?:\"\"\")?|'''(?:[^\\']|\\.|'(?!''))*+(?:''')?
        |"(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?))
    |(?P<number>\b\d[\w.]*)
    |(?P<name>(?<=def[ ])\w+|(?<=class[ ])\w+|@[\w.]+)
    |(?P<word>[^\W\d]\w*)""",
    re.VERBOSE | re.DOTALL,
)

CodeLine = list[tuple[str, str]]
"""Pieces of a line: a style, ``word``, ``text``, ``number``, ``name``, ``comment`` or empty, and the piece."""


def code_lines(text: str, *, is_code: bool) -> list[CodeLine]:
    """Return the lines of a text; of code, in pieces with a style.

    Parameters
    ----------
    is_code : bool
        Whether it is Python code, or alike.
    """
    text = text.replace("\r\n", "\n").rstrip("\n")
    if not is_code or len(text) > _LIMIT:
        return [[("", line)] for line in text.split("\n")]
    lines: list[CodeLine] = [[]]
    at = 0
    for found in _TOKEN.finditer(text):
        style = found.lastgroup or ""
        if style == "word" and found[0] not in _WORDS:
            continue
        _add(lines, "", text[at : found.start()])
        _add(lines, style, found[0])
        at = found.end()
    _add(lines, "", text[at:])
    return lines


def _add(lines: list[CodeLine], style: str, piece: str) -> None:
    first, *rest = piece.split("\n")
    if first:
        lines[-1].append((style, first))
    lines.extend([(style, one)] if one else [] for one in rest)
