"""One output of an attempt."""

import io
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from dropflow.apps.encodings import canonical, encode, is_text, separator
from dropflow.apps.template_cache import effective
from dropflow.data.storage_errors import storage_errors
from dropflow.data.store import ContentWriter, Slot
from dropflow.data.streamed_writer import StreamedWriter
from dropflow.engine.api import Handle, Output, StreamOpened
from dropflow.errors import AppError

if TYPE_CHECKING:
    from dropflow.apps.attempt_context import AttemptContext

__all__ = ["AttemptOutput"]

_BUFFER = 1 << 16


class AttemptOutput:
    """`dropflow.apps.api.OutputData` of one attempt."""

    __slots__ = (
        "_abandoned",
        "_attempt",
        "_edge",
        "_number",
        "_part",
        "_path",
        "_store",
        "_streams",
        "name",
        "oid",
        "port",
    )

    def __init__(self, attempt: "AttemptContext", edge: Output, number: int) -> None:
        plans = attempt.plans
        self._attempt = attempt
        self._edge = edge
        self._number = number
        self._store = plans.store(edge.template)
        self._part: ContentWriter | None = None
        self._path: Path | None = None
        self._streams: list[BinaryIO] = []
        self._abandoned = False
        self.port = plans.links[edge.link].source_port
        self.oid = edge.oid
        self.name = plans.templates[edge.template].name

    @property
    def drop(self) -> int:
        """Row of the data drop."""
        return self._edge.drop

    @property
    def streams(self) -> bool:
        """Whether consumers may read appended data before the attempt is over."""
        return self._edge.streams and not self._edge.shared and self._store.growing is not None

    @property
    def is_directory(self) -> bool:
        """Whether the drop holds a directory, to be made at `path`."""
        return self._store.is_directory

    def write(self, data: bytes | bytearray | memoryview | str) -> int:
        """Append to the content, text as UTF-8. Returns the number of bytes."""
        self._attempt.check()
        part = self._part or (self._begin_stream() if self.streams else self._begin())
        return part.write(data.encode(), text=True) if isinstance(data, str) else part.write(data)

    def append(self, block: memoryview) -> int:
        """As `write`, for the streams of `open`; ignores what they flush after the output was abandoned."""
        return len(block) if self._abandoned else self.write(block)

    def open(self) -> BinaryIO:
        """A writable stream that appends to the content. It is closed at the end of the attempt at the latest."""
        stream = cast(BinaryIO, io.BufferedWriter(_Appender(self), _BUFFER))
        self._streams.append(stream)
        return stream

    def put(self, value: Any, encoding: str | None = None) -> None:
        """Write `value` encoded with `encoding`, by default the encoding of the port.

        With the encoding ``path``, a file drop gets a copy of the file that `value` names.
        """
        self._attempt.check()
        name = canonical(encoding) if encoding else self._attempt.plan.encoding(self.port)
        name = effective(name, self._store)
        if name == "path" and self._store.unwritten is None:
            self._take(value)
            return
        try:
            body = encode(name, value)
        except AppError as error:
            error.where = error.where or f"output '{self.port or self.name}'"
            raise
        # Producers on other nodes are not among the edges here.
        if self._attempt.plans.may_be_shared(self._edge.template):
            body += separator(name)
        (self._part or self._begin()).write(body, text=is_text(name) or (name == "raw" and isinstance(value, str)))

    @property
    def path(self) -> Path:
        """Temporary path for a program that writes the content itself (parent exists, the path does not)."""
        if self._path is None:
            self._flush()
            self._path = Path((self._part or self._begin()).path())
        return self._path

    def skip(self) -> None:
        """Skip this output, and with it its consumers."""
        self._attempt.skip(self.drop)

    def finish(self) -> Handle:
        """End writing and return the content."""
        for stream in self._streams:
            stream.close()
        if self._part is None:
            unwritten = self._store.unwritten
            if unwritten is not None:
                return unwritten
        return (self._part or self._begin()).finish()

    def abandon(self) -> None:
        """Discard what was written, and what is still in the buffers of streams."""
        self._abandoned = True
        for stream in self._streams:
            stream.close()
        if self._part is not None:
            self._part.abandon()
            self._part = None

    def _begin(self) -> ContentWriter:
        self._part = self._store.part(self._slot())
        return self._part

    def _begin_stream(self) -> ContentWriter:
        """Begin a content that consumers read while it grows, except for data from `put` or a program."""
        attempt, grow = self._attempt, self._store.growing
        assert grow is not None  # noqa: S101 - see streams
        task = attempt.task
        folder = attempt.workspace.part_name(task.drop, task.attempt, f"{self._number}.stream")
        slot = self._slot()
        part = StreamedWriter(grow(slot), folder, self._opened, attempt.check, attempt.clock, shielded=slot.shielded)
        attempt.on_stop(part.wake)
        self._part = part
        return part

    def _opened(self, stream: Handle) -> None:
        task = self._attempt.task
        self._attempt.on_stream_opened(StreamOpened(task.drop, task.attempt, self.drop, stream))

    def _slot(self) -> Slot:
        attempt = self._attempt
        task = attempt.task
        return Slot(
            attempt.workspace,
            self.oid,
            task.drop,
            task.attempt,
            self._number,
            attempt.clock.now(),
            attempt.given_name(self._edge.link),
            self._edge.kept,
            attempt.interruption.shielded,
        )

    def _flush(self) -> None:
        for stream in self._streams:
            if not stream.closed:
                stream.flush()

    def _take(self, value: Any) -> None:
        """Copy the file or directory that `value` names, unless it is already at the path of the output."""
        if not isinstance(value, str | os.PathLike) or not os.path.exists(value):  # noqa: PTH110 - any path-like
            raise AppError(
                f"the value {value!r:.60} is not the path of an existing file, which '{self.name}' should get",
                where=f"output '{self.port or self.name}'",
                hint="write to the path that is given for this port, or return the path of an existing file",
            )
        source, target = Path(os.fspath(value)), self.path
        if target.exists() and source.samefile(target):
            return
        with storage_errors("copy to", target):
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copyfile(source, target)


class _Appender(io.RawIOBase):
    """The raw stream below `AttemptOutput.open`."""

    def __init__(self, output: AttemptOutput) -> None:
        self._output = output

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._output.append(memoryview(data).cast("B"))
