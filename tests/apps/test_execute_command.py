"""Shell commands: output, status, environment, and how they are stopped."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from dropflow.apps.command import Command
from dropflow.errors import AppError, Interrupted


class _Output:
    """Collects output, and sets an event when a word is in it."""

    def __init__(self, word: bytes = b"") -> None:
        self.body = b""
        self.word = word
        self.seen = threading.Event()

    def __call__(self, block: bytes) -> None:
        self.body += block
        if self.word and self.word in self.body:
            self.seen.set()


def _command(text: str, directory: Path, output: _Output | None = None) -> Command:
    return Command(text, directory, {"PATH": os.environ["PATH"], "WHO": "me"}, output or _Output())


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def soon() -> Callable[[Callable[[], bool]], None]:
    """Wait until a condition holds."""

    def wait(condition: Callable[[], bool]) -> None:
        while not condition():
            threading.Event().wait(0.01)

    return wait


def test_a_command_has_its_directory_environment_output_and_status(tmp_path: Path) -> None:
    """A command runs in its directory with its environment; output and errors come in order, and the exit status."""
    output = _Output()
    status = _command("echo $WHO; echo err >&2; pwd; exit 3", tmp_path, output).run()

    assert status == 3
    assert output.body.decode().splitlines() == ["me", "err", str(tmp_path)]


def test_output_larger_than_a_pipe_is_complete(tmp_path: Path) -> None:
    """Output that exceeds the capacity of a pipe is complete."""
    output = _Output()

    assert _command("head -c 3000000 /dev/zero", tmp_path, output).run() == 0
    assert output.body == bytes(3_000_000)


def test_a_killed_command_has_128_plus_the_signal_as_status(tmp_path: Path) -> None:
    """The status is 128 plus the number of the signal, as in a shell."""
    assert _command("kill -9 $$", tmp_path).run() == 137


def test_stopping_a_command_ends_its_children(tmp_path: Path, soon: Callable[[Callable[[], bool]], None]) -> None:
    """A stop from another thread ends the command, its children and its pipes, and raises Interrupted."""
    output = _Output(b"started\n")
    command = _command("sleep 1000 & echo $!; sleep 1000 | cat & echo started; wait", tmp_path, output)
    stopper = threading.Thread(target=lambda: (output.seen.wait(), command.stop()))
    stopper.start()
    with pytest.raises(Interrupted, match=r"^$"):
        command.run()
    stopper.join()

    soon(lambda: _gone(int(output.body.split()[0])))


def test_a_command_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """Processes that ignore SIGTERM are killed after the grace period."""
    output = _Output(b"started\n")
    command = _command("trap '' TERM; echo started; while true; do sleep 0.05; done", tmp_path, output)
    stopper = threading.Thread(target=lambda: (output.seen.wait(), command.stop(0.1)))
    stopper.start()
    with pytest.raises(Interrupted, match=r"^$"):
        command.run()
    stopper.join()


@pytest.mark.slow
def test_children_of_a_stopped_shell_have_the_grace_period_too(tmp_path: Path) -> None:
    """The shell ends at SIGTERM; a program in it cleans up, and what it prints meanwhile is kept."""
    output = _Output(b"started\n")
    program = (
        "trap 'sleep 0.5; echo cleaned > cleaned; echo tidy; exit' TERM; echo started; while :; do sleep 0.05; done"
    )
    command = _command(f"bash -c '{program.replace(chr(39), chr(34))}' | cat; echo never", tmp_path, output)
    stopper = threading.Thread(target=lambda: (output.seen.wait(), command.stop(60)))
    stopper.start()
    with pytest.raises(Interrupted, match=r"^$"):
        command.run()
    stopper.join()

    assert (tmp_path / "cleaned").read_text() == "cleaned\n"
    assert b"never" not in output.body


def test_a_second_stop_shortens_the_grace_period(tmp_path: Path) -> None:
    """A command that is stopped again with less time is killed then."""
    output = _Output(b"started\n")
    command = _command("trap '' TERM; echo started; while true; do sleep 0.05; done", tmp_path, output)
    stopper = threading.Thread(target=lambda: (output.seen.wait(), command.stop(1000), command.stop(0)))
    stopper.start()
    with pytest.raises(Interrupted, match=r"^$"):
        command.run()
    stopper.join()


def test_a_stop_before_the_start_ends_the_command(tmp_path: Path) -> None:
    """A command that is stopped before it runs ends immediately after its start."""
    command = _command("sleep 1000", tmp_path)
    command.stop()
    with pytest.raises(Interrupted, match=r"^$"):
        command.run()
    command.stop()


def test_background_children_do_not_delay_the_end(tmp_path: Path, soon: Callable[[Callable[[], bool]], None]) -> None:
    """A process in the background is ended with its command, even if it holds the output open."""
    output = _Output()

    assert _command("sleep 1000 & echo $!", tmp_path, output).run() == 0
    soon(lambda: _gone(int(output.body)))


def test_a_command_that_cannot_start_is_reported(tmp_path: Path) -> None:
    """A missing directory, or a command with a null byte, is an error with its reason."""
    with pytest.raises(AppError, match="cannot be started"):
        _command("true", tmp_path / "nowhere").run()
    with pytest.raises(AppError, match="cannot be started"):
        _command("echo \0", tmp_path).run()


def test_commands_leak_no_files_or_threads(tmp_path: Path) -> None:
    """After many commands the number of open files and threads is unchanged."""
    _command("true", tmp_path).run()
    before = (len(os.listdir("/proc/self/fd")), threading.active_count())  # noqa: PTH208 - not a place of ours
    for _ in range(10):
        _command("true", tmp_path).run()

    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before  # noqa: PTH208 - see above
