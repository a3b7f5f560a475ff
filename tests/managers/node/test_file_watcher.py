"""The thread that is notified when streams grow."""

import os
import threading
from collections.abc import Iterator

import pytest

from managers.node.streams import FileWatcher

SECONDS = 60.0


class Pipe:
    """A watched pipe, and the number of its notifications."""

    def __init__(self, file_watcher: FileWatcher) -> None:
        self.reader, self.writer = os.pipe()
        self._notified = threading.Semaphore(0)
        file_watcher.watch(self.reader, self._on_readable)

    def _on_readable(self) -> None:
        os.read(self.reader, 1)
        self._notified.release()

    def write(self) -> None:
        """Make the pipe readable."""
        os.write(self.writer, b"!")

    def is_notified(self, seconds: float = SECONDS) -> bool:
        """Return whether there is another notification."""
        return self._notified.acquire(timeout=seconds)

    def close(self) -> None:
        """Close both ends."""
        os.close(self.reader)
        os.close(self.writer)


@pytest.fixture
def file_watcher() -> Iterator[FileWatcher]:
    """Return a file watcher, which is closed at the end."""
    opened = FileWatcher()
    yield opened
    opened.close()


@pytest.fixture
def pipes(file_watcher: FileWatcher) -> Iterator[list[Pipe]]:
    """Return five watched pipes."""
    found = [Pipe(file_watcher) for _ in range(5)]
    yield found
    file_watcher.close()
    for pipe in found:
        pipe.close()


def test_each_write_is_one_notification(pipes: list[Pipe]) -> None:
    """No notification is lost if several pipes become readable at the same time."""
    for _ in range(100):
        for pipe in pipes:
            pipe.write()

    assert all(pipe.is_notified() for pipe in pipes for _ in range(100))


def test_an_unwatched_file_gives_no_notification(file_watcher: FileWatcher, pipes: list[Pipe]) -> None:
    """Other files are still watched; removing a file twice, or an unknown one, is not an error."""
    first, *others = pipes
    file_watcher.unwatch(first.reader)
    file_watcher.unwatch(first.reader)
    for pipe in pipes:
        pipe.write()

    assert all(pipe.is_notified() for pipe in others)
    assert not first.is_notified(0)


def test_a_reused_descriptor_number_is_watched_as_a_new_file(file_watcher: FileWatcher, pipes: list[Pipe]) -> None:
    """After a descriptor was unwatched and closed, another file with its number can be watched."""
    first = pipes.pop(0)
    file_watcher.unwatch(first.reader)
    first.close()
    again = Pipe(file_watcher)
    pipes.append(again)
    again.write()

    assert again.is_notified()
    assert not first.is_notified(0)


def test_closing_is_idempotent_and_ends_the_thread(file_watcher: FileWatcher) -> None:
    """A watcher can be closed unused and twice; watching a file after that has no effect, and its thread has ended."""
    FileWatcher().close()
    pipe = Pipe(file_watcher)
    file_watcher.close()
    file_watcher.close()
    late = Pipe(file_watcher)
    late.write()
    file_watcher.unwatch(late.reader)

    assert not late.is_notified(0)
    assert "file_watcher" not in [thread.name for thread in threading.enumerate()]
    pipe.close()
    late.close()
