"""A thread that passes a growing content on to the standard input of a command."""

import contextlib
import os
import select
import threading
from typing import IO, BinaryIO

__all__ = ["StdinFeeder"]

_BLOCK = 1 << 16


class StdinFeeder:
    """A thread between a stream and a pipe. It closes both at the end.

    Parameters
    ----------
    source : file object
        Read to its end with ``read1``, or with ``read`` if it has none. If it has ``stop``, that ends a waiting read.
    pipe : file object
        Standard input of a process, which may close it before the end.
    """

    def __init__(self, source: BinaryIO, pipe: IO[bytes]) -> None:
        self.error: BaseException | None = None
        """Why `source` could not be read to its end."""
        self._source = source
        self._pipe = pipe
        self._ending = False
        # After the process ended, a child of it may still hold the pipe open while it is full.
        os.set_blocking(pipe.fileno(), False)
        self._woken, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop after the process has ended, and close the source."""
        self._ending = True
        os.write(self._wake, b"!")
        stop = getattr(getattr(self._source, "raw", None), "stop", None)
        if stop is not None:
            stop()
        self._thread.join()
        os.close(self._wake)
        os.close(self._woken)
        self._source.close()

    def _run(self) -> None:
        read = getattr(self._source, "read1", self._source.read)
        try:
            # A process may close its standard input early.
            with contextlib.suppress(BrokenPipeError), self._pipe:
                while not self._ending and (block := read(_BLOCK)):
                    self._push(block)
        except BaseException as error:  # noqa: BLE001 - raised again by `Command.run`; includes cancellation
            self.error = error

    def _push(self, block: bytes) -> None:
        pipe = self._pipe.fileno()
        poll = select.poll()
        poll.register(pipe, select.POLLOUT)
        poll.register(self._woken, select.POLLIN)
        left = memoryview(block)
        while left and not self._ending:
            try:
                left = left[os.write(pipe, left) :]
            except BlockingIOError:
                poll.poll()
