"""Streams on their way between nodes: data that are fetched while they are being written.

A node that offers a stream reads it as far as it is asked, like any consumer: so the writer waits for the slowest node
as it waits for the slowest consumer. A node that follows one writes what comes into a growing file of its own, from
which its consumers, and further nodes, read, and asks for no more than they keep up with. A transfer has a thread of
its own as long as the data grow, for it must not take turns with those of whole contents: they could never get through.
"""

import logging
import threading
from collections.abc import Callable

import msgspec

from dropflow.clock import Clock
from dropflow.data.parts import FilePart, remove_part
from dropflow.data.streams import StreamedPart, StreamReader
from dropflow.data.workspace import Workspace
from dropflow.engine.api import Handle
from dropflow.errors import CancelledRunError, GoneError
from managers.links import Links
from managers.messages import Content, Stream
from managers.node.bells import Bells
from managers.node.paths import here, portable

__all__ = ["NodeStreams"]

_log = logging.getLogger(__name__)

_GONE = "what was written counts no more, or nobody needs it"


class NodeStreams:
    """What one session offers and follows. `source` and `take_over` are for any thread, all else for the session's.

    Parameters
    ----------
    session : str
        Name of the session.
    workspace : Workspace
        Its directories.
    links : Links
        Of this process.
    bells : Bells
        Hears when what is offered grows.
    clock : Clock
        Time.
    """

    def __init__(self, session: str, workspace: Workspace, *, links: Links, bells: Bells, clock: Clock) -> None:
        self._session = session
        self._workspace = workspace
        self._links = links
        self._bells = bells
        self._clock = clock
        self._lock = threading.Lock()
        self._offered: dict[tuple[int, int, int], _Offer] = {}
        self._copies: dict[tuple[int, int], _Copy] = {}
        self._kept: dict[int, str] = {}

    # To others.

    def offer(self, drop: int, attempt: int, producer: int, handle: Handle) -> Stream:
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
        key = (drop, attempt, producer)
        if key not in self._offered:
            offer = _Offer(StreamReader(handle.location))
            with self._lock:
                self._offered[key] = offer
            self._bells.watch(offer.reader.bell, lambda: self._heard(drop, offer.reader))
        told = msgspec.structs.replace(portable(handle, self._workspace), location="")
        return Stream(drop, attempt, producer, told)

    def withdraw(self, drop: int, attempt: int | None = None) -> None:
        """Offer no longer what this attempt writes, or any attempt; who waits for more of it is told so."""
        if not self._offered:
            return
        with self._lock:
            gone = [key for key in self._offered if key[0] == drop and attempt in (None, key[1])]
            offers = [self._offered.pop(key) for key in gone]
        for offer in offers:
            self._bells.forget(offer.reader.bell)
            offer.end()
        if offers:
            self._links.forget(self._session, drop)
            self._links.grown(self._session, drop)

    def source(self, drop: int, attempt: int, producer: int) -> "_Offer":
        """Read what is offered, for the data plane.

        Raises
        ------
        GoneError
            It is offered no longer.
        """
        with self._lock:
            offer = self._offered.get((drop, attempt, producer))
        if offer is None:
            raise GoneError(_GONE)
        return offer

    def _heard(self, drop: int, reader: StreamReader) -> None:
        reader.hear()
        self._links.grown(self._session, drop)

    # From others.

    def follow(
        self, peer: str, stream: Stream, on_open: Callable[[Handle], None], on_failure: Callable[[], None]
    ) -> None:
        """Copy a stream of `peer` as it comes. Both callables are called in another thread.

        Parameters
        ----------
        on_open : callable
            Takes the stream of the copy, as soon as something is in it.
        on_failure : callable
            The copy will not be complete, and who reads it must start over.
        """
        assert stream.handle is not None  # noqa: S101 - it is open
        self.unfollow(stream.drop)
        handle = here(stream.handle, self._workspace)
        copy = _Copy(self._workspace, stream, handle, on_open, on_failure, self._clock)
        with self._lock:
            self._copies[stream.drop, stream.producer] = copy
        copy.start(self._links, peer, self._session)

    def unfollow(self, drop: int, attempt: int | None = None) -> None:
        """Copy no longer what this attempt writes, or any attempt, and remove what there is of the copy."""
        if not self._copies:
            return
        with self._lock:
            found = [key for key, copy in self._copies.items() if key[0] == drop and attempt in (None, copy.attempt)]
            copies = [self._copies.pop(key) for key in found]
        for copy in copies:
            copy.give_up()
        if copies:
            self._links.nudge()

    def take_over(self, content: Content) -> Handle | None:
        """The complete copy of what was followed, instead of fetching `content`; waits for its end.

        None if it was not followed, or the copy is not what `content` says; who read it was told to start over.
        """
        key = (content.drop, content.producer)
        with self._lock:
            copy = self._copies.get(key)
        if copy is None:
            return None
        handle = copy.wait(here(content.handle, self._workspace))
        with self._lock:
            self._copies.pop(key, None)
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
        """Offer and follow nothing any more; idempotent."""
        with self._lock:
            drops = {key[0] for key in (*self._offered, *self._copies)}
        for drop in drops:
            self.withdraw(drop)
            self.unfollow(drop)


class _Offer:
    """`managers.links.Source` over a stream, which is offered on when the data plane has closed it."""

    def __init__(self, reader: StreamReader) -> None:
        self.reader = reader
        self._lock = threading.Lock()
        self._ended = False

    @property
    def size(self) -> int | None:
        """Bytes, once it has ended."""
        return self.reader.wait_for_end().size if self.reader.is_ended else None

    def read(self, offset: int, length: int) -> bytes:
        """What there is of a range."""
        with self._lock:  # the number of a file that was closed may be that of another one
            if self._ended:
                raise GoneError(_GONE)
            return self.reader.pread(offset, length)

    def close(self) -> None:
        """Nothing: see `end`."""

    def end(self) -> None:
        """Offer it no more."""
        with self._lock:
            self._ended = True
            self.reader.close()


class _Copy:
    """A transfer that writes what comes into a growing file."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        workspace: Workspace,
        stream: Stream,
        handle: Handle,
        on_open: Callable[[Handle], None],
        on_failure: Callable[[], None],
        clock: Clock,
    ) -> None:
        path = f"{workspace.tmp}/from-{stream.drop}-{stream.producer}-{stream.attempt}"
        self.attempt = stream.attempt
        self._stream = stream
        self._text = handle.text
        self._final = handle.final
        self._on_failure = on_failure
        self._part = StreamedPart(FilePart(path, final=handle.final), f"{path}.stream", on_open, self._check, clock)
        self._content: Handle | None = None
        self._done = threading.Event()
        self._given_up = False

    def start(self, links: Links, peer: str, session: str) -> None:
        """Begin to copy, in a thread of its own."""
        name = f"stream-{self._stream.drop}"
        threading.Thread(target=self._run, args=(links, peer, session), name=name, daemon=True).start()

    def wait(self, content: Handle) -> Handle | None:
        """The copy, once it is complete, if it is as `content` says.

        That is no reason any more to wait for readers here: whoever wants the whole has to wait for this.
        """
        self._part.hurry()
        self._done.wait()
        copy = self._content
        if copy is None:
            return None
        if copy.size != content.size or (content.checksum and copy.checksum != content.checksum):
            _log.error("the copy of drop %s came damaged, and is fetched again", self._stream.drop)
            self._on_failure()
            remove_part(copy.location)
            return None
        return msgspec.structs.replace(content, location=copy.location)

    def give_up(self) -> None:
        """Stop, and remove what was written; from any thread. The links are to be nudged."""
        self._given_up = True
        self._part.wake()
        if self._done.is_set() and self._content is not None:
            remove_part(self._content.location)

    def _run(self, links: Links, peer: str, session: str) -> None:
        stream = self._stream
        try:
            links.fetch(
                peer,
                session,
                stream.drop,
                lambda _, data: self._part.write(data, text=self._text),
                attempt=stream.attempt,
                producer=stream.producer,
                give_up=lambda: self._given_up,
            )
            self._content = self._part.finish()
        except BaseException as error:  # noqa: BLE001 - whatever it is, nobody may wait for it; a cancel is one too
            self._part.abandon()
            if not self._given_up:
                _log.warning("drop %s cannot be followed while node %s writes it: %s", stream.drop, peer, error)
                self._on_failure()
        finally:
            self._done.set()
        if self._given_up and self._content is not None:
            remove_part(self._content.location)

    def _check(self) -> None:
        if self._given_up:
            raise CancelledRunError
