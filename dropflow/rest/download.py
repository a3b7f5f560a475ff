"""A download: a content as a stream of bytes, with what its receiver needs to know."""

from collections.abc import Iterator
from dataclasses import dataclass

from dropflow.rest.byte_range import PartOfContent

__all__ = ["Download"]


@dataclass(frozen=True)
class Download:
    """A download.

    Attributes
    ----------
    name : str
        File name to offer.
    content_type : str
        Media type.
    size : int or None
        Bytes, if they are known.
    chunks : iterator of bytes
        The content; to be exhausted or closed.
    etag : str
        Strong ETag, if parts of the content can be downloaded; else empty.
    part : PartOfContent or None
        Which part of the content this is; None for all of it.
    """

    name: str
    content_type: str
    size: int | None
    chunks: Iterator[bytes]
    etag: str = ""
    part: PartOfContent | None = None

    def close(self) -> None:
        """Close the chunks, whether or not all of them were read."""
        close = getattr(self.chunks, "close", None)
        if close is not None:
            close()
