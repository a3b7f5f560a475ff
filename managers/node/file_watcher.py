"""One thread that hears when files grow: it waits for the FIFOs of all streams that a node offers to others."""

import os
import selectors
import threading
from collections.abc import Callable

__all__ = ["FileWatcher"]


class FileWatcher:
    """Calls back when a file descriptor can be read. The thread starts with the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard: dict[int, Callable[[], None]] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = os.pipe()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread: threading.Thread | None = None
        self._closed = False

    def watch(self, descriptor: int, heard: Callable[[], None]) -> None:
        """Call `heard`, which reads what is there and does not raise, whenever `descriptor` can be read."""
        with self._lock:
            if self._closed:
                return
            self._heard[descriptor] = heard
            self._selector.register(descriptor, selectors.EVENT_READ)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="file_watcher", daemon=True)
                self._thread.start()
            else:
                os.write(self._wake, b"!")

    def forget(self, descriptor: int) -> None:
        """Call back no more; to be called before the descriptor is closed. Unknown ones are no error."""
        with self._lock:
            if self._heard.pop(descriptor, None) is not None and not self._closed:
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
                    # What was forgotten in the meantime may be another file already.
                    heard = self._heard.get(key.fd)
                    if heard is not None:
                        heard()
