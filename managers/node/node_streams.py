"""Streams on their way between nodes: data that are fetched while they are written.

A node that offers a stream reads it as far as other nodes request it, like any consumer: so the writer waits for the
first of the nodes as it waits for consumers, and the others read from the disk what it has written. A node that follows
a stream writes what arrives into a separate growing file, from which its consumers and further nodes read, and
requests no more than they keep up with. A transfer has its own thread while the data grow: if streams took turns
with whole contents, these could wait without end.
"""

import logging
from collections.abc import Callable, Sequence

import msgspec

from dropflow.clock import Clock
from dropflow.data.file_writer import remove_part
from dropflow.data.stream_reader import StreamReader
from dropflow.data.workspace import Workspace
from dropflow.engine.api import Handle
from dropflow.errors import GoneError, StorageError
from managers.messages import Content, StreamUpdate
from managers.node.fetch_pool import JobPool
from managers.node.file_watcher import DescriptorWatcher
from managers.node.node_links import NodeLinks
from managers.node.paths import here, portable
from managers.node.receipts import Receipts
from managers.node.stream_copy import StreamCopy
from managers.node.stream_offer import GONE, StreamOffer

__all__ = ["NodeStreams"]

_log = logging.getLogger(__name__)

_JOIN_SECONDS = 5.0


class NodeStreams:
    """The streams that one session offers and follows. All but `source` is for the session's thread.

    Parameters
    ----------
    session : str
        Name of the session.
    workspace : Workspace
        Its directories.
    links : NodeLinks
        Links of this process.
    pool : JobPool or None
        Fetches streams, all of them at the same time; without it, none are followed.
    file_watcher : DescriptorWatcher or None
        Watches streams that are offered; without it, none are.
    receipts : Receipts
        Counts what is fetched.
    clock : Clock
        Time.
    """

    def __init__(
        self,
        session: str,
        workspace: Workspace,
        *,
        links: NodeLinks,
        pool: JobPool | None,
        file_watcher: DescriptorWatcher | None,
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
        """By drop, then by attempt and producer."""
        self._copies: dict[int, StreamCopy] = {}
        self._running: list[StreamCopy] = []
        self._kept: dict[int, str] = {}

    # To others.

    def offer(self, drop: int, attempt: int, producer: int, handle: Handle) -> StreamUpdate:
        """Return what to send about a stream; from now on it can be fetched.

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
            if self._file_watcher is None:
                raise StorageError("streams are not watched in this process", where=handle.location)
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
        """Stop offering what this attempt writes, or any attempt; transfers of it fail."""
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
        if self._file_watcher is not None:
            self._file_watcher.unwatch(offer.descriptor)

    def _on_growth(self, drop: int, reader: StreamReader) -> None:
        reader.clear()
        self._links.content_grew(self._session, drop)

    # From others.

    def follow(
        self, peer: str, stream: StreamUpdate, on_open: Callable[[Handle], None], on_failure: Callable[[], None]
    ) -> None:
        """Copy a stream of `peer` while it grows, unless it is older than what is copied already.

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
        assert stream.handle is not None  # noqa: S101 - it is open
        handle = here(stream.handle, self._workspace)
        known = self._copies.get(stream.drop)
        if known is not None and known.attempt >= stream.attempt:
            _log.warning("node %s writes attempt %s of drop %s again", peer, stream.attempt, stream.drop)
            return
        self.unfollow(stream.drop)
        if self._pool is None:
            return
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
        """Stop copying what this attempt writes, or any attempt, and remove the copy."""
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

        None if it was not followed, or if the copy does not match `content`; its readers were told to start over then.
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
        # The session's directory may be removed next: a late copy must not create it again.
        late = [copy for copy in self._running if not copy.join(max(0.0, end - self._clock.monotonic()))]
        if late:
            _log.warning("session %s does not wait for %s copies that do not end", self._session, len(late))

    def _copy_of(self, content: Content) -> StreamCopy | None:
        copy = self._copies.get(content.drop)
        return copy if copy is not None and copy.producer == content.producer else None
