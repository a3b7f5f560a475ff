"""Worker processes of the translator: a bounded queue, a few processes at a time, each with a time limit."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from dropflow.errors import GoneError, HttpError, WorkerDiedError, WorldError
from translator.web.export import ExportOrder

_log = logging.getLogger("dropflow.translator")
_CHUNK_BYTES = 256 * 1024
"""Bytes of an exported file in one chunk of the response."""
_TAIL_BYTES = 2000
"""Bytes at the end of the log of a worker process that its failure quotes."""


class TranslationQueue:
    """Runs `translator.web.translation_process` for one folder after another.

    Parameters
    ----------
    workers, waiting : int
        Processes at a time, and folders that may wait for one.
    seconds : float
        Time limit of a process, which is then killed.
    on_stage : callable
        Called with an id and the stage that its process reports.
    on_end : callable
        Called with an id and None, or the error that prevented the report.
    """

    def __init__(
        self,
        *,
        workers: int,
        waiting: int,
        seconds: float,
        on_stage: Callable[[str, str], None],
        on_end: Callable[[str, WorldError | None], None],
    ) -> None:
        self._most, self._seconds = waiting, seconds
        self._on_stage, self._on_end = on_stage, on_end
        # Guards the queue and the running processes. `queue.Queue` would not do: `cancel` removes entries from the
        # middle, and kills a process that has just left the queue.
        self._change = threading.Condition()
        self._queue: deque[tuple[str, Path]] = deque()
        self._running: dict[str, subprocess.Popen[bytes] | None] = {}
        self._cancelled: set[str] = set()
        # Counts exports, which run in the threads of the server and are refused when there are too many.
        self._exports = threading.BoundedSemaphore(workers)
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, name=f"translator:{number}", daemon=True) for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def check_room(self) -> None:
        """Refuse work while the queue is full.

        Raises
        ------
        HttpError
            503.
        """
        with self._change:
            if len(self._queue) >= self._most:
                text = f"{len(self._queue)} translations are waiting already"
                raise HttpError(503, text, hint="try again in a moment")

    def submit(self, identity: str, folder: Path) -> None:
        """Queue a folder."""
        with self._change:
            self._queue.append((identity, folder))
            self._change.notify()

    def cancel(self, identity: str) -> None:
        """Remove an id from the queue, or kill its process."""
        with self._change:
            self._queue = deque(entry for entry in self._queue if entry[0] != identity)
            process = self._running.get(identity)
            if process is not None:
                process.kill()
            elif identity in self._running:
                self._cancelled.add(identity)  # its process is being started

    def export(self, folder: Path, order: ExportOrder) -> Iterator[bytes]:
        """Return a graph in pieces, written by a process of its own.

        Raises
        ------
        HttpError
            503 when too many exports run already.
        GoneError
            The folder has been removed.
        WorkerDiedError
            While iterating: the process was killed or failed, and what it wrote is incomplete.
        """
        if not self._exports.acquire(blocking=False):
            raise HttpError(503, "too many graphs are being written already", hint="try again in a moment")
        try:
            process = _start("translator.web.export", folder)
        except OSError as error:
            self._exports.release()
            raise GoneError("the graph has been removed meanwhile", hint="translate it again") from error
        return _Export(process, order, self._exports.release)

    def close(self) -> None:
        """Kill all processes, drop the queue, and wait for the threads. Idempotent."""
        with self._change:
            self._closing.set()
            self._queue.clear()
            for process in self._running.values():
                if process is not None:
                    process.kill()
            self._change.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._queue or self._closing.is_set())
                if self._closing.is_set():
                    return
                identity, folder = self._queue.popleft()
                self._running[identity] = None
            failure = self._translate(identity, folder)
            with self._change:
                del self._running[identity]
                if self._closing.is_set():
                    return  # killed by `close`: no report; the next service deletes the folder
            self._on_end(identity, failure)

    def _translate(self, identity: str, folder: Path) -> WorldError | None:
        try:
            process = _start("translator.web.translation_process", folder)
        except OSError as error:  # the folder is deleted, or the system cannot start more processes
            return WorldError(f"the translation cannot be started: {error.strerror}", hint="try again in a moment")
        with self._change:
            if self._closing.is_set() or identity in self._cancelled:
                process.kill()
            self._cancelled.discard(identity)
            self._running[identity] = process
        return self._follow(identity, process, folder)

    def _follow(self, identity: str, process: "subprocess.Popen[bytes]", folder: Path) -> WorldError | None:
        late = threading.Event()
        timer = threading.Timer(self._seconds, _end, (process, late))
        timer.daemon = True
        timer.start()
        with process:
            for line in _pipe(process.stdout):
                self._on_stage(identity, line.decode(errors="replace").strip())
        timer.cancel()
        if late.is_set() and process.returncode == -signal.SIGKILL:  # it may have ended just before
            text = f"the translation took longer than the {self._seconds:g} seconds that this translator allows"
            return WorldError(text, hint="make the graph smaller, or start the translator with a higher limit")
        if process.returncode:
            _log.warning("translation %s: status %s: %s", identity, process.returncode, _tail(folder))
            return WorkerDiedError(_ending(process.returncode), hint="the translator's log has the details")
        return None


class _Export:
    """The output of a process, in pieces; the process ends with the last of them, or when this is closed.

    There is no time limit: a slow reader makes the process wait, and its processor time is limited.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", order: ExportOrder, release: Callable[[], None]) -> None:
        self._process, self._release, self._open = process, release, True
        try:
            _pipe(process.stdin).write(msgspec.json.encode(order) + b"\n")
            _pipe(process.stdin).flush()
        except OSError:
            pass  # it has ended already; the reader of its output reports that

    def __iter__(self) -> "_Export":
        return self

    def __next__(self) -> bytes:
        chunk = _pipe(self._process.stdout).read(_CHUNK_BYTES) if self._open else b""
        if chunk:
            return chunk
        if self._open and self._process.wait():
            status = self._process.returncode
            self.close()
            raise WorkerDiedError(_ending(status))
        self.close()
        raise StopIteration

    def close(self) -> None:
        """Kill the process and free its slot. Idempotent."""
        if self._open:
            self._open = False
            self._process.kill()
            with contextlib.suppress(BrokenPipeError), self._process:
                pass
            self._release()


def _start(module: str, folder: Path) -> "subprocess.Popen[bytes]":
    # One thread for linear algebra: each thread would use part of the limited address space.
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module; the folder's name is ours too
            [sys.executable, "-P", "-m", module, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            cwd=folder,
        )


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # asked for with PIPE
    return stream


def _end(process: "subprocess.Popen[bytes]", late: threading.Event) -> None:
    late.set()
    process.kill()


def _ending(status: int) -> str:
    how = f"was ended by signal {-status}" if status < 0 else f"failed with status {status}"
    return f"the process of the translation {how}"


def _tail(folder: Path) -> str:
    try:
        return (folder / "log").read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
    except OSError:
        return "no log"
