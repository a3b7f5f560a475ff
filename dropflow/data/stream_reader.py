"""The reading end of a stream; `dropflow.data.streams` describes the files."""

import contextlib
import io
import os
import struct
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from dropflow.data.storage_errors import storage_error, storage_errors
from dropflow.data.wake_fifo import WakeFifo, remove, wake
from dropflow.engine.api import Handle

__all__ = ["POSITION", "StreamReader"]

POSITION = struct.Struct("<Q")
"""Format of the file with the position of a reader."""


class StreamReader(io.RawIOBase):
    """A raw stream over a growing file: reading waits for more data until the writer has ended.

    Used by one thread, except for `wake` and `stop`. It has no `fileno`: reading the file directly would take the
    present end of the file for the end of the content.

    Parameters
    ----------
    folder : str
        Directory of the stream.
    check : callable
        Raises an exception to end a wait.

    Raises
    ------
    StorageError
        The stream was removed, or cannot be read.
    """

    def __init__(self, folder: str, check: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._folder = folder
        self._check = check
        self._stopped = False
        self._end: Handle | None = None
        self._offset = 0
        name = uuid.uuid4().hex
        self._mark = f"{folder}/{name}.at"
        self._held = contextlib.ExitStack()
        with storage_errors("read the stream", folder), contextlib.ExitStack() as held:
            # The FIFO first: from here on every growth of the file is noticed.
            self._fifo = WakeFifo(f"{folder}/{name}.reader")
            held.callback(self._fifo.close)
            self._content = held.enter_context(self._open())
            self._position = held.enter_context(open(self._mark, "wb", buffering=0))  # noqa: PTH123 - on a hot path
            held.callback(remove, self._mark)
            self._position.write(POSITION.pack(0))
            self._held = held.pop_all()

    def readable(self) -> bool:
        """Return True."""
        return True

    @property
    def descriptor(self) -> int:
        """File descriptor of the growing file."""
        return self._content.fileno()

    def readinto(self, buffer: Any) -> int:
        """Read what is there; waits if there is nothing. Returns 0 at the end, and after `stop`.

        Raises
        ------
        StorageError
            It cannot be read.
        """
        while True:
            is_last = self.is_ended
            try:
                count = self._content.readinto(buffer) or 0
            except OSError as error:
                raise storage_error("read the stream", self._folder, error) from error
            if count or is_last or self._stopped:
                self._offset += count
                self._note()
                return count
            self._check()
            self._fifo.wait(None)

    def pread(self, offset: int, length: int) -> bytes:
        """Return what is there of a range, without waiting. The position of the reader becomes `offset`."""
        data = os.pread(self._content.fileno(), length, offset)
        if offset > self._offset:
            self._offset = offset
            self._note()
        return data

    @property
    def is_ended(self) -> bool:
        """Whether the writer has ended."""
        if self._end is None:
            try:
                self._end = _read_end(self._folder)
            except FileNotFoundError:
                return False
            except OSError as error:
                raise storage_error("read the end of the stream", self._folder, error) from error
        return True

    @property
    def wake_fd(self) -> int:
        """File descriptor that becomes readable when there may be more data; see `clear`."""
        return self._fifo.fileno

    def clear(self) -> None:
        """Clear `wake_fd`. To be called before looking for more data."""
        self._fifo.clear()

    def wait_for_end(self) -> Handle:
        """Wait until the content is complete, and return it."""
        while not self.is_ended and not self._stopped:
            self._check()
            self._fifo.wait(None)
        if self._end is None:
            raise EOFError("the reader of this stream was stopped before its end")
        return self._end

    def wake(self) -> None:
        """Call `check` again in a waiting thread. May be called from any thread."""
        self._fifo.wake()

    def stop(self) -> None:
        """Stop waiting: the present end of the file is the end of the stream. May be called from any thread."""
        self._stopped = True
        self._fifo.wake()

    def close(self) -> None:
        """Close the stream; its writer does not wait for this reader any more."""
        if not self.closed:
            self._held.close()
            with contextlib.suppress(OSError):
                wake(f"{self._folder}/writer")
        super().close()

    def _open(self) -> io.FileIO:
        try:
            return open(f"{self._folder}/content", "rb", buffering=0)  # noqa: PTH123 - text, as everywhere here
        except FileNotFoundError:
            end = _read_end(self._folder)  # it was committed in the meantime
        return open(end.final or end.location, "rb", buffering=0)  # noqa: PTH123 - as above

    def _note(self) -> None:
        # If this fails, the writer sees a reader that does not move, and goes on after `PATIENCE`.
        with contextlib.suppress(OSError):
            os.pwrite(self._position.fileno(), POSITION.pack(self._offset), 0)
            wake(f"{self._folder}/writer")


def _read_end(folder: str) -> Handle:
    path = f"{folder}/end"
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - as above
            return msgspec.msgpack.decode(stream.read(), type=Handle)
    except ValueError as error:  # msgspec raises UnicodeDecodeError, too
        raise storage_error("read", path, OSError(0, str(error))) from error
