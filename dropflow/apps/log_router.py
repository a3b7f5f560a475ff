"""What attempts print and log goes to the logs of their drops (`dropflow.engine.drop_log`).

`LogRouter` stands in for ``sys.stdout`` and ``sys.stderr`` and listens to `logging`; it hands what
comes from a thread to the log of the attempt that runs in that thread, and everything else on to where it went before.
Nothing is redirected for a single attempt, so attempts in many threads do not meet in each other's logs.

What compiled code writes to the file descriptors 1 and 2 is not seen here, see `dropflow.engine.runners.output`.
"""

import contextlib
import io
import logging
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any, TextIO, cast

from dropflow.engine.drop_log import DropLog

__all__ = ["LogRouter"]

_WORKER = "dropflow.engine.runners."


class LogRouter:
    """Hands the output of a thread to the log of the attempt that runs in it.

    One object serves a whole process. `install` and `remove` are counted, so that several executors can share it.
    """

    def __init__(self) -> None:
        self._here = threading.local()
        self._running: dict[int, DropLog] = {}
        self._lock = threading.Lock()
        self._users = 0
        self._saved: tuple[TextIO, TextIO] | None = None
        self._standing: tuple[TextIO, TextIO] | None = None
        self._handler = _RoutedHandler(self)
        self._level: int | None = None
        self._alone = False

    def install(self) -> None:
        """Stand in for the standard streams and listen to `logging`."""
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            self._alone = _is_worker()
            self._saved = (sys.stdout, sys.stderr)
            self._standing = (
                cast(TextIO, _RoutedStream(self, sys.stdout)),
                cast(TextIO, _RoutedStream(self, sys.stderr)),
            )
            sys.stdout, sys.stderr = self._standing
            top = logging.getLogger()
            if not top.handlers and top.level == logging.WARNING:
                # Nobody has set up logging in this process: applications mean their INFO to be seen.
                self._level = top.level
                top.setLevel(logging.INFO)
            top.addHandler(self._handler)

    def remove(self) -> None:
        """Put back what was there, unless somebody else has replaced it meanwhile."""
        with self._lock:
            self._users -= 1
            if self._users or self._saved is None or self._standing is None:
                return
            if sys.stdout is self._standing[0]:
                sys.stdout = self._saved[0]
            if sys.stderr is self._standing[1]:
                sys.stderr = self._saved[1]
            self._saved = self._standing = None
            top = logging.getLogger()
            top.removeHandler(self._handler)
            if self._level is not None:
                top.setLevel(self._level)
                self._level = None

    @contextlib.contextmanager
    def to(self, log: DropLog) -> Iterator[None]:
        """Send the output of this thread to `log` while the block runs."""
        previous = self.enter(log)
        try:
            yield
        finally:
            self.leave(previous)

    def enter(self, log: DropLog) -> DropLog | None:
        """Send the output of this thread to `log` until `leave`; answers what `leave` must be given."""
        previous: DropLog | None = getattr(self._here, "log", None)
        self._here.log = log
        self._running[threading.get_ident()] = log
        return previous

    def leave(self, previous: DropLog | None) -> None:
        """End what `enter` began."""
        self._here.log = previous
        if previous is None:
            self._running.pop(threading.get_ident(), None)
        else:
            self._running[threading.get_ident()] = previous

    def current(self) -> DropLog | None:
        """The log for output of this thread; None when it belongs to no attempt.

        Threads that an application started are known to be its own only in a worker process, which runs one attempt
        at a time and has no output of its own.
        """
        log: DropLog | None = getattr(self._here, "log", None)
        if log is None and self._alone:
            running = list(self._running.values())
            return running[0] if len(running) == 1 else None
        return log


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith(_WORKER)


class _RoutedHandler(logging.Handler):
    """Records of `logging` on their way to the log of the attempt that made them."""

    def __init__(self, router: LogRouter) -> None:
        super().__init__()
        self._router = router
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        log = self._router.current()
        if log is not None:
            log.line(record.levelname, self.format(record), record.created)
            return
        # As if we were not here: without handlers, `logging` prints warnings to standard error.
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and logging.getLogger().handlers == [self]:
            last.handle(record)


class _RoutedStream(io.TextIOBase):
    """Stands in for one of the standard streams."""

    def __init__(self, router: LogRouter, original: TextIO) -> None:
        self._router = router
        self._original = original
        self._bytes = cast(IO[bytes], _ByteStream(router, original))

    def write(self, text: str) -> int:
        log = self._router.current()
        if log is None:
            return self._original.write(text)
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        log.write(text)
        return len(text)

    def flush(self) -> None:
        log = self._router.current()
        if log is None:
            self._original.flush()
        else:
            log.flush()

    def isatty(self) -> bool:
        return self._router.current() is None and self._original.isatty()

    def writable(self) -> bool:
        return True

    @property
    def buffer(self) -> IO[bytes]:
        return self._bytes

    def __getattribute__(self, name: str) -> Any:
        # TextIOBase defines these itself, so that __getattr__ would not be asked.
        if name in ("encoding", "errors", "newlines", "fileno"):
            return getattr(object.__getattribute__(self, "_original"), name)
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class _ByteStream(io.RawIOBase):
    """The `buffer` of a standing-in stream."""

    def __init__(self, router: LogRouter, original: TextIO) -> None:
        self._router = router
        self._original = original

    def write(self, data: Any) -> int:
        log = self._router.current()
        if log is None:
            return self._original.buffer.write(data)
        block = bytes(data)
        log.write_bytes(block)
        return len(block)

    def flush(self) -> None:
        if self._router.current() is None:
            self._original.flush()

    def writable(self) -> bool:
        return True
