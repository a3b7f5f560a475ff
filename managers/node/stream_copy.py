"""One stream of another node that this one copies while it grows."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from dropflow.clock import Clock
from dropflow.data.file_writer import FileWriter, remove_part
from dropflow.data.streams import StreamedWriter
from dropflow.data.workspace import Workspace
from dropflow.engine.api import Handle
from dropflow.errors import CancelledRunError, GoneError
from managers.links import Links, WantedContent
from managers.messages import StreamUpdate

__all__ = ["StreamCopy"]

_log = logging.getLogger(__name__)

_NAME = 64
"""Characters at the end of a file's name that its copy shares."""


class StreamCopy:
    """A transfer that writes what comes into a growing file, in a thread of its own.

    Parameters
    ----------
    workspace : Workspace
        Where to write it.
    stream : StreamUpdate
        What is copied.
    handle : Handle
        What it is going to be, with the path that it has here.
    on_open : callable
        Takes the stream of the copy, as soon as something is in it. Called in the copy's thread, as are the others.
    on_failure : callable
        The copy will not be complete, and who reads it must start over. Not called after `give_up`.
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
        # Programs look at the ends of names.
        name = f"from-{stream.drop}-{stream.producer}-{stream.attempt}-{Path(handle.final).name[-_NAME:]}"
        path = f"{workspace.tmp}/{name}"
        self.attempt = stream.attempt
        self.producer = stream.producer
        self._stream = stream
        self._text = handle.text
        self._on_failure = on_failure
        self._part = StreamedWriter(FileWriter(path, final=handle.final), f"{path}.stream", on_open, self._check, clock)
        self._content: Handle | None = None
        self._lock = threading.Lock()
        self._is_done = False
        self._waiting: list[Callable[[], None]] = []
        self._given_up = False
        self._thread: threading.Thread | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing more comes."""
        return self._is_done

    def start(self, links: Links, peer: str, session: str) -> None:
        """Begin to copy.

        Raises
        ------
        RuntimeError
            There can be no more threads.
        """
        name = f"stream-{self._stream.drop}"
        thread = threading.Thread(target=self._run, args=(links, peer, session), name=name, daemon=True)
        thread.start()
        self._thread = thread

    def once_done(self, then: Callable[[], None]) -> None:
        """Call this when nothing more comes: in the copy's thread, or now.

        Its original is complete then, and no reason any more to wait for readers here: others wait for the whole.
        """
        self._part.hurry()
        with self._lock:
            if not self._is_done:
                self._waiting.append(then)
                return
        then()

    def take(self, content: Handle) -> Handle | None:
        """The copy, if it is complete and as `content` says; where not, who read it was told to start over."""
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
        """StopSession, and remove what was written; from any thread. The links are to be nudged."""
        self._given_up = True
        self._part.wake()
        if self._is_done:
            self._remove()

    def join(self, seconds: float) -> bool:
        """Wait for the end of the thread; whether it has ended."""
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self, links: Links, peer: str, session: str) -> None:
        try:
            self._copy(links, peer, session)
        except BaseException as error:  # noqa: BLE001 - whatever it is, nobody may wait for it; a cancel is one too
            self._part.abandon()
            if not self._given_up:
                # That it is gone is a matter of course: its producer has to begin again.
                level = logging.INFO if isinstance(error, GoneError) else logging.WARNING
                _log.log(level, "drop %s is not followed while node %s writes it: %s", self._stream.drop, peer, error)
                self._on_failure()
        with self._lock:
            self._is_done = True
            waiting, self._waiting = self._waiting, []
        if self._given_up:
            self._remove()
        for then in waiting:
            then()

    def _copy(self, links: Links, peer: str, session: str) -> None:
        stream = self._stream
        wanted = WantedContent(
            session=session,
            drop=stream.drop,
            attempt=stream.attempt,
            producer=stream.producer,
            check=False,  # see take
        )
        links.fetch(
            peer,
            wanted,
            lambda _, data: self._part.write(data, text=self._text),
            give_up=lambda: self._given_up,
        )
        self._content = self._part.finish()

    def _remove(self) -> None:
        if self._content is not None:
            remove_part(self._content.location)

    def _check(self) -> None:
        if self._given_up:
            raise CancelledRunError
