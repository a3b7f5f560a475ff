"""Texts on pages: the end of a log, and the beginning of a download."""

from contextlib import closing

import msgspec

from dropflow.api.contents_answer import Download

_SHOWN_BYTES = 64 * 1024
"""Bytes at the end of a log that a page shows."""
_READ_BYTES = 16 * 1024 * 1024
"""Bytes of a log, after which the search for its end stops."""


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
            if len(kept) > 2 * _SHOWN_BYTES:
                del kept[:-_SHOWN_BYTES]
            if read >= _READ_BYTES:
                is_open = True
                break
    is_cut = read > _SHOWN_BYTES
    shown = bytes(kept[-_SHOWN_BYTES:])
    if is_cut and b"\n" in shown:
        shown = shown.partition(b"\n")[2] or shown  # the last line may be longer
    return LogTail(text=shown.decode("utf-8", "replace"), is_cut=is_cut, is_open=is_open)


def read_start(download: Download, limit: int) -> bytes:
    """Return at most the first `limit` bytes, without fetching the rest."""
    content = bytearray()
    with closing(download):
        for chunk in download.chunks:
            content += chunk
            if len(content) >= limit:
                break
    return bytes(content[:limit])
