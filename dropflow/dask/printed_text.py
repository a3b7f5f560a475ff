"""What tasks print in threads of this process, for the notes of their exceptions. It is printed as before, too."""

import contextvars
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

__all__ = ["collecting", "keep_printed"]

_MOST_PIECES = 400
_LONGEST = 4096
"""Characters of a piece of text that are kept: the last ones."""

_PRINTED: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("dropflow_dask_printed", default=None)


def keep_printed(pieces: list[str]) -> None:
    """Keep what is printed in the current context from now on, while `collecting`: its end, in pieces."""
    _PRINTED.set(pieces)


class _CopiedStream:
    """A standard stream whose text is also kept for the task that prints it."""

    def __init__(self, original: TextIO) -> None:
        self._original = original

    def write(self, text: str) -> int:
        pieces = _PRINTED.get()
        if pieces is not None and isinstance(text, str):
            pieces.append(text[-_LONGEST:])
            if len(pieces) > _MOST_PIECES:
                del pieces[: _MOST_PIECES // 2]
        return self._original.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __iter__(self) -> Iterator[str]:
        return iter(self._original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class _Streams:
    """The standard streams of this process, replaced while computations run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._replaced: dict[str, _CopiedStream] = {}

    def begin(self) -> None:
        with self._lock:
            self._users += 1
            for name in ("stdout", "stderr"):
                # Other code, such as a notebook or a test, may have replaced it since a computation began.
                current = getattr(sys, name)
                if current is not None and not isinstance(current, _CopiedStream):
                    self._replaced[name] = _CopiedStream(current)
                    setattr(sys, name, cast(TextIO, self._replaced[name]))

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            for name, stream in self._replaced.items():
                if getattr(sys, name) is stream:
                    setattr(sys, name, stream._original)  # noqa: SLF001 - of this file
            self._replaced.clear()


_STREAMS = _Streams()


@contextmanager
def collecting() -> Iterator[None]:
    """Have texts kept that are printed in contexts which `keep_printed` was called in."""
    _STREAMS.begin()
    try:
        yield
    finally:
        _STREAMS.end()
