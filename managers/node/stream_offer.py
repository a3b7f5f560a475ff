"""One stream that this node offers to others."""

import contextlib
import os
import threading

from dropflow.data.storage_errors import storage_error
from dropflow.data.streams import StreamReader
from dropflow.engine.api import Handle
from dropflow.errors import GoneError

__all__ = ["GONE", "StreamOffer"]

GONE = "what was written counts no more, or nobody needs it"


class StreamOffer:
    """`managers.links.ContentSource` over a stream, which is offered on when the data plane has closed it.

    A stream that is complete may be offered for as long as somebody works with a copy of it, and many of them at once:
    so it holds a file descriptor only while the data plane has it open.

    Parameters
    ----------
    reader : StreamReader
        Reads the stream while it grows; closed with the offer.
    """

    def __init__(self, reader: StreamReader) -> None:
        self.reader = reader
        self.bell = reader.bell
        self._lock = threading.Lock()
        self._ended = False
        self._content: Handle | None = None
        self._file = -1
        self._is_wanted = False

    @property
    def size(self) -> int | None:
        """Bytes, once it has ended."""
        with self._lock:
            if self._content is not None:
                return self._content.size
            return self.reader.wait_for_end().size if self.reader.is_ended else None

    def read(self, offset: int, length: int) -> bytes:
        """What there is of a range.

        Raises
        ------
        GoneError
            It is offered no longer.
        StorageError
            It cannot be read.
        """
        with self._lock:  # the number of a file that was closed may be that of another one
            if self._ended:
                raise GoneError(GONE)
            self._is_wanted = True
            if self._content is None:
                return self.reader.pread(offset, length)
            try:
                if self._file < 0:
                    self._file = os.open(self._content.location, os.O_RDONLY)
                return os.pread(self._file, length, offset)
            except OSError as error:
                raise storage_error("read", self._content.location, error) from error

    def close(self) -> None:
        """The data plane has not been asked for it lately; the offer stands."""
        with self._lock:
            self._is_wanted = False
            self._let_go()

    def complete(self, content: Handle) -> None:
        """Nothing more is written, and this is where it is from now on."""
        with self._lock:
            if self._ended or self._content is not None:
                return
            self._content = content
            if self._is_wanted:  # who is in the middle of it finds it though something else gets its name
                with contextlib.suppress(OSError):  # or finds what has the name, where there are no descriptors left
                    self._file = os.dup(self.reader.descriptor)
            self.reader.close()

    def end(self) -> None:
        """StreamOffer it no more; idempotent."""
        with self._lock:
            self._ended = True
            self._let_go()
            self.reader.close()

    def _let_go(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
