"""The end of a log and the beginning of the content of a drop, as much as fits on a page.

Content is never executed or unpickled. If it is neither text nor a picture that browsers draw safely, it is shown as a
hexadecimal dump.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from dropflow.rest.schema import Download

__all__ = ["PICTURE_LIMIT", "LogTail", "Preview", "picture_type", "preview_of", "read_start", "tail_of"]

PICTURE_LIMIT = 8 * 1024 * 1024
"""Bytes of the largest picture that a page shows."""

_TEXT_LIMIT = 16 * 1024
_DUMP_LIMIT = 512
_DUMP_ROW = 16
_LOG_SHOWN = 64 * 1024
_LOG_READ = 16 * 1024 * 1024
_FITS_CARD = 80
_FITS_CARDS = 72

# SVG is not in the list: it is a document that can contain scripts.
_PICTURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
)
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f]")


class LogTail(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a log. `is_cut`: there is more before it. `is_open`: there is more after it."""

    text: str
    is_cut: bool = False
    is_open: bool = False


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of the content of a drop.

    Attributes
    ----------
    kind : str
        ``text``, ``header`` (of a FITS file), ``picture``, ``dump`` (bytes in hexadecimal) or ``nothing`` (empty).
    text : str
        What to show; empty for a picture.
    size : int or None
        Bytes of the whole content, if known.
    is_cut : bool
        Whether there is more.
    """

    kind: Literal["text", "header", "picture", "dump", "nothing"]
    text: str = ""
    size: int | None = None
    is_cut: bool = False


def tail_of(download: Download) -> LogTail:
    """Return the last 64 KiB of a log, from the start of a line. At most 16 MiB of the log are read."""
    kept, read, is_open = bytearray(), 0, False
    with _closing(download.chunks) as chunks:
        for chunk in chunks:
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


def preview_of(download: Download) -> Preview:
    """Return a preview of a content."""
    start = read_start(download, _TEXT_LIMIT + 1)
    is_cut = len(start) > _TEXT_LIMIT
    total = download.size if download.size is not None else None if is_cut else len(start)
    if not start:
        return Preview(kind="nothing", size=total)
    if picture_type(start) and (total is None or total <= PICTURE_LIMIT):
        return Preview(kind="picture", size=total)
    if start.startswith(b"SIMPLE  ="):
        return Preview(kind="header", text=_fits_header(start), size=total, is_cut=True)
    text = _as_text(start[:_TEXT_LIMIT])
    if text is not None:
        return Preview(kind="text", text=text, size=total, is_cut=is_cut)
    dumped = start[:_DUMP_LIMIT]
    return Preview(kind="dump", text=_dump(dumped), size=total, is_cut=len(start) > len(dumped))


def read_start(download: Download, limit: int) -> bytes:
    """Return at most the first `limit` bytes, without fetching the rest."""
    found = bytearray()
    with _closing(download.chunks) as chunks:
        for chunk in chunks:
            found += chunk
            if len(found) >= limit:
                break
    return bytes(found[:limit])


def picture_type(start: bytes) -> str:
    """Return the media type of a picture that browsers draw and that contains no scripts, or nothing."""
    return next((name for pattern, name in _PICTURES if pattern.match(start)), "")


@contextlib.contextmanager
def _closing(chunks: Iterator[bytes]) -> Iterator[Iterator[bytes]]:
    try:
        yield chunks
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()


def _as_text(start: bytes) -> str | None:
    try:
        text = start.decode("utf-8")
    except UnicodeDecodeError as error:
        # The cut may be inside a character; any other error means that it is not text.
        if error.start < len(start) - 3 or error.reason != "unexpected end of data":
            return None
        text = start[: error.start].decode("utf-8")
    return None if _CONTROLS.search(text) else text


def _fits_header(start: bytes) -> str:
    """Return the cards of the primary header of a FITS file.

    They have 80 ASCII characters each, up to END (standard 4.0, section 4.1).
    """
    cards = [start[at : at + _FITS_CARD] for at in range(0, min(len(start), _FITS_CARD * _FITS_CARDS), _FITS_CARD)]
    lines = [card.decode("ascii", "replace").rstrip() for card in cards]
    return "\n".join(lines[: lines.index("END") + 1] if "END" in lines else lines)


def _dump(content: bytes) -> str:
    rows = []
    for at in range(0, len(content), _DUMP_ROW):
        row = content[at : at + _DUMP_ROW]
        signs = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)  # noqa: PLR2004 - printable ASCII
        rows.append(f"{at:06x}  {row.hex(' '):<47}  {signs}")
    return "\n".join(rows)
