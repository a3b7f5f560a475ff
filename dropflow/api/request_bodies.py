"""Request bodies: limits on their size, depth and memory, their decompression, and the check of a signed hash.

A compressed body of 245 kB can unpack to 256 MB, and many may arrive at the same time. Each request has an account of
the memory of all bodies, whose bytes are freed when it is closed. Requests without a credential share half of it, so
that they cannot block those with one.
"""

import hmac
import threading
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO
from typing import BinaryIO

import bottle

from dropflow.api.signing import digest
from dropflow.errors import HttpError
from dropflow.graph.nesting import nesting

_RATIO = 200
"""Graphs are 8 to 30 times as large as their compressed form. What unpacks to more was made to fill memory."""
_ALWAYS = 1024 * 1024
"""Bytes that any compressed body may have, whatever its ratio."""

_STEP = 16 * 1024 * 1024
"""Bytes that are unpacked at a time, each time after they were taken from the account."""
_FED_BYTES = 16 * 1024
"""Bytes that are given to the decompressor at a time: at the end of each gzip member, it copies those that are left."""


class Budget:
    """A number of bytes that accounts take from. May be used from any thread.

    Parameters
    ----------
    total : int
        Bytes of all accounts together.
    """

    def __init__(self, total: int) -> None:
        # Guards the sums: threads of the server take and free bytes, and each needs the answer immediately.
        self._lock = threading.Lock()
        self._total = total
        self._taken = {True: 0, False: 0}

    @property
    def taken(self) -> int:
        """Bytes that are taken now."""
        return sum(self._taken.values())

    def open(self, *, stranger: bool) -> "Account":
        """Return an account, to be closed at the end; a `stranger` has no credential."""
        return Account(self, stranger=stranger)

    @contextmanager
    def account(self, *, stranger: bool) -> "Generator[Account]":
        """Return an account that is closed at the end of the block."""
        opened = self.open(stranger=stranger)
        try:
            yield opened
        finally:
            opened.close()

    def move(self, size: int, *, stranger: bool) -> bool:
        """Take `size` bytes, or free them if it is negative; return whether there was room."""
        with self._lock:
            full = self.taken + size > self._total
            crowded = stranger and self._taken[True] + size > self._total // 2
            if size > 0 and (full or crowded):
                return False
            self._taken[stranger] += size
            return True


class Account:
    """The bytes that one request has taken from a budget. Used by one thread at a time."""

    def __init__(self, budget: Budget, *, stranger: bool) -> None:
        self._budget = budget
        self._stranger = stranger
        self.taken = 0

    def take(self, size: int) -> None:
        """Take `size` bytes more.

        Raises
        ------
        HttpError
            503: other requests have taken all there are.
        """
        if not self._budget.move(size, stranger=self._stranger):
            raise HttpError(503, "the bodies of other requests use all the memory for bodies", hint="try again soon")
        self.taken += size

    def close(self) -> None:
        """Free all bytes. Idempotent."""
        self._budget.move(-self.taken, stranger=self._stranger)
        self.taken = 0


def read_body(limit: int, *, signed: str | None = None, account: Account) -> bytes:
    """Return the body of the current request, decompressed.

    Both gzip and zlib streams are accepted under either name of the encoding: DALiuGE's client sends zlib as ``gzip``.

    Parameters
    ----------
    limit : int
        Bytes that it may have, before and after decompression; see also `unpacked_limit`.
    signed : str, optional
        The hash that the body as it was sent must have.
    account : Account
        Counts the memory.

    Raises
    ------
    HttpError
        413 above `limit`, 400 for a damaged stream, 401 for another body than the signed one, 415 for another
        encoding, 503 while other requests use the memory.
    """
    data = _sent(limit, account)
    if signed is not None and not hmac.compare_digest(digest((data,)), signed):
        raise HttpError(401, "the body is not the one that was signed", hint="sign the bytes that are sent")
    encoding = bottle.request.environ.get("HTTP_CONTENT_ENCODING", "identity").strip().lower()
    if encoding == "identity":
        return data
    if encoding not in ("gzip", "x-gzip", "deflate", "zlib"):
        raise HttpError(415, f"content encoding {encoding!r} is not supported", hint="send gzip, zlib or nothing")
    return _unpacked(data, encoding, limit, account)


def check_depth(data: bytes, limit: int, *, what: str = "the body") -> None:
    """Refuse JSON that is nested deeper than `limit` levels, before a parser sees it.

    Parameters
    ----------
    data : bytes
        The text, decompressed. Bytes that are not JSON pass the check.
    limit : int
        Levels of lists and objects that it may have.
    what : str
        Its name in the error.

    Raises
    ------
    HttpError
        400, with the depth and the limit.
    """
    levels = nesting(data, enough=limit)
    if levels > limit:
        raise HttpError(
            400,
            f"lists and objects in {what} are nested {levels:,} levels deep or more; this server takes {limit:,}",
            hint="graphs and requests need only a few levels: is the file damaged?",
        )


def _sent(limit: int, account: Account) -> bytes:
    stream: BinaryIO = bottle.request.environ["wsgi.input"]
    length: int = bottle.request.content_length
    if length > limit:
        raise too_large(limit)
    # A length of -1 is not known: the server in front finds the end of a chunked body.
    account.take(length if length >= 0 else limit + 1)
    data = stream.read(limit + 1 if length < 0 else length)
    if len(data) > limit:
        raise too_large(limit)
    if len(data) < length:
        raise HttpError(400, "the body is truncated")
    return data


def _unpacked(data: bytes, encoding: str, limit: int, account: Account) -> bytes:
    """Return the content of a gzip stream of any number of members, or of a zlib stream; at most `limit` bytes."""
    limit = unpacked_limit(len(data), limit)
    sent, output, size = BytesIO(data), BytesIO(), 0
    data = b""
    while True:
        unpack = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # 32: tell gzip from zlib by the header
        while not unpack.eof:
            data = data or sent.read(_FED_BYTES)
            is_over = not data
            step = min(_STEP, limit + 1 - size)
            account.take(step)
            try:
                piece = unpack.decompress(data, step)
            except zlib.error as error:
                raise HttpError(400, f"the body is not a {encoding} stream: {error}") from error
            account.take(len(piece) - step)
            size += output.write(piece)
            if size > limit:
                raise too_large(limit)
            data = unpack.unconsumed_tail
            if is_over and not piece and not unpack.eof:
                raise HttpError(400, "the compressed body ends too early")
        data = unpack.unused_data or sent.read(_FED_BYTES)
        if not data:
            return output.getvalue()  # without a copy


def unpacked_limit(size: int, limit: int) -> int:
    """Return how many bytes `size` compressed bytes may unpack to, where no body may have more than `limit`."""
    return min(limit, max(_ALWAYS, _RATIO * size))


def too_large(limit: int) -> HttpError:
    """Return the error for a body with more bytes than `limit`."""
    return HttpError(
        413, f"the body is larger than {limit} bytes", hint="send less, or start the server with a higher limit"
    )
