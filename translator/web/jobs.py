"""Worker processes of the translator: a bounded queue, a few processes at a time, each killed when its time is over."""

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from dropflow.errors import HttpError, WorkerDiedError, WorldError
from translator.web.export import ExportOrder

__all__ = ["Jobs"]

_LOG = logging.getLogger("dropflow.translator")
_CHUNK = 256 * 1024
_TAIL = 2000


class Jobs:
    """Runs `translator.web.worker` for one folder after the other.

    Parameters
    ----------
    workers, waiting : int
        Processes at a time, and folders that may wait for one.
    seconds : float
        After which a process is killed.
    told : callable
        Told an id and what its process says it is doing.
    ended : callable
        Told an id and None, or the error for want of which there is no report.
    """

    def __init__(
        self,
        *,
        workers: int,
        waiting: int,
        seconds: float,
        told: Callable[[str, str], None],
        ended: Callable[[str, WorldError | None], None],
    ) -> None:
        self._most, self._seconds = waiting, seconds
        self._told, self._ended = told, ended
        self._change = threading.Condition()
        self._queue: deque[tuple[str, Path]] = deque()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._exports = threading.BoundedSemaphore(workers)
        self._closing = False
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
        """Take it out of the queue, or kill its process."""
        with self._change:
            self._queue = deque(entry for entry in self._queue if entry[0] != identity)
            process = self._running.get(identity)
        if process is not None:
            process.kill()

    def export(self, folder: Path, order: ExportOrder) -> Iterator[bytes]:
        """A graph as JSON, written by a process of its own, in pieces.

        Raises
        ------
        HttpError
            503 when too many exports run already.
        WorkerDiedError
            While iterating: the process was killed or failed, and the JSON is not whole.
        """
        if not self._exports.acquire(blocking=False):
            raise HttpError(503, "too many graphs are being written already", hint="try again in a moment")
        return _Export(self._exported(folder, order), self._exports)

    def close(self) -> None:
        """Kill what runs, forget what waits, and wait for the threads. Idempotent."""
        with self._change:
            self._closing = True
            self._queue.clear()
            running = list(self._running.values())
            self._change.notify_all()
        for process in running:
            process.kill()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._queue or self._closing)
                if self._closing:
                    return
                identity, folder = self._queue.popleft()
                process = _start("translator.web.worker", folder)
                self._running[identity] = process
            failure = self._follow(identity, process, folder)
            with self._change:
                del self._running[identity]
            self._ended(identity, failure)

    def _follow(self, identity: str, process: "subprocess.Popen[bytes]", folder: Path) -> WorldError | None:
        late = threading.Event()
        timer = threading.Timer(self._seconds, _end, (process, late))
        timer.daemon = True
        timer.start()
        with process:
            for line in _pipe(process.stdout):
                self._told(identity, line.decode(errors="replace").strip())
        timer.cancel()
        if late.is_set():
            text = f"the translation took longer than the {self._seconds:g} seconds that one may take here"
            return WorldError(text, hint="make the graph smaller, or start the translator with a higher limit")
        if process.returncode:
            _LOG.error("translation %s: status %s: %s", identity, process.returncode, _tail(folder))
            return WorkerDiedError(_ending(process.returncode), hint="the translator's log has the details")
        return None

    def _exported(self, folder: Path, order: ExportOrder) -> Iterator[bytes]:
        process = _start("translator.web.export", folder)
        late = threading.Event()
        timer = threading.Timer(self._seconds, _end, (process, late))
        timer.daemon = True
        timer.start()
        try:
            _pipe(process.stdin).write(msgspec.json.encode(order) + b"\n")
            _pipe(process.stdin).flush()
            while chunk := _pipe(process.stdout).read(_CHUNK):
                yield chunk
            if process.wait():
                _LOG.error("export: status %s: %s", process.returncode, _tail(folder))
                raise WorkerDiedError(_ending(process.returncode))
        finally:
            timer.cancel()
            process.kill()
            with contextlib.suppress(BrokenPipeError), process:
                pass


class _Export:
    """Chunks that give their place in the queue back when they end, fail, or are closed, begun or not."""

    def __init__(self, chunks: Iterator[bytes], places: threading.BoundedSemaphore) -> None:
        self._chunks, self._places, self._held = chunks, places, True

    def __iter__(self) -> "_Export":
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._chunks)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process and give the place back. Idempotent."""
        if self._held:
            self._held = False
            self._places.release()
            self._chunks.close()  # type: ignore[attr-defined]


def _start(module: str, folder: Path) -> "subprocess.Popen[bytes]":
    # One thread for linear algebra: each of its threads would take a share of the process's address space.
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
    assert stream is not None  # noqa: S101 - asked for with PIPE
    return stream


def _end(process: "subprocess.Popen[bytes]", late: threading.Event) -> None:
    late.set()
    process.kill()


def _ending(status: int) -> str:
    how = f"was ended by signal {-status}" if status < 0 else f"failed with status {status}"
    return f"the process of the translation {how}"


def _tail(folder: Path) -> str:
    try:
        return (folder / "log").read_bytes()[-_TAIL:].decode(errors="replace")
    except OSError:
        return "no log"
