"""An input that is still being written when the attempt begins."""

import io
import mmap
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from dropflow.apps.attempt_input import AttemptInput
from dropflow.data.storage_errors import storage_errors
from dropflow.data.stream_reader import StreamReader
from dropflow.engine.api import Handle, Input
from dropflow.ids import safe_name

if TYPE_CHECKING:
    from dropflow.apps.attempt_context import AttemptContext

__all__ = ["StreamedInput"]

_BUFFER = 1 << 18


class StreamedInput(AttemptInput):
    """`dropflow.apps.api.InputData` of a data drop that is still being written.

    `open` returns a stream that waits for more data. Everything that needs the whole content waits for its end.
    """

    __slots__ = ("_end", "_readers", "_stream")

    def __init__(self, attempt: "AttemptContext", edge: Input) -> None:
        super().__init__(attempt, edge)
        assert edge.handle is not None  # noqa: S101 - an open content has a stream
        self._stream: Handle = edge.handle
        self._end: Handle | None = None
        self._readers: list[StreamReader] = []

    @property
    def ok(self) -> bool:
        """Whether there is content to read."""
        return True

    @property
    def is_open(self) -> bool:
        """Whether the content is still being written."""
        return True

    @property
    def size(self) -> int:
        """Bytes of content; waits until it is complete."""
        return self._wait().size

    @property
    def is_directory(self) -> bool:
        """Whether the content is a directory."""
        return False

    @property
    def is_text(self) -> bool:
        """Whether the content is text; until it is complete, whether its beginning is."""
        return (self._end or self._stream).text

    @property
    def in_memory(self) -> bool:
        """Whether it is a memory drop."""
        return not self._stream.final

    def value(self, encoding: str | None = None) -> Any:
        """The decoded content; waits until it is complete."""
        self._wait()
        return super().value(encoding)

    def values(self, encoding: str | None = None) -> list[Any]:
        """The values in the content; waits until it is complete."""
        self._wait()
        return super().values(encoding)

    def view(self) -> memoryview:
        """The whole content without a copy; waits until it is complete."""
        if not self._wait().size:
            return memoryview(b"")
        with self.reader() as reader, storage_errors("read", self.name):
            return memoryview(mmap.mmap(reader.descriptor, 0, access=mmap.ACCESS_READ))

    def read(self) -> bytes:
        """The whole content; waits until it is complete."""
        with self.open() as stream:
            return stream.read()

    def open(self) -> BinaryIO:
        """A binary stream over the content, which waits for more data until the end; close it."""
        return cast(BinaryIO, io.BufferedReader(self.reader(), _BUFFER))

    def reader(self) -> StreamReader:
        """A stream without a buffer; see `open`."""
        with self._attempt.interruption.shielded():  # otherwise its files might stay open
            reader = StreamReader(self._stream.location, self._attempt.check)
            self._readers.append(reader)
        self._attempt.on_stop(reader.wake)
        return reader

    @property
    def path(self) -> Path:
        """A file with the content; waits until it is complete."""
        if self._path is None:
            content = self._wait()
            name = safe_name(Path(content.final or self.name).name, fallback="content")
            path = Path(self._attempt.scratch(), name)
            with self.reader() as reader, storage_errors("read", content.location):
                _keep(reader.descriptor, path)
            self._path = path
        return self._path

    @property
    def url(self) -> str:
        """URL of the content; waits until it is complete."""
        return self.path.as_uri()

    def close(self) -> None:
        """Close streams that the application left open."""
        for reader in self._readers:
            reader.close()

    def _wait(self) -> Handle:
        if self._end is None:
            with self.reader() as reader:
                self._end = reader.wait_for_end()
        return self._end


def _keep(descriptor: int, path: Path) -> None:
    """Link an open file to `path`: its present name disappears when the content is committed."""
    try:
        os.link(f"/proc/self/fd/{descriptor}", path, follow_symlinks=True)
    except OSError:
        with open(descriptor, "rb", closefd=False) as stream, path.open("wb") as copy:
            shutil.copyfileobj(stream, copy)
