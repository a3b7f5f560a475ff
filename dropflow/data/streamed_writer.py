"""Writers whose contents are read while they grow."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from dropflow.clock import Clock
from dropflow.data.storage_errors import storage_errors
from dropflow.data.store import GrowingWriter, Shield
from dropflow.data.streams import StreamPublisher
from dropflow.engine.api import Handle
from dropflow.errors import AppError

__all__ = ["StreamedWriter"]


class StreamedWriter:
    """A writer whose content can be read as soon as there is some.

    Parameters
    ----------
    part : GrowingWriter
        Where the content goes.
    folder : str
        Directory of the stream, which is made with the first bytes.
    on_open : callable
        Called with the stream after the first bytes.
    check : callable
        Raises an exception if the attempt is to stop.
    clock : Clock
        Measures how long a reader has not moved.
    shielded : Shield
        Of the attempt that writes: an interruption while the stream is made would leave its files open.
    """

    def __init__(
        self,
        part: GrowingWriter,
        folder: str,
        on_open: Callable[[Handle], None],
        check: Callable[[], None],
        clock: Clock,
        *,
        shielded: Shield = nullcontext,
    ) -> None:
        self._part = part
        self._folder = folder
        self._on_open = on_open
        self._check = check
        self._clock = clock
        self._shielded = shielded
        self._writer: StreamPublisher | None = None
        self._ignores_readers = False
        self._size = 0
        self._text = True
        self._file = (0, 0)

    def write(self, data: bytes | bytearray | memoryview, *, text: bool = False) -> int:
        """Append, and wake the readers. Waits for readers that are far behind.

        Raises
        ------
        StorageError
            Nothing can be written.
        """
        count = self._part.write(data, text=text)
        self._size += count
        self._text = self._text and text
        if self._writer is None and self._size:
            found = Path(self._part.location).stat()
            self._file = found.st_dev, found.st_ino
            with self._shielded():
                self._writer = StreamPublisher(self._folder, self._part.location, self._check, self._clock)
            if self._ignores_readers:
                self._writer.stop_waiting()
            self._on_open(Handle(kind="stream", location=self._folder, final=self._part.final, text=self._text))
        if self._writer is not None:
            self._writer.grown(self._size)
        return count

    def path(self) -> str:
        """Return the path of the growing file, for a program that appends to it. Readers see that only at the end."""
        return self._part.path()

    def finish(self) -> Handle:
        """End writing and return the content.

        Raises
        ------
        StorageError
            The file cannot be written.
        AppError
            A program has replaced the file after data of it were streamed.
        """
        handle = self._part.finish()
        if self._writer is not None:
            self._refuse_another(handle)
            self._writer.end(handle)
        return handle

    def stop_waiting(self) -> None:
        """Do not wait for readers any more. May be called from any thread."""
        self._ignores_readers = True  # set before `_writer` is read: `write` makes the writer and then reads the flag
        writer = self._writer
        if writer is not None:
            writer.stop_waiting()

    def wake(self) -> None:
        """Call `check` again in a waiting thread. May be called from any thread."""
        writer = self._writer
        if writer is not None:
            writer.wake()

    def abandon(self) -> None:
        """Discard what was written. Readers are stopped by their session."""
        if self._writer is not None:
            self._writer.close()
        self._part.abandon()

    def _refuse_another(self, handle: Handle) -> None:
        """Raise if the file that readers have opened is not the one that is committed, or is longer."""
        with storage_errors("finish writing", handle.location):
            found = Path(handle.location).stat()
        if (found.st_dev, found.st_ino) != self._file or found.st_size < self._size:
            raise AppError(
                f"a program replaced {handle.location} after others have read {self._size} bytes of it",
                hint="write it all through the output, or all through its path; or make its links not streaming",
            )
