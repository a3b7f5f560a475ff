"""Routing of printed and logged text to the logs of drops (`dropflow.execution.drop_log`).

`LogRouter` replaces ``sys.stdout`` and ``sys.stderr`` and adds a handler to `logging`. Text from a thread goes to the
log of the attempt that runs in it, and all other text where it went before. The streams are replaced once per process
and not per attempt, so that attempts in different threads do not mix their logs.

Output of compiled code to the file descriptors 1 and 2 is handled by `dropflow.runners.worker_process`.
"""

import contextlib
import io
import logging
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any, TextIO, cast

from dropflow.execution.drop_log import DropLog

_WORKER = "dropflow.runners."


class LogRouter:
    """Routes the output of each thread to the log of the attempt that runs in it.

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
        """Replace the standard streams and add a handler to `logging`."""
        with self._lock:
            self._users += 1
            if self._standing is None or sys.stdout is not self._standing[0]:
                # Also if other code, such as a notebook, has replaced them since a session began that still runs.
                self._replace_streams()
            top = logging.getLogger()
            if self._users == 1:
                self._alone = _is_worker()
                if not top.handlers and top.level == logging.WARNING:
                    # Logging is not configured in this process: show messages of level INFO of applications.
                    self._level = top.level
                    top.setLevel(logging.INFO)
            # Also if other code, such as `logging.basicConfig(force=True)` in an application, has removed it meanwhile.
            top.addHandler(self._handler)

    def _replace_streams(self) -> None:
        self._saved = (sys.stdout, sys.stderr)
        self._standing = (
            cast(TextIO, _RoutedStream(self, sys.stdout)),
            cast(TextIO, _RoutedStream(self, sys.stderr)),
        )
        sys.stdout, sys.stderr = self._standing

    def remove(self) -> None:
        """Restore the former streams, unless they were replaced again meanwhile."""
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
        """Send the output of this thread to `log` until `leave`. Returns the argument for `leave`."""
        previous: DropLog | None = getattr(self._here, "log", None)
        self._here.log = log
        self._running[threading.get_ident()] = log
        return previous

    def leave(self, previous: DropLog | None) -> None:
        """Undo `enter`."""
        self._here.log = previous
        if previous is None:
            self._running.pop(threading.get_ident(), None)
        else:
            self._running[threading.get_ident()] = previous
        if self._alone and self._standing is not None:  # the attempt may have replaced them
            sys.stdout, sys.stderr = self._standing
            logging.getLogger().addHandler(self._handler)

    def current(self) -> DropLog | None:
        """Return the log for output of this thread; None if no attempt runs in it.

        In a worker process, threads that an application started count as its own: a worker runs one attempt at a time
        and has no other output.
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
    """Handler that passes records of `logging` to the log of the attempt that made them."""

    def __init__(self, router: LogRouter) -> None:
        super().__init__()
        self._router = router
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        log = self._router.current()
        if log is not None:
            try:
                text = self.format(record)
            except Exception:  # noqa: BLE001 - arguments that do not fit the message: told in the log, as Python does
                self.handleError(record)
            else:
                log.line(record.levelname, text, record.created)
            return
        # Without other handlers, `logging` would print warnings to standard error: do the same.
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and logging.getLogger().handlers == [self]:
            last.handle(record)


class _RoutedStream(io.TextIOBase):
    """Replacement of one of the standard streams."""

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
        if log is not None:
            log.flush()
        elif not self._original.closed:  # Python flushes again when it collects this object, after it closed the other
            self._original.flush()

    def isatty(self) -> bool:
        return self._router.current() is None and self._original.isatty()

    def writable(self) -> bool:
        return True

    @property
    def buffer(self) -> IO[bytes]:
        return self._bytes

    def __getattribute__(self, name: str) -> Any:
        # TextIOBase defines these, so that __getattr__ is not called for them.
        if name in ("encoding", "errors", "newlines", "fileno"):
            return getattr(object.__getattribute__(self, "_original"), name)
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class _ByteStream(io.RawIOBase):
    """The `buffer` of a replaced stream."""

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
        if self._router.current() is None and not self._original.closed:
            self._original.flush()

    def writable(self) -> bool:
        return True
