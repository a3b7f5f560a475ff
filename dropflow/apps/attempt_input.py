"""One input of an attempt.

If a program changes an input, the usage of its port is ``InputOutput``. Then the path is that of a private copy, and
the changed copy is the content of the output at the same port, if there is one. For all other inputs that are read by
path, size and time of each file are compared before and after the attempt, because a drop is written once: other
consumers, repeated attempts and copies on other nodes rely on it.
"""

import io
import mmap
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from dropflow.apps.encodings import canonical, decode, decode_all
from dropflow.apps.template_cache import effective
from dropflow.data.memory import MemoryStore
from dropflow.data.read import EMPTY, open_content, read, view
from dropflow.data.remote import download, url_of
from dropflow.data.storage_errors import storage_errors
from dropflow.data.streams import StreamReader
from dropflow.errors import AppError, InputChangedError
from dropflow.execution.content_location import Handle
from dropflow.execution.tasks import Input
from dropflow.files import shares_blocks
from dropflow.formatting import few, plural
from dropflow.ids import drop_file_name, safe_name
from dropflow.states import DropState

if TYPE_CHECKING:
    from dropflow.apps.attempt import AttemptContext
_READ_BUFFER_BYTES = 1 << 18
"""Bytes that are read at once from an input that streams, or is copied."""
_SHOWN_FILES = 3
"""Files in the message about an input that was changed."""


class AttemptInput:
    """`dropflow.apps.app_interface.InputData` of one attempt; `dropflow.apps.encodings` decodes it."""

    __slots__ = ("_attempt", "_handle", "_path", "_seen", "_template", "name", "oid", "port", "state")

    def __init__(self, attempt: "AttemptContext", edge: Input) -> None:
        plans = attempt.plans
        self._attempt = attempt
        self._handle = edge.handle
        self._template = edge.template
        self._path: Path | None = None
        self._seen: frozenset[tuple[str, int, int]] | None = None
        """Name, size and time of each file when the application got the path; None if it has a private path."""
        self.port = plans.links[edge.link].target_port
        self.oid = edge.oid
        self.name = plans.templates[edge.template].name
        self.state = edge.state

    @property
    def handle(self) -> Handle | None:
        """The content; None if there is none."""
        return self._handle

    @property
    def ok(self) -> bool:
        """Whether there is content to read."""
        return self.state is DropState.COMPLETED

    @property
    def is_open(self) -> bool:
        """Whether the content is still being written."""
        return False

    @property
    def size(self) -> int:
        """Bytes of content."""
        return self._content.size

    @property
    def is_directory(self) -> bool:
        """Whether the content is a directory."""
        return self._content.kind == "directory"

    @property
    def is_text(self) -> bool:
        """Whether the content was declared or written as text."""
        return self._content.text

    @property
    def is_joint(self) -> bool:
        """Whether several producers write the content."""
        return bool(self._attempt.plans.templates[self._template].collects)

    @property
    def is_collected(self) -> bool:
        """Whether the graph collects at the port."""
        return self.port in self._attempt.plan.template.collects

    @property
    def in_memory(self) -> bool:
        """Whether it is a memory drop, which only this session writes; also if its content is kept as a file."""
        kind = self._content.kind
        kept = kind == "file" and isinstance(self._attempt.plans.store(self._template), MemoryStore)
        return kept or kind in ("bytes", "shm")

    def view(self) -> memoryview:
        """Return the whole content, without a copy."""
        return view(self._content)

    def read(self) -> bytes:
        """Return the whole content."""
        return read(self._content)

    def open(self) -> BinaryIO:
        """Return a binary stream over the content; close it."""
        return open_content(self._content)

    def value(self, encoding: str | None = None) -> Any:
        """Return the content decoded with `encoding`, by default that of the port; a list of several values."""
        return decode(self._encoding(encoding), self)

    def values(self, encoding: str | None = None) -> list[Any]:
        """As `value`, but always a list, also for one value or none."""
        return decode_all(self._encoding(encoding), self)

    def _encoding(self, encoding: str | None) -> str:
        attempt = self._attempt
        attempt.check()
        name = canonical(encoding) if encoding else attempt.plan.encoding(self.port)
        return effective(name, attempt.plans.store(self._template))

    @property
    def is_private(self) -> bool:
        """Whether the application may change the content at `path`."""
        return self._attempt.plan.changes(self.port)

    @property
    def path(self) -> Path:
        """A file or directory with the content. Content in memory or at a URL is first written to a temporary file."""
        if self._path is None:
            content = self._content
            if content.kind == "null":
                self._path = Path("/dev/null")
                return self._path
            made = {"bytes": self._written, "url": self._fetched}.get(content.kind)
            source = Path(content.location) if made is None else made(content)
            if self.is_private:
                source = self._copied(source)
            elif made is None:
                self._seen = _files_of(source)
            self._path = source
        return self._path

    def refuse_changed(self) -> None:
        """Raise if the application has changed the content of another drop.

        Raises
        ------
        InputChangedError
            A file in it was added, removed, or has another size or time. If no application of the graph writes the
            drop, such as a directory that programs fill, it is a warning in the log.
        """
        if self._seen is None or self._path is None or (now := _files_of(self._path)) == self._seen:
            return
        names = sorted({name for name, _, _ in self._seen ^ now})
        text = f"the input '{self.port or self.name}' was changed while it was read: {few(names, _SHOWN_FILES)}"
        plans = self._attempt.plans
        if not any(link.target == self._template for link in plans.links):
            self.warn(f"{text}; no application writes it, so it stays as it is now")
            return
        raise InputChangedError(
            text,
            where=str(self._path),
            hint=f"if the program changes its input, set the usage of the port '{self.port}' to InputOutput: it then "
            "gets a copy, and the changed copy goes to the output at that port",
        )

    @property
    def url(self) -> str:
        """URL of the content."""
        content = self._content
        return url_of(content.location) if content.kind == "url" else self.path.as_uri()

    def close(self) -> None:
        """Close open streams; nothing to do for a complete input."""

    def warn(self, text: str) -> None:
        """Write a warning to the log of the application."""
        self._attempt.log(text, "WARNING")

    @property
    def _content(self) -> Handle:
        if self.state is not DropState.COMPLETED:
            raise AppError(
                f"input '{self.name}' ({self.oid}) has no content: it is {self.state.name}",
                hint="an application that tolerates failed inputs must look at their state first",
            )
        return self._handle or EMPTY

    def _fetched(self, content: Handle) -> Path:
        name = url_of(content.location).rstrip("/").rpartition("/")[2]
        # In a separate directory: programs recognise files by their names, and other inputs may have the same name.
        folder = Path(self._attempt.scratch(), f"url-{len(os.listdir(self._attempt.scratch()))}")  # noqa: PTH208 - short
        with storage_errors("make the directory", folder):
            folder.mkdir()
        path = folder / safe_name(name, fallback="content")
        download(content, path)
        return path

    def _copied(self, source: Path) -> Path:
        """Return a copy of a file or directory: at the path of the output at this port, or else in scratch space."""
        attempt = self._attempt
        inputs = [data for data in attempt.inputs if data.port == self.port]
        outputs = [output for output in attempt.outputs if output.port == self.port]
        if outputs and len(outputs) != len(inputs):
            raise AppError(
                f"the port '{self.port}' has {plural(len(inputs), 'input')} and {plural(len(outputs), 'output')}",
                hint="an application that changes its inputs needs one output for each, or none",
            )
        target = (
            outputs[inputs.index(self)].path
            if outputs
            else Path(attempt.scratch(), "changed", drop_file_name(self.oid), source.name)
        )
        with storage_errors("copy to", target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, copy_function=_clone)
            else:
                _clone(source, target)
        return target

    def _written(self, content: Handle) -> Path:
        path = self._own_path(self.name)
        with storage_errors("write", path):
            path.write_bytes(content.body)
        return path

    def _own_path(self, name: str) -> Path:
        """Return a path in scratch space, in a directory of its own: the drops of a scatter have the same name."""
        attempt = self._attempt
        folder = Path(attempt.scratch(), f"input-{attempt.inputs.index(self)}")
        with storage_errors("make the directory", folder):
            folder.mkdir(exist_ok=True)
        return folder / safe_name(name, fallback="content")


def _clone(source: str | Path, target: str | Path) -> None:
    """Copy a file, without copying its blocks if the file system can share them."""
    with open(source, "rb") as old, open(target, "wb") as new:  # noqa: PTH123 - shutil gives texts
        if not shares_blocks(new.fileno(), old.fileno()):
            shutil.copyfileobj(old, new, _READ_BUFFER_BYTES)
    os.chmod(target, os.stat(source).st_mode | stat.S_IWUSR)  # noqa: PTH101, PTH116


def _files_of(path: Path) -> frozenset[tuple[str, int, int]]:
    """Return name, size and time of change of a file, or of each file in a directory; for directories only the name."""
    root = str(path)
    states = {_state_of(root, path.name, os.stat)}
    for folder, folders, files in os.walk(root):
        inside = f"{path.name}{folder[len(root) :]}"
        states |= {(f"{inside}/{name}", 0, 0) for name in folders}
        states |= {_state_of(f"{folder}/{name}", f"{inside}/{name}", os.lstat) for name in files}
    return frozenset(states)


def _state_of(path: str, name: str, look: Callable[[str], os.stat_result]) -> tuple[str, int, int]:
    try:
        status = look(path)
    except OSError:
        return name, -1, 0
    return (name, 0, 0) if stat.S_ISDIR(status.st_mode) else (name, status.st_size, status.st_mtime_ns)


# An input that is still being written when the attempt begins.


class StreamedInput(AttemptInput):
    """`dropflow.apps.app_interface.InputData` of a data drop that is still being written.

    `open` returns a stream that waits for more data. All methods that need the whole content wait for its end.
    """

    __slots__ = ("_end", "_readers", "_stream")

    def __init__(self, attempt: "AttemptContext", edge: Input) -> None:
        super().__init__(attempt, edge)
        assert edge.handle is not None  # an open content has a stream
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
        """Return the decoded content; waits until it is complete."""
        self._wait()
        return super().value(encoding)

    def values(self, encoding: str | None = None) -> list[Any]:
        """Return the values in the content; waits until it is complete."""
        self._wait()
        return super().values(encoding)

    def view(self) -> memoryview:
        """Return the whole content without a copy; waits until it is complete."""
        if not self._wait().size:
            return memoryview(b"")
        with self.reader() as reader, storage_errors("read", self.name):
            return memoryview(mmap.mmap(reader.descriptor, 0, access=mmap.ACCESS_READ))

    def read(self) -> bytes:
        """Return the whole content; waits until it is complete."""
        with self.open() as stream:
            return stream.read()

    def open(self) -> BinaryIO:
        """Return a binary stream over the content, which waits for more data until the end; close it."""
        return cast(BinaryIO, io.BufferedReader(self.reader(), _READ_BUFFER_BYTES))

    def reader(self) -> StreamReader:
        """Return a stream without a buffer; see `open`."""
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
            path = self._own_path(Path(content.final or self.name).name)
            with self.reader() as reader, storage_errors("read", content.location):
                is_shared = _linked(reader.descriptor, path)
            if self.is_private:
                path = self._copied(path)
            elif is_shared:
                self._seen = _files_of(path)
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


def _linked(descriptor: int, path: Path) -> bool:
    """Link an open file to `path`, or copy it: its present name disappears when the content is committed.

    Returns
    -------
    bool
        Whether it is a link. On another file system it is a copy.
    """
    try:
        # With a descriptor, the system follows the link in /proc to the file; without one, it would link that link.
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
    except OSError:
        with open(descriptor, "rb", closefd=False) as stream, path.open("wb") as copy:
            shutil.copyfileobj(stream, copy)
        return False
    return True
