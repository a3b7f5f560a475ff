"""The thread that is notified when streams grow."""

import os
import threading
from collections.abc import Iterator

import pytest

from managers.node.file_watcher import FileWatcher

SECONDS = 60.0


class Pipe:
    """A watched pipe, and the number of its notifications."""

    def __init__(self, file_watcher: FileWatcher) -> None:
        self.reader, self.writer = os.pipe()
        self._heard = threading.Semaphore(0)
        file_watcher.watch(self.reader, self._hear)

    def _hear(self) -> None:
        os.read(self.reader, 1)
        self._heard.release()

    def ring(self) -> None:
        """Make it readable."""
        os.write(self.writer, b"!")

    def is_heard(self, seconds: float = SECONDS) -> bool:
        """Return whether there is another notification."""
        return self._heard.acquire(timeout=seconds)

    def close(self) -> None:
        """Close both ends."""
        os.close(self.reader)
        os.close(self.writer)


@pytest.fixture
def file_watcher() -> Iterator[FileWatcher]:
    """Closed at the end."""
    opened = FileWatcher()
    yield opened
    opened.close()


@pytest.fixture
def pipes(file_watcher: FileWatcher) -> Iterator[list[Pipe]]:
    """A few that are watched."""
    found = [Pipe(file_watcher) for _ in range(5)]
    yield found
    file_watcher.close()
    for pipe in found:
        pipe.close()


def test_each_is_heard_as_often_as_it_rings(pipes: list[Pipe]) -> None:
    """Nothing is lost, however many ring at once and whenever they were added."""
    for _ in range(100):
        for pipe in pipes:
            pipe.ring()

    assert all(pipe.is_heard() for pipe in pipes for _ in range(100))


def test_who_is_forgotten_is_not_heard(file_watcher: FileWatcher, pipes: list[Pipe]) -> None:
    """The others are still watched; removing a file again, or an unknown one, is not an error."""
    first, *others = pipes
    file_watcher.unwatch(first.reader)
    file_watcher.unwatch(first.reader)
    for pipe in pipes:
        pipe.ring()

    assert all(pipe.is_heard() for pipe in others)
    assert not first.is_heard(0)


def test_a_number_that_is_used_again_is_another_one(file_watcher: FileWatcher, pipes: list[Pipe]) -> None:
    """A descriptor that was forgotten and closed may be watched anew under the same number."""
    first = pipes.pop(0)
    file_watcher.unwatch(first.reader)
    first.close()
    again = Pipe(file_watcher)
    pipes.append(again)
    again.ring()

    assert again.is_heard()
    assert not first.is_heard(0)


def test_it_can_be_closed_before_and_after_it_has_begun(file_watcher: FileWatcher) -> None:
    """Again is no error, and to watch after it is nothing; its thread is gone."""
    FileWatcher().close()
    pipe = Pipe(file_watcher)
    file_watcher.close()
    file_watcher.close()
    late = Pipe(file_watcher)
    late.ring()
    file_watcher.unwatch(late.reader)

    assert not late.is_heard(0)
    assert "file_watcher" not in [thread.name for thread in threading.enumerate()]
    pipe.close()
    late.close()
