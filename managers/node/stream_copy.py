"""The copy of one stream of another node, made while it grows."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path

import msgspec

from dropflow.clock import Clock
from dropflow.data.file_writer import FileWriter, remove_part
from dropflow.data.streamed_writer import StreamedWriter
from dropflow.data.workspace import Workspace
from dropflow.engine.api import Handle
from dropflow.errors import GoneError, Interrupted
from managers.links import WantedContent
from managers.messages import StreamUpdate
from managers.node.fetch_pool import FetchJob, JobPool, PendingFetch
from managers.node.receipts import Receipts

__all__ = ["StreamCopy"]

_log = logging.getLogger(__name__)

_NAME = 64
"""Characters at the end of a file's name that its copy has too."""


class StreamCopy:
    """A transfer that writes what arrives into a growing file.

    Parameters
    ----------
    workspace : Workspace
        Directory of the copy.
    stream : StreamUpdate
        The stream that is copied.
    handle : Handle
        The content that it will be, with its path here.
    on_open : callable
        Takes the stream of the copy, as soon as it has data. Called in the copy's thread.
    on_failure : callable
        Called when the copy will not be complete, so that its readers must start over; not after `give_up`.
    clock : Clock
        Time.
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
        """Whether nothing more is written."""
        return self._done.done()

    def start(self, pool: JobPool, peer: str, session: str, receipts: Receipts) -> None:
        """Begin to copy, and count what comes.

        Raises
        ------
        RuntimeError
            The system has no thread left.
        """
        pool.submit(peer, receipts.receiving(peer, None, self._run(peer, session)))

    def when_done(self, then: Callable[[], None]) -> None:
        """Call `then` when nothing more is written: in the copy's thread, or now.

        The original is complete by then, so the copy does not wait for its readers any more.
        """
        self._part.stop_waiting()
        self._done.add_done_callback(lambda _: then())

    def take(self, content: Handle) -> Handle | None:
        """Return the copy if it is complete and matches `content`; otherwise its readers are told to start over."""
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
        """Stop, and remove what was written; from any thread. The links are to be nudged."""
        self._given_up = True
        self._part.wake()
        if self.is_done:
            self._remove()

    def join(self, seconds: float) -> bool:
        """Wait until nothing more is written; return whether that is so."""
        return bool(wait([self._done], seconds).done)

    def _run(self, peer: str, session: str) -> FetchJob:
        try:
            yield from self._copy(session)
        except BaseException as error:  # noqa: BLE001 - of any kind: its readers must not wait; a cancel is one too
            self._part.abandon()
            if not self._given_up:
                # A stream that is gone is no problem: its producer starts over.
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
