"""The services that run in this process, by the directory of their session; they end with it."""

import contextlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from dropflow.apps.command import Command
from dropflow.errors import DropflowError, Interrupted

__all__ = ["RunningService", "add_service", "end_services", "remove_service"]

_GRACE = 10.0
_END_GRACE = 1.0
Key = tuple[str, str, tuple[int, ...]]


class RunningService:
    """A command in a thread of its own.

    Parameters
    ----------
    command : str
        Text for bash.
    directory : Path
        Its working directory.
    environment : mapping of str to str
        Its environment.
    sink : callable
        Gets its output in blocks.
    oid : str
        Id of the drop that started it.
    """

    def __init__(
        self, command: str, directory: Path, environment: Mapping[str, str], sink: Callable[[bytes], object], oid: str
    ) -> None:
        self.oid = oid
        self.status: int | None = None
        """Exit status, None while it runs."""
        self._command = Command(command, directory, environment, sink)
        self._thread = threading.Thread(target=self._run, name=f"service-{oid}", daemon=True)
        self._thread.start()

    def stop(self, grace: float = _GRACE) -> None:
        """Stop the command with all its processes, and wait for its end."""
        self._command.stop(grace)
        self._thread.join(grace + _GRACE)

    def _run(self) -> None:
        status = 1
        try:
            with contextlib.suppress(Interrupted, DropflowError):
                status = self._command.run()
        finally:
            self.status = status


_LOCK = threading.Lock()
"""Attempts that start and stop services run in several threads, and sessions end in others."""
_RUNNING: dict[Key, RunningService] = {}


def add_service(key: Key, service: RunningService) -> None:
    """Add a service; one of an earlier attempt is stopped."""
    with _LOCK:
        earlier, _RUNNING[key] = _RUNNING.get(key), service
    if earlier is not None:
        earlier.stop(0.0)


def remove_service(key: Key) -> RunningService | None:
    """Remove and return a service; None if it does not run here."""
    with _LOCK:
        return _RUNNING.pop(key, None)


def end_services(directory: str) -> None:
    """Stop the services of a session that ends."""
    with _LOCK:
        found = [_RUNNING.pop(key) for key in list(_RUNNING) if key[0] == directory]
    for service in found:
        service.stop(_END_GRACE)
