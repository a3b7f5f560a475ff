"""Transfer of streams between nodes: data that are fetched while they are written.

A node that offers a stream reads it as far as other nodes request it, like any consumer. So the writer waits for the
first of these nodes, and the other nodes read the written data from the disk. A node that follows a stream writes the
arriving data into a separate growing file. Its consumers and further nodes read from this file, and it requests only as
much as they read. A transfer has its own thread while the data grow: if streams and whole contents took turns, the
contents could wait without end.
"""

import contextlib
import logging
import os
import selectors
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Protocol

import msgspec

from dropflow.clock import Clock
from dropflow.data.file import FileWriter, remove_part
from dropflow.data.storage_errors import storage_error
from dropflow.data.streams import StreamedWriter, StreamReader
from dropflow.data.workspace import Workspace
from dropflow.errors import GoneError, Interrupted
from dropflow.execution.content_location import Handle
from managers.links import WantedContent
from managers.messages import Content, StreamUpdate
from managers.node.contents import here, portable
from managers.node.fetch_pool import FetchJob, JobPool, PendingFetch, Receipts
from managers.node.neighbours import NodeLinks

_log = logging.getLogger(__name__)

_NAME = 64
"""Number of characters at the end of a file's name that are also the end of its copy's name."""
GONE = "the stream was discarded, or has no consumers left"
_JOIN_SECONDS = 5.0
"""Seconds that the threads of copies are waited for when a session closes."""

# The copy of one stream of another node, made while it grows.


class StreamCopy:
    """A transfer that writes the arriving data into a growing file.

    Parameters
    ----------
    workspace : Workspace
        Directory of the copy.
    stream : StreamUpdate
        The stream that is copied.
    handle : Handle
        The content that the copy will be, with its path here.
    on_open : callable
        Takes the stream of the copy, as soon as it has data. Called in the copy's thread.
    on_failure : callable
        Called when the copy will not be complete, so that its readers must start over; not after `give_up`.
    clock : Clock
        Tells the time.
    """

    def __init__(
        self,
        workspace: Workspace,
        stream: StreamUpdate,
        handle: Handle,
        *,
        on_open: Callable[[Handle], None],
        on_failure: Callable[[], None],
        clock: Clock,
    ) -> None:
        # Programs recognise files by the ends of their names.
        name = f"from-{stream.drop}-{stream.producer}-{stream.attempt}-{Path(handle.final).name[-_NAME:]}"
        path = f"{workspace.tmp}/{name}"
        self.attempt = stream.attempt
        self.producer = stream.producer
        self._stream = stream
        self._text = handle.text
        self._on_failure = on_failure
        self._part = StreamedWriter(FileWriter(path, final=handle.final), f"{path}.stream", on_open, self._check, clock)
        self._content: Handle | None = None
        self._done: Future[None] = Future()
        self._given_up = False

    @property
    def is_done(self) -> bool:
        """Whether no more data are written."""
        return self._done.done()

    def start(self, pool: JobPool, peer: str, session: str, receipts: Receipts) -> None:
        """Begin to copy, and count the bytes.

        Raises
        ------
        RuntimeError
            The system has no thread left.
        """
        pool.submit(peer, receipts.receiving(peer, None, self._run(peer, session)))

    def when_done(self, then: Callable[[], None]) -> None:
        """Call `then` when no more data are written: in the copy's thread, or now.

        The original is complete by then, so the copy does not wait for its readers any more.
        """
        self._part.stop_waiting()
        self._done.add_done_callback(lambda _: then())

    def take(self, content: Handle) -> Handle | None:
        """Return the copy if it is complete and matches `content`; otherwise have its readers start over."""
        copy = self._content
        if copy is None:
            return None
        if copy.size != content.size or (content.checksum and copy.checksum != content.checksum):
            _log.error("the copy of drop %s arrived damaged, and is fetched again", self._stream.drop)
            self._on_failure()
            remove_part(copy.location)
            return None
        return msgspec.structs.replace(content, location=copy.location)

    def give_up(self) -> None:
        """Stop, and remove the written data; from any thread. Wake the links afterwards, so that they notice."""
        self._given_up = True
        self._part.wake()
        if self.is_done:
            self._remove()

    def join(self, seconds: float) -> bool:
        """Wait until no more data are written; return False after `seconds`."""
        return bool(wait([self._done], seconds).done)

    def _run(self, peer: str, session: str) -> FetchJob:
        try:
            yield from self._copy(session)
        except BaseException as error:  # noqa: BLE001 - of any kind: its readers must not wait; a cancel is one too
            self._part.abandon()
            if not self._given_up:
                # A stream that is gone needs no warning: its producer starts over.
                level = logging.INFO if isinstance(error, GoneError) else logging.WARNING
                _log.log(level, "drop %s is not copied while node %s writes it: %s", self._stream.drop, peer, error)
                self._on_failure()
        self._done.set_result(None)
        if self._given_up:
            self._remove()

    def _copy(self, session: str) -> FetchJob:
        stream = self._stream
        wanted = WantedContent(
            session=session,
            drop=stream.drop,
            attempt=stream.attempt,
            producer=stream.producer,
            check=False,  # see take
        )
        yield PendingFetch(
            wanted, lambda _, data: self._part.write(data, text=self._text), None, lambda: self._given_up
        )
        self._content = self._part.finish()

    def _remove(self) -> None:
        if self._content is not None:
            remove_part(self._content.location)

    def _check(self) -> None:
        if self._given_up:
            raise Interrupted


# One stream that this node offers to others.


class StreamOffer:
    """`managers.links.ContentSource` over a stream; it stays offered when the data plane closes it.

    A complete stream stays offered while other nodes use their copies. There may be many such streams, so each has an
    open file only while the data plane reads it.

    Parameters
    ----------
    reader : StreamReader
        Reads the stream while it grows; closed with the offer.
    """

    def __init__(self, reader: StreamReader) -> None:
        self.reader = reader
        self.descriptor = reader.wake_fd
        """Readable when the stream has grown; -1 once nothing watches it."""
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
        """Return the written bytes of a range.

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
        """Note that the stream is complete, and the place of its content from now on."""
        with self._lock:
            if self._ended or self._content is not None:
                return
            self._content = content
            if self._is_wanted:  # a running transfer reads the same file, even if another file gets its name
                with contextlib.suppress(OSError):  # no descriptors left: the transfer opens the file by its name
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


# One thread that watches file descriptors: the FIFOs of all streams that a node offers to others.


class DescriptorWatcher(Protocol):
    """Watches file descriptors, as `FileWatcher` does."""

    def watch(self, descriptor: int, on_readable: Callable[[], None]) -> None:
        """Call `on_readable`, which reads the available data and does not raise, whenever `descriptor` is readable."""
        ...

    def unwatch(self, descriptor: int) -> None:
        """Stop watching; must be called before the descriptor is closed. Unknown descriptors are ignored."""
        ...


class FileWatcher:
    """Calls a function when a file descriptor is readable. The thread starts with the first descriptor."""

    def __init__(self) -> None:
        # Guards the selector and the table of functions. `unwatch` must have taken effect when it returns, because its
        # caller closes the descriptor, and another file may get the number soon: a queue would act too late.
        self._lock = threading.Lock()
        self._functions: dict[int, Callable[[], None]] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = os.pipe()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread: threading.Thread | None = None
        self._closed = False

    def watch(self, descriptor: int, on_readable: Callable[[], None]) -> None:
        """Call `on_readable`, which reads what is there and does not raise, whenever `descriptor` is readable."""
        with self._lock:
            if self._closed:
                return
            self._functions[descriptor] = on_readable
            self._selector.register(descriptor, selectors.EVENT_READ)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="file-watcher", daemon=True)
                self._thread.start()
            else:
                os.write(self._wake, b"!")

    def unwatch(self, descriptor: int) -> None:
        """Stop watching; must be called before the descriptor is closed. Unknown descriptors are ignored."""
        with self._lock:
            if self._functions.pop(descriptor, None) is not None and not self._closed:
                self._selector.unregister(descriptor)

    def close(self) -> None:
        """End the thread; idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            os.write(self._wake, b"!")
        if self._thread is not None:
            self._thread.join()
        self._selector.close()
        os.close(self._woken)
        os.close(self._wake)

    def _run(self) -> None:
        while True:
            ready = self._selector.select()
            with self._lock:
                if self._closed:
                    return
                for key, _ in ready:
                    if key.fd == self._woken:
                        os.read(self._woken, 1 << 16)
                    # A descriptor that is not watched any more may be another file by now.
                    on_readable = self._functions.get(key.fd)
                    if on_readable is not None:
                        on_readable()


class NodeStreams:
    """The streams that one session offers and follows. All methods but `source` are for the session's thread.

    Parameters
    ----------
    session : str
        Name of the session.
    workspace : Workspace
        Its directories.
    links : NodeLinks
        Links of this process.
    pool : JobPool
        Fetches streams, all at the same time.
    file_watcher : DescriptorWatcher
        Watches streams that are offered.
    receipts : Receipts
        Counts the fetched bytes.
    clock : Clock
        Tells the time.
    """

    def __init__(
        self,
        session: str,
        workspace: Workspace,
        *,
        links: NodeLinks,
        pool: JobPool,
        file_watcher: DescriptorWatcher,
        receipts: Receipts,
        clock: Clock,
    ) -> None:
        self._session = session
        self._workspace = workspace
        self._links = links
        self._pool = pool
        self._file_watcher = file_watcher
        self._receipts = receipts
        self._clock = clock
        self._offered: dict[int, dict[tuple[int, int], StreamOffer]] = {}
        """Offers by drop, then by attempt and producer."""
        self._copies: dict[int, StreamCopy] = {}
        self._running: list[StreamCopy] = []
        self._kept: dict[int, str] = {}

    # To others.

    def offer(self, drop: int, attempt: int, producer: int, handle: Handle) -> StreamUpdate:
        """Return the record to send about a stream; from now on it can be fetched.

        Parameters
        ----------
        drop, producer : int
            Rows of the whole graph.

        Raises
        ------
        StorageError
            It cannot be read.
        """
        key = (attempt, producer)
        if key not in self._offered.get(drop, ()):
            offer = StreamOffer(StreamReader(handle.location))
            self._offered.setdefault(drop, {})[key] = offer
            self._file_watcher.watch(offer.descriptor, lambda: self._on_growth(drop, offer.reader))
        sent = msgspec.structs.replace(portable(handle, self._workspace), location="")
        return StreamUpdate(drop, attempt, producer, sent)

    def complete(self, drop: int, content: Handle) -> None:
        """Note that the streams of a drop, if any are offered, have become this content."""
        for offer in self._offered.get(drop, {}).values():
            self._unwatch(offer)
            offer.complete(content)
            self._links.content_grew(self._session, drop)

    def withdraw(self, drop: int, attempt: int | None = None) -> None:
        """Stop offering the stream of this attempt, or of all attempts; its transfers fail."""
        offered = self._offered.get(drop)
        if offered is None:
            return
        offers = [offered.pop(key) for key in list(offered) if attempt in (None, key[0])]
        if not offered:
            del self._offered[drop]
        for offer in offers:
            self._unwatch(offer)
            offer.end()
        if offers:
            self._links.close_content(self._session, drop)
            self._links.content_grew(self._session, drop)

    def source(self, drop: int, attempt: int, producer: int) -> StreamOffer:
        """Return the source of a stream, for the data plane. For any thread.

        Raises
        ------
        GoneError
            It is no longer offered.
        """
        offer = self._offered.get(drop, {}).get((attempt, producer))
        if offer is None:
            raise GoneError(GONE)
        return offer

    def _unwatch(self, offer: StreamOffer) -> None:
        self._file_watcher.unwatch(offer.descriptor)
        offer.descriptor = -1  # another stream may get the number

    def _on_growth(self, drop: int, reader: StreamReader) -> None:
        reader.clear()
        self._links.content_grew(self._session, drop)

    # From others.

    def follow(
        self, peer: str, stream: StreamUpdate, on_open: Callable[[Handle], None], on_failure: Callable[[], None]
    ) -> None:
        """Copy a stream of `peer` while it grows, unless it is older than a stream that is copied already.

        Parameters
        ----------
        on_open : callable
            Takes the stream of the copy, as soon as it has data. Called in another thread.
        on_failure : callable
            Called when the copy will not be complete, so that its readers must start over; must lead to `remove_copy`
            in the session's thread. Called in any thread.

        Raises
        ------
        StorageError
            Its path leaves the session's directory.
        """
        assert stream.handle is not None  # it is open
        handle = here(stream.handle, self._workspace)
        known = self._copies.get(stream.drop)
        if known is not None and known.attempt >= stream.attempt:
            _log.warning("node %s writes attempt %s of drop %s again", peer, stream.attempt, stream.drop)
            return
        self.unfollow(stream.drop)
        copy = StreamCopy(self._workspace, stream, handle, on_open=on_open, on_failure=on_failure, clock=self._clock)
        self._running = [known for known in self._running if not known.is_done]
        self._copies[stream.drop] = copy
        try:
            copy.start(self._pool, peer, self._session, self._receipts)
        except RuntimeError as error:
            _log.warning("drop %s is fetched when it is complete: %s", stream.drop, error)
            del self._copies[stream.drop]
        else:
            self._running.append(copy)

    def unfollow(self, drop: int, attempt: int | None = None) -> None:
        """Stop copying the stream of this attempt, or of all attempts, and remove the copy."""
        copy = self._copies.get(drop)
        if copy is None or attempt not in (None, copy.attempt):
            return
        del self._copies[drop]
        copy.give_up()
        self._links.wake_waiting()

    def remove_copy(self, stream: StreamUpdate) -> None:
        """Forget the copy of a stream that failed."""
        copy = self._copies.get(stream.drop)
        if copy is not None and copy.attempt == stream.attempt:
            del self._copies[stream.drop]

    def unfinished_copy(self, contents: Sequence[Content]) -> StreamCopy | None:
        """Return a copy of one of these contents that is still being written; None if there is none."""
        for content in contents:
            copy = self._copy_of(content)
            if copy is not None and not copy.is_done:
                return copy
        return None

    def take_over(self, content: Content) -> Handle | None:
        """Return the complete copy of a stream that has become `content`.

        None if it was not followed, or if the copy does not match `content`; its readers start over then.
        """
        copy = self._copy_of(content)
        if copy is None or not copy.is_done:
            return None
        handle = copy.take(here(content.handle, self._workspace))
        if self._copies.get(content.drop) is copy:
            del self._copies[content.drop]
        if handle is not None and content.producer < 0:
            self._kept[content.drop] = handle.location
        return handle

    def remove_kept(self, drop: int) -> None:
        """Remove the complete copy of a drop, if there is one."""
        path = self._kept.pop(drop, None)
        if path is not None:
            remove_part(path)

    def close(self) -> None:
        """Stop offering, following and writing; idempotent."""
        for drop in {*self._offered, *self._copies}:
            self.withdraw(drop)
            self.unfollow(drop)
        end = self._clock.monotonic() + _JOIN_SECONDS
        # The session directory may be removed next: a late copy must not create it again.
        late = [copy for copy in self._running if not copy.join(max(0.0, end - self._clock.monotonic()))]
        if late:
            _log.warning("session %s does not wait for %s copies that do not end", self._session, len(late))

    def _copy_of(self, content: Content) -> StreamCopy | None:
        copy = self._copies.get(content.drop)
        return copy if copy is not None and copy.producer == content.producer else None
