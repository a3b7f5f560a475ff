"""A worker process: ``python -m dropflow.engine.runners.worker SOCKET MARKER`` (two inherited file descriptors).

The main thread runs attempts one after another. A second thread reads the socket, so that an abort gets through while
an attempt runs. The marker is a page of memory shared with the runner, where the number of the current attempt stands:
should this process die, the runner knows which attempt to blame, even though outcomes are sent in batches.
"""

import importlib
import mmap
import os
import signal
import socket
import struct
import sys
import threading
from collections import deque

import msgspec

from dropflow.clock import SystemClock
from dropflow.engine.api import Executor, Outcome, Task
from dropflow.engine.runners.wire import (
    AbortTask,
    Buffer,
    FromWorker,
    Hello,
    Outcomes,
    Ready,
    Refused,
    Tasks,
    ToWorker,
    frame,
)
from dropflow.failure import Failure

__all__ = ["main"]

_READ = 1 << 20
_FLUSH_SECONDS = 0.002
_MARKER = struct.Struct("<q")
_IDLE = -1


class _Worker:
    def __init__(self, link: socket.socket, marker: mmap.mmap) -> None:
        self._link = link
        self._marker = marker
        self._decode = msgspec.msgpack.Decoder(ToWorker).decode
        self._queue: deque[tuple[int, Task]] = deque()
        self._filled = threading.Event()
        self._executor: Executor | None = None
        self._current = -1
        self._aborted: set[int] = set()
        self._clock = SystemClock()

    def run(self) -> None:
        reader = threading.Thread(target=self._read, name="reader", daemon=True)
        reader.start()
        unsent: list[Outcome] = []
        flushed = self._clock.monotonic()
        while True:
            if not self._queue:
                self._send(unsent)
                self._filled.wait()
                self._filled.clear()
                continue
            number, task = self._queue.popleft()
            unsent.append(self._execute(number, task))
            now = self._clock.monotonic()
            if now - flushed > _FLUSH_SECONDS:
                self._send(unsent)
                flushed = now

    def _execute(self, number: int, task: Task) -> Outcome:
        if self._executor is None or task.drop in self._aborted:
            self._aborted.discard(task.drop)
            failure = Failure(code="DF200", kind="Aborted", text="the attempt was aborted before it began")
            return Outcome(task.drop, task.attempt, failure=failure)
        _MARKER.pack_into(self._marker, 0, number)
        self._current = task.drop
        outcome = self._executor.execute(task)
        self._current = -1
        _MARKER.pack_into(self._marker, 0, _IDLE)
        return outcome

    def _send(self, outcomes: list[Outcome]) -> None:
        if outcomes:
            self._tell(Outcomes(tuple(outcomes)))
            outcomes.clear()

    def _tell(self, message: FromWorker) -> None:
        try:
            self._link.sendall(frame(message))
        except OSError:
            # A session can be over before this process has finished starting.
            self._leave()

    def _read(self) -> None:
        buffer = Buffer()
        while True:
            try:
                data = self._link.recv(_READ)
            except OSError:
                data = b""
            if not data:
                self._leave()
            buffer.add(data)
            for body in buffer.frames():
                self._take(self._decode(body))

    def _take(self, message: ToWorker) -> None:
        if isinstance(message, Hello):
            self._build(message)
        elif isinstance(message, Tasks):
            self._queue.extend(enumerate(message.tasks, message.first))
            self._filled.set()
        elif isinstance(message, AbortTask):
            if message.drop == self._current and self._executor is not None:
                self._executor.abort(message.drop)
            elif any(task.drop == message.drop for _, task in tuple(self._queue)):
                self._aborted.add(message.drop)

    def _build(self, hello: Hello) -> None:
        try:
            module, _, function = hello.factory.partition(":")
            self._executor = getattr(importlib.import_module(module), function)(hello.spec)
        except Exception as error:  # noqa: BLE001 - whatever it is, the runner has to hear of it
            self._tell(Refused(f"{type(error).__name__}: {error}"))
            self._leave()
        self._tell(Ready())

    def _leave(self) -> None:
        """End at once: the runner is gone, or has closed the socket to say that it is done with us."""
        if self._executor is not None and self._current >= 0:
            self._executor.abort(self._current)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def main() -> None:
    """Serve the runner at the other end of the socket until it closes it."""
    # Ctrl-C goes to everybody in the terminal's process group; what to do about it is the session's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = socket.socket(fileno=int(sys.argv[1]))
    marker = mmap.mmap(int(sys.argv[2]), mmap.PAGESIZE)
    _Worker(link, marker).run()


if __name__ == "__main__":
    main()
