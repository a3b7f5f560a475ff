"""Request bodies: read within limits of size and depth, unpacked, and compared with what was signed."""

import hmac
import zlib
from typing import BinaryIO

import bottle

from dropflow.errors import HttpError
from dropflow.nesting import nesting
from dropflow.rest.signing import digest

__all__ = ["check_depth", "read_body"]


def read_body(limit: int, *, signed: str | None = None) -> bytes:
    """The body of the current request, decompressed.

    Both gzip and zlib streams are taken under either name of the encoding: DALiuGE's client sends zlib as ``gzip``.

    Parameters
    ----------
    limit : int
        Bytes that it may have, before and after decompression.
    signed : str, optional
        The hash that the body as it was sent must have.

    Raises
    ------
    HttpError
        413 above `limit`, 400 for a damaged stream, 401 for another body than was signed, 415 for another encoding.
    """
    data = _sent(limit)
    if signed is not None and not hmac.compare_digest(digest((data,)), signed):
        raise HttpError(401, "the body is not the one that was signed")
    encoding = bottle.request.get_header("Content-Encoding", "identity").strip().lower()
    if encoding == "identity":
        return data
    if encoding not in ("gzip", "x-gzip", "deflate", "zlib"):
        raise HttpError(415, f"content encoding {encoding!r} is not understood", hint="send gzip, zlib or nothing")
    return _unpacked(data, encoding, limit)


def check_depth(data: bytes, limit: int, *, what: str = "the body") -> None:
    """Refuse JSON that is nested deeper than `limit` levels, before a parser sees it.

    Parameters
    ----------
    data : bytes
        The text, decompressed; any other bytes are left to whoever reads them.
    limit : int
        Levels of lists and objects that it may have.
    what : str
        How to call it.

    Raises
    ------
    HttpError
        400, with the depth and the limit.
    """
    found = nesting(data, enough=limit)
    if found > limit:
        raise HttpError(
            400,
            f"lists and objects in {what} are nested {found:,} levels deep or more; this server takes {limit:,}",
            hint="nothing that a graph or a request has to say needs that: is it damaged? if not, send it flatter",
        )


def _sent(limit: int) -> bytes:
    stream: BinaryIO = bottle.request.environ["wsgi.input"]
    length: int = bottle.request.content_length
    if length > limit:
        raise _too_large(limit)
    # A length of -1 says nothing: the server in front knows where a chunked body ends.
    data = stream.read(limit + 1 if length < 0 else length)
    if len(data) > limit:
        raise _too_large(limit)
    if len(data) < length:
        raise HttpError(400, "the body is cut off")
    return data


def _unpacked(data: bytes, encoding: str, limit: int) -> bytes:
    """The content of a gzip stream (of several members too) or a zlib stream, never more than `limit` bytes of it."""
    pieces, size = [], 0
    while True:
        unpack = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # 32: tell gzip from zlib by the header
        try:
            piece = unpack.decompress(data, limit + 1 - size)
        except zlib.error as error:
            raise HttpError(400, f"the body is no {encoding} stream: {error}") from error
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        if not unpack.eof:
            raise HttpError(400, "the compressed body ends too early")
        data = unpack.unused_data
        if not data:
            return b"".join(pieces) if len(pieces) > 1 else piece


def _too_large(limit: int) -> HttpError:
    return HttpError(413, f"the body is larger than {limit} bytes", hint="send less, or start the server with a limit")
