"""Streams on their way between nodes: data that are fetched while they are being written.

A node that offers a stream reads it as far as it is asked, like any consumer: so the writer waits for the first of the
nodes as it waits for consumers, and those behind read from the disk what it has written. A node that follows one writes
what comes into a growing file of its own, from which its consumers, and further nodes, read, and asks for no more than
they keep up with. A transfer has a thread of its own as long as the data grow, for it must not take turns with those of
whole contents: they could never get through.
"""

import logging
import threading
from collections.abc import Callable, Sequence

import msgspec

from dropflow.clock import Clock
from dropflow.data.file_writer import remove_part
from dropflow.data.streams import StreamReader
from dropflow.data.workspace import Workspace
from dropflow.engine.api import Handle
from dropflow.errors import GoneError
from managers.links import Links
from managers.messages import Content, StreamUpdate
from managers.node.file_watcher import FileWatcher
from managers.node.paths import here, portable
from managers.node.stream_copy import StreamCopy
from managers.node.stream_offer import GONE, StreamOffer

__all__ = ["NodeStreams"]

_log = logging.getLogger(__name__)

_JOIN_SECONDS = 5.0


class NodeStreams:
    """What one session offers and follows.

    `source`, `once_copied` and `take_over` are for any thread, all else for the session's.

    Parameters
    ----------
    session : str
        Name of the session.
    workspace : Workspace
        Its directories.
    links : Links
        Of this process.
    file_watcher : FileWatcher
        Hears when what is offered grows.
    clock : Clock
        Time.
    """

    def __init__(
        self, session: str, workspace: Workspace, *, links: Links, file_watcher: FileWatcher, clock: Clock
    ) -> None:
        self._session = session
        self._workspace = workspace
        self._links = links
        self._file_watcher = file_watcher
        self._clock = clock
        self._lock = threading.Lock()
        self._offered: dict[int, dict[tuple[int, int], StreamOffer]] = {}
        """By drop, then by attempt and producer."""
        self._copies: dict[int, StreamCopy] = {}
        self._running: list[StreamCopy] = []
        self._kept: dict[int, str] = {}

    # To others.

    def offer(self, drop: int, attempt: int, producer: int, handle: Handle) -> StreamUpdate:
        """What to say of a stream; from now on it can be fetched.

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
            with self._lock:
                self._offered.setdefault(drop, {})[key] = offer
            self._file_watcher.watch(offer.bell, lambda: self._heard(drop, offer.reader))
        told = msgspec.structs.replace(portable(handle, self._workspace), location="")
        return StreamUpdate(drop, attempt, producer, told)

    def complete(self, drop: int, content: Handle) -> None:
        """What is offered of a drop, if anything, has become this content."""
        for offer in self._offered.get(drop, {}).values():
            self._file_watcher.forget(offer.bell)
            offer.complete(content)
            self._links.content_grew(self._session, drop)

    def withdraw(self, drop: int, attempt: int | None = None) -> None:
        """StreamOffer no longer what this attempt writes, or any attempt; who waits for more of it is told so."""
        offered = self._offered.get(drop)
        if offered is None:
            return
        with self._lock:
            offers = [offered.pop(key) for key in list(offered) if attempt in (None, key[0])]
            if not offered:
                del self._offered[drop]
        for offer in offers:
            self._file_watcher.forget(offer.bell)
            offer.end()
        if offers:
            self._links.close_content(self._session, drop)
            self._links.content_grew(self._session, drop)

    def source(self, drop: int, attempt: int, producer: int) -> StreamOffer:
        """Read what is offered, for the data plane.

        Raises
        ------
        GoneError
            It is offered no longer.
        """
        with self._lock:
            offer = self._offered.get(drop, {}).get((attempt, producer))
        if offer is None:
            raise GoneError(GONE)
        return offer

    def _heard(self, drop: int, reader: StreamReader) -> None:
        reader.hear()
        self._links.content_grew(self._session, drop)

    # From others.

    def follow(
        self, peer: str, stream: StreamUpdate, on_open: Callable[[Handle], None], on_failure: Callable[[], None]
    ) -> None:
        """StreamCopy a stream of `peer` as it comes, unless it is older than what is copied already.

        Both callables are called in another thread.

        Parameters
        ----------
        on_open : callable
            Takes the stream of the copy, as soon as something is in it.
        on_failure : callable
            The copy will not be complete, and who reads it must start over.

        Raises
        ------
        StorageError
            Its path leaves the session's directory.
        """
        assert stream.handle is not None  # noqa: S101 - it is open
        handle = here(stream.handle, self._workspace)
        with self._lock:
            known = self._copies.get(stream.drop)
        if known is not None and known.attempt >= stream.attempt:
            _log.warning("node %s writes attempt %s of drop %s again", peer, stream.attempt, stream.drop)
            return
        self.unfollow(stream.drop)
        copy = StreamCopy(
            self._workspace,
            stream,
            handle,
            on_open=on_open,
            on_failure=lambda: self._failed(stream, on_failure),
            clock=self._clock,
        )
        self._running = [known for known in self._running if not known.is_done]
        with self._lock:
            self._copies[stream.drop] = copy
        try:
            copy.start(self._links, peer, self._session)
        except RuntimeError as error:
            _log.warning("drop %s is fetched when it is complete: %s", stream.drop, error)
            with self._lock:
                del self._copies[stream.drop]
        else:
            self._running.append(copy)

    def unfollow(self, drop: int, attempt: int | None = None) -> None:
        """StreamCopy no longer what this attempt writes, or any attempt, and remove what there is of the copy."""
        with self._lock:
            copy = self._copies.get(drop)
            if copy is None or attempt not in (None, copy.attempt):
                return
            del self._copies[drop]
        copy.give_up()
        self._links.wake_waiting()

    def once_copied(self, contents: Sequence[Content], then: Callable[[], None]) -> None:
        """Call `then`, which does not wait, when nothing more comes of those contents that are followed: perhaps now.

        So that nobody waits for copies: there may be many, and the links to their node slow.
        """
        for content in contents:
            copy = self._copy_of(content)
            if copy is not None and not copy.is_done:
                copy.once_done(lambda: self.once_copied(contents, then))
                return
        then()

    def take_over(self, content: Content) -> Handle | None:
        """The complete copy of what was followed, instead of fetching `content`; see `once_copied`.

        None if it was not followed, or the copy is not what `content` says; who read it was told to start over.
        """
        copy = self._copy_of(content)
        if copy is None or not copy.is_done:
            return None
        handle = copy.take(here(content.handle, self._workspace))
        with self._lock:
            if self._copies.get(content.drop) is copy:
                del self._copies[content.drop]
            if handle is not None and content.producer < 0:
                self._kept[content.drop] = handle.location
        return handle

    def forget(self, drop: int) -> None:
        """Remove the complete copy of a drop, if there is one."""
        if not self._kept:
            return
        with self._lock:
            path = self._kept.pop(drop, None)
        if path is not None:
            remove_part(path)

    def close(self) -> None:
        """StreamOffer and follow nothing any more, and write nothing; idempotent."""
        with self._lock:
            drops = {*self._offered, *self._copies}
        for drop in drops:
            self.withdraw(drop)
            self.unfollow(drop)
        end = self._clock.monotonic() + _JOIN_SECONDS
        # Whoever removes the session's directory next must not find it made again.
        late = [copy for copy in self._running if not copy.join(max(0.0, end - self._clock.monotonic()))]
        if late:
            _log.warning("session %s does not wait for %s copies that do not end", self._session, len(late))

    def _copy_of(self, content: Content) -> StreamCopy | None:
        with self._lock:
            copy = self._copies.get(content.drop)
        return copy if copy is not None and copy.producer == content.producer else None

    def _failed(self, stream: StreamUpdate, on_failure: Callable[[], None]) -> None:
        with self._lock:
            copy = self._copies.get(stream.drop)
            if copy is not None and copy.attempt == stream.attempt:
                del self._copies[stream.drop]
        on_failure()
