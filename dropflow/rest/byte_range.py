"""Parts of downloads, as HTTP asks for them (RFC 9110, 14): one range of bytes, if the content is still the same.

The headers ``Range`` and ``If-Range`` are passed from manager to manager as they are; the node that has the content
reads them, because only it knows the size.
"""

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from dropflow.errors import RangeError

__all__ = ["WHOLE", "DataQuery", "PartOfContent", "read_content_range", "requested_part"]

_RANGE = re.compile(r"bytes=\s*(\d*)-(\d*)\s*", re.ASCII | re.IGNORECASE)
_PART = re.compile(r"bytes (\d+)-(\d+)/(\d+)", re.ASCII)
_DIGITS = 18


class DataQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of a content to download; the headers of the same names count more.

    Attributes
    ----------
    range : str
        As in the header ``Range``; empty for the whole content.
    if_range : str
        As in ``If-Range``: the ETag of the content whose part it is. If it has another one, all of it comes.
    """

    range: Annotated[str, Meta(max_length=200)] = ""
    if_range: Annotated[str, Meta(max_length=200)] = ""


WHOLE = DataQuery()


class PartOfContent(msgspec.Struct, frozen=True):
    """The bytes from `first` to `last`, which is one of them, of a content of `whole` bytes."""

    first: int
    last: int
    whole: int

    @property
    def header(self) -> str:
        """The value of ``Content-Range``."""
        return f"bytes {self.first}-{self.last}/{self.whole}"

    @property
    def size(self) -> int:
        """Number of its bytes."""
        return self.last - self.first + 1


def requested_part(query: DataQuery, size: int, etag: str) -> PartOfContent | None:
    """Return the part that a request asks for; None for the whole content.

    As HTTP requires, a header that is not one range of bytes is ignored.

    Parameters
    ----------
    size : int
        Bytes of the content.
    etag : str
        Its strong ETag.

    Raises
    ------
    RangeError
        The range begins after the end of the content.
    """
    found = _RANGE.fullmatch(query.range)
    if (
        found is None
        or (query.if_range and query.if_range != etag)
        or any(len(one) > _DIGITS for one in found.groups())
    ):
        return None
    begin, end = (int(text) if text else None for text in found.groups())
    if begin is None:
        if end is None:
            return None
        begin, end = max(size - end, 0) if end else size, None
    if end is not None and end < begin:
        return None
    if begin >= size:
        raise RangeError(
            f"the content has {size:,} bytes, and the range begins at byte {begin:,}",
            size=size,
            hint="download it again from its beginning",
        )
    return PartOfContent(begin, size - 1 if end is None else min(end, size - 1), size)


def read_content_range(header: str) -> PartOfContent | None:
    """Return the part that an answer has, from its ``Content-Range``; None if it has the whole content."""
    found = _PART.fullmatch(header.strip())
    return None if found is None else PartOfContent(*map(int, found.groups()))
