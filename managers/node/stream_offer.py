"""One stream that this node offers to others."""

import contextlib
import os
import threading

from dropflow.data.storage_errors import storage_error
from dropflow.data.stream_reader import StreamReader
from dropflow.engine.api import Handle
from dropflow.errors import GoneError

__all__ = ["GONE", "StreamOffer"]

GONE = "what was written was discarded, or has no consumers left"


class StreamOffer:
    """`managers.links.ContentSource` over a stream; it stays offered when the data plane closes it.

    A complete stream stays offered while other nodes work with their copies, and there may be many: so it has an open
    file only while the data plane reads it.

    Parameters
    ----------
    reader : StreamReader
        Reads the stream while it grows; closed with the offer.
    """

    def __init__(self, reader: StreamReader) -> None:
        self.reader = reader
        self.descriptor = reader.wake_fd
        """Readable when the stream has grown."""
        # Guards the number of the open file: the thread that serves content reads while the session's thread completes
        # or ends the offer. A queue would make the session wait for a disk.
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
        """Return what is written of a range.

        Raises
        ------
        GoneError
            It is no longer offered.
        StorageError
            It cannot be read.
        """
        with self._lock:
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
        """Close the file; the offer stays."""
        with self._lock:
            self._is_wanted = False
            self._close_file()

    def complete(self, content: Handle) -> None:
        """Note that the stream is complete, and where its content is from now on."""
        with self._lock:
            if self._ended or self._content is not None:
                return
            self._content = content
            if self._is_wanted:  # a transfer that is running reads the same file, even if its name goes to another one
                with contextlib.suppress(OSError):  # no descriptors left: it opens the file by its name
                    self._file = os.dup(self.reader.descriptor)
            self.reader.close()

    def end(self) -> None:
        """Withdraw the offer. Idempotent."""
        with self._lock:
            self._ended = True
            self._close_file()
            self.reader.close()

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
