"""Previews and pictures of contents, made by separate processes.

Decoders of files of users can crash, hang, take all memory, and read beyond the end of a buffer. So they run in a fresh
process (`dropflow.preview.worker`) with limits, which inherits neither the memory of the manager nor its environment,
and gets one open file at a time. If it dies, one preview fails.
"""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import msgspec

from dropflow.api.contents_answer import Download
from dropflow.clock import SystemClock
from dropflow.data.read import open_file
from dropflow.data.remote import url_of
from dropflow.errors import BadFileError, GoneError, PreviewError, StorageError, WorldError
from dropflow.execution.content_location import Handle
from dropflow.preview.source import HEAD_BYTES, Preview, PreviewAnswer, PreviewQuery, PreviewRequest, picture_type
from managers.node.downloads import refuse_changed

_log = logging.getLogger(__name__)

_LONGEST = 16 << 20
"""Most bytes of an answer: a picture file has 8 MB at most."""
_PREVIEW_PROCESSES = 2
"""Processes that make previews at the same time."""
_REQUESTS = 500
"""Number of requests after which a process is replaced."""
_WAITING, _WAITING_IN_SESSION = 12, 8
"""Most requests that wait, in all and in one session: each holds a thread of the server."""
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "PYTHONUSERBASE")
_SETTINGS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
_HINT = "download it"


class PreviewLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the process that reads one content for a preview.

    Attributes
    ----------
    processor : int
        Seconds of processor time.
    seconds, patience : float
        Seconds for one request, and seconds that a request may wait for a process before.
    memory : int
        Bytes of address space.
    """

    processor: int = 10
    seconds: float = 15.0
    patience: float = 10.0
    memory: int = 2 << 30


class ContentPreviews:
    """Reads contents in at most two processes, which are started when they are needed, and stay.

    A session has one process at a time, and sessions that wait take turns. So slow contents of one session do not delay
    contents of other sessions.
    """

    def __init__(self, limits: PreviewLimits | None = None) -> None:
        self._limits = limits or PreviewLimits()
        # Guards the four attributes below. The threads of the server wait for their turns here.
        self._change = threading.Condition()
        self._waiting: dict[str, int] = {}
        """Number of requests that wait, by session, in the order of their turns."""
        self._busy: dict[str, _Process | None] = {}
        self._idle: list[_Process] = []
        self._is_closed = False

    def preview(self, session: str, handle: Handle, query: PreviewQuery) -> Preview:
        """Return a bounded part of a content.

        Raises
        ------
        GoneError
            The content is elsewhere, is missing, or its size has changed since its commit.
        StorageError
            It cannot be read.
        PreviewError
            Reading it took too long, or ended the process.
        WorldError
            All processes are busy.
        """
        answer = self._ask(session, handle, query, is_picture=False)
        assert answer.preview is not None  # see _Process.ask
        return answer.preview

    def picture(self, session: str, handle: Handle, name: str, query: PreviewQuery) -> Download:
        """Return a content as a picture.

        Raises
        ------
        BadFileError
            The content has no picture, or is damaged.
        GoneError, StorageError, PreviewError, WorldError
            See `preview`.
        """
        data = self._ask(session, handle, query, is_picture=True).picture
        kind = picture_type(data)
        return Download(
            name=f"{name}.{kind.rpartition('/')[2]}", content_type=kind, size=len(data), chunks=iter((data,))
        )

    def close(self) -> None:
        """End the processes. Idempotent."""
        with self._change:
            self._is_closed = True
            for process in (*self._idle, *self._busy.values()):
                if process is not None:
                    process.kill()
            self._change.notify_all()
        while self._idle:
            self._idle.pop().close()

    def _ask(self, session: str, handle: Handle, query: PreviewQuery, *, is_picture: bool) -> PreviewAnswer:
        with contextlib.ExitStack() as stack:
            request, descriptors = PreviewRequest(query=query, is_picture=is_picture), []
            if handle.kind in ("bytes", "null"):
                request = msgspec.structs.replace(request, body=handle.body)
            elif handle.kind == "url":
                raise GoneError(
                    f"the content is at {url_of(handle.location)}, not on this node", hint="download it whole"
                )
            else:
                refuse_changed(handle)
                if handle.kind == "directory":
                    request = msgspec.structs.replace(request, folder=handle.location)
                else:
                    try:
                        stream = stack.enter_context(open_file(handle.location))
                    except OSError as error:
                        text = f"cannot be read: {error.strerror}"
                        raise StorageError(text, where=handle.location) from error
                    name = os.path.basename(handle.location)  # noqa: PTH119 - text, as handles have it
                    request, descriptors = msgspec.structs.replace(request, name=name), [stream.fileno()]
            answer = stack.enter_context(self._process(session)).ask(request, descriptors)
        if answer.bug:
            _log.error("a content cannot be shown:\n%s", answer.bug)
            reason = answer.bug.strip().splitlines()[-1]
            raise BadFileError(f"cannot be shown: {reason}", where=handle.location, hint="download it")
        if answer.trouble:
            raise BadFileError(answer.trouble, where=answer.where, hint=answer.hint)
        return answer

    @contextlib.contextmanager
    def _process(self, session: str) -> "Iterator[_Process]":
        """Wait for the turn of a session, and have a process for it."""
        self._wait(session)
        process = None
        try:
            process = self._started(session)
            yield process
        finally:
            with self._change:
                del self._busy[session]
                if process is not None and process.is_usable and not self._is_closed:
                    self._idle.append(process)
                    process = None
                self._change.notify_all()
            if process is not None:
                process.close()

    def _wait(self, session: str) -> None:
        """Wait until one process more is allowed, the session has none, and no other session has waited longer."""

        def is_next() -> bool:
            turn = next((name for name in self._waiting if name not in self._busy), "")
            return self._is_closed or (len(self._busy) < _PREVIEW_PROCESSES and turn == session)

        with self._change:
            waiting = self._waiting.get(session, 0)
            is_full = waiting >= _WAITING_IN_SESSION or sum(self._waiting.values()) >= _WAITING
            if not is_full:
                self._waiting[session] = waiting + 1
                is_full = not self._change.wait_for(is_next, self._limits.patience)
                left = self._waiting.pop(session) - 1
                if left:
                    self._waiting[session] = left  # behind the other sessions
                self._change.notify_all()
            if is_full:
                raise WorldError("too many previews are made on this node already", hint="try again in a moment")
            if self._is_closed:
                raise WorldError("the node manager is being closed")
            self._busy[session] = None

    def _started(self, session: str) -> "_Process":
        """Return a process that runs, for the turn of a session."""
        with self._change:
            process = self._idle.pop() if self._idle else None
        if process is not None and not process.is_usable:  # the process ended while it was idle
            process.close()
            process = None
        if process is None:
            process = _Process(self._limits)
        with self._change:
            self._busy[session] = process
            if self._is_closed:
                process.kill()
        return process


class _Process:
    """A process that answers requests, one after the other."""

    def __init__(self, limits: PreviewLimits) -> None:
        self._limits, self._clock = limits, SystemClock()
        self._requests, self._is_in_step = 0, True
        command = [sys.executable, "-P", "-X", "faulthandler", "-m", "dropflow.preview.worker"]
        try:
            self._link, theirs = socket.socketpair()
        except OSError as error:
            raise _not_started(error) from error
        try:
            with theirs:
                self._popen = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                    [*command, str(theirs.fileno()), str(limits.memory), str(limits.processor)],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.PIPE,  # it closes when this process ends, which ends the child
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env={name: os.environ[name] for name in _KEPT if name in os.environ} | _SETTINGS,
                    cwd="/",
                    start_new_session=True,
                )
        except OSError as error:
            self._link.close()
            raise _not_started(error) from error

    @property
    def is_usable(self) -> bool:
        """Whether it takes requests."""
        return self._is_in_step and self._requests < _REQUESTS and self._popen.poll() is None

    def ask(self, request: PreviewRequest, descriptors: list[int]) -> PreviewAnswer:
        """Return the answer to a request, which contains a preview or an error.

        Raises
        ------
        PreviewError
            The process ended, took too long, or gave a wrong answer. It is not usable any more.
        """
        self._requests, self._is_in_step = self._requests + 1, False  # True again when its answer is here
        deadline = self._clock.monotonic() + self._limits.seconds
        body = msgspec.msgpack.encode(request)
        try:
            self._link.settimeout(self._limits.seconds)
            socket.send_fds(self._link, [len(body).to_bytes(HEAD_BYTES, "big")], descriptors)
            self._link.sendall(body)
            length = int.from_bytes(self._received(HEAD_BYTES, deadline), "big")
            if length > _LONGEST:
                raise self._failed(f"answered with {length:,} bytes")
            answer = msgspec.msgpack.decode(self._received(length, deadline), type=PreviewAnswer)
        except TimeoutError as error:
            raise self._failed(f"took more than {self._limits.seconds:g} s") from error
        except OSError as error:
            raise self._failed(self._end()) from error
        except msgspec.MsgspecError as error:
            raise self._failed("gave an answer that cannot be read") from error
        is_right = picture_type(answer.picture) if request.is_picture else answer.preview is not None
        if not is_right and not answer.trouble and not answer.bug:
            raise self._failed("gave an answer without the preview")
        self._is_in_step = True
        return answer

    def kill(self) -> None:
        """End the process; the request that waits for its answer fails."""
        self._popen.kill()

    def close(self) -> None:
        """End the process, if it has not ended, and close the pipes."""
        self.kill()
        self._link.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # the process hangs in the kernel
            self._popen.wait(1.0)
        for pipe in (self._popen.stdin, self._popen.stderr):
            if pipe is not None:
                pipe.close()

    def _received(self, count: int, deadline: float) -> bytes:
        pieces = bytearray()
        while len(pieces) < count:
            self._link.settimeout(max(deadline - self._clock.monotonic(), 0.001))
            piece = self._link.recv(min(count - len(pieces), 1 << 20))
            if not piece:
                raise ConnectionResetError
            pieces += piece
        return bytes(pieces)

    def _end(self) -> str:
        """Return how the process ended. Its socket is closed."""
        try:
            status = self._popen.wait(1.0)
        except subprocess.TimeoutExpired:
            return "closed its socket"
        if status == -signal.SIGXCPU:
            return f"took more than {self._limits.processor} s of processor time"
        if status >= 0:
            return f"ended with status {status}"
        name = next((known.name for known in signal.Signals if known == -status), f"signal {-status}")
        return f"was ended by {name}"

    def _failed(self, reason: str) -> PreviewError:
        """End the process, and return the error of its request."""
        self._popen.kill()
        printed = b""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(1.0)
            assert self._popen.stderr is not None  # a pipe
            os.set_blocking(self._popen.stderr.fileno(), False)
            printed = self._popen.stderr.read(1 << 16) or b""
        text = f"the process that reads the content for a preview {reason}"
        _log.warning("%s; it printed %r", text, printed)
        return PreviewError(text, hint=_HINT)


def _not_started(error: OSError) -> WorldError:
    return WorldError(f"no process for previews can be started: {error.strerror}")
