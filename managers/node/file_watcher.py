"""One thread that watches file descriptors: the FIFOs of all streams that a node offers to others."""

import os
import selectors
import threading
from collections.abc import Callable
from typing import Protocol

__all__ = ["DescriptorWatcher", "FileWatcher"]


class DescriptorWatcher(Protocol):
    """Watches file descriptors, as `FileWatcher` does."""

    def watch(self, descriptor: int, on_readable: Callable[[], None]) -> None:
        """Call `on_readable`, which reads what is there and does not raise, whenever `descriptor` is readable."""
        ...

    def unwatch(self, descriptor: int) -> None:
        """Stop watching; must be called before the descriptor is closed. Unknown descriptors are ignored."""
        ...


class FileWatcher:
    """Calls a function when a file descriptor is readable. The thread starts with the first descriptor."""

    def __init__(self) -> None:
        # Guards the selector and the table of functions. `unwatch` must have taken effect when it returns, because its
        # caller closes the descriptor, whose number may be that of another file soon: a queue would do it too late.
        self._lock = threading.Lock()
        self._functions: dict[int, Callable[[], None]] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = os.pipe()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread: threading.Thread | None = None
        self._closed = False

    def watch(self, descriptor: int, on_readable: Callable[[], None]) -> None:
        """Call `on_readable`, which reads what is there and does not raise, whenever `descriptor` is readable."""
        with self._lock:
            if self._closed:
                return
            self._functions[descriptor] = on_readable
            self._selector.register(descriptor, selectors.EVENT_READ)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="file-watcher", daemon=True)
                self._thread.start()
            else:
                os.write(self._wake, b"!")

    def unwatch(self, descriptor: int) -> None:
        """Stop watching; must be called before the descriptor is closed. Unknown descriptors are ignored."""
        with self._lock:
            if self._functions.pop(descriptor, None) is not None and not self._closed:
                self._selector.unregister(descriptor)

    def close(self) -> None:
        """End the thread; idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            os.write(self._wake, b"!")
        if self._thread is not None:
            self._thread.join()
        self._selector.close()
        os.close(self._woken)
        os.close(self._wake)

    def _run(self) -> None:
        while True:
            ready = self._selector.select()
            with self._lock:
                if self._closed:
                    return
                for key, _ in ready:
                    if key.fd == self._woken:
                        os.read(self._woken, 1 << 16)
                    # A descriptor that is not watched any more may be another file by now.
                    on_readable = self._functions.get(key.fd)
                    if on_readable is not None:
                        on_readable()
