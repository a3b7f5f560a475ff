"""Commands that keep running, as processes with their own home.

``python -m tests.processes DIRECTORY`` waits for the end of its standard input, and ends what works in a directory: see
`ended_with_this_process`.
"""

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Self

import psutil
from packaging.requirements import Requirement

from dropflow.clock import SystemClock
from dropflow.host.descendants import descendants_of

_ROOT = Path(__file__).resolve().parents[1]
_SECONDS = 200.0
"""More than a busy machine takes, and less than pytest gives a test."""


@contextmanager
def few_files(more: int) -> Iterator[None]:
    """Limit the number of files that this process can still open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() + 100, before[1]))
    spare: list[int] = []
    try:
        with suppress(OSError):
            while True:
                spare.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(more):
            os.close(spare.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in spare:
            os.close(descriptor)


def descriptors() -> int:
    """Return the number of open files of this process."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - not a place of ours


def environment(home: Path) -> dict[str, str]:
    """Return the environment of this process with another home, which has no key and no records of managers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DROPFLOW_")}
    return kept | {"XDG_STATE_HOME": str(home / "state"), "XDG_CONFIG_HOME": str(home / "config")}


def run(
    home: Path, *arguments: object, python: str | Path = sys.executable, **more: str
) -> "subprocess.CompletedProcess[str]":
    """Run a ``dropflow`` command that ends by itself, and assert that it prints no traceback."""
    done = subprocess.run(
        [python, "-m", "dropflow", *map(str, arguments)],
        env=environment(home) | more,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert "Traceback (most recent call last)" not in done.stderr, done.stderr
    return done


class Running:
    """A ``dropflow`` command that keeps running, from its ready line to its end.

    Parameters
    ----------
    home : Path
        Its home, and its current directory.
    arguments : objects
        Behind ``dropflow``.
    pass_fds : sequence of int
        File descriptors that it gets.
    before : sequence of str
        What goes before the command: a program that runs it somewhere else.
    program : sequence of str
        Arguments of the Python interpreter that stand for ``dropflow``.
    python : path
        The interpreter.
    """

    def __init__(
        self,
        home: Path,
        *arguments: object,
        pass_fds: Sequence[int] = (),
        before: Sequence[str] = (),
        program: Sequence[str] = ("-m", "dropflow"),
        python: str | Path = sys.executable,
    ) -> None:
        self.home = home
        self.log = home / f"{arguments[0]}-{id(self)}.err"
        with self.log.open("wb") as errors:
            self.process = subprocess.Popen(
                [*before, str(python), *program, *map(str, arguments)],
                env=environment(home),
                cwd=home,
                stdout=subprocess.PIPE,
                stderr=errors,
                pass_fds=pass_fds,
            )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline().decode()  # pytest's time limit is the deadline

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop()
        if self.process.stdout is not None:
            self.process.stdout.close()

    @property
    def ready(self) -> Mapping[str, Any]:
        """Return its ready line."""
        found: dict[str, Any] = json.loads(self.line)
        return found

    @property
    def errors(self) -> str:
        """Return its output to standard error."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def family(self) -> list[psutil.Process]:
        """Return the process and all of its descendants."""
        return [psutil.Process(self.process.pid), *descendants_of(self.process.pid)]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal to the process, and return its exit status."""
        self.process.send_signal(number)
        try:
            return self.process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


def listening(processes: Sequence[psutil.Process]) -> list[tuple[str, int]]:
    """Return address and port of every TCP socket on which one of the processes listens."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # it may end meanwhile
            found += process.net_connections("inet")
    return sorted({(each.laddr.ip, each.laddr.port) for each in found if each.status == psutil.CONN_LISTEN})


def words(process: psutil.Process) -> list[str]:
    """Return the arguments of a process and the values of its variables: none if it has ended meanwhile."""
    try:
        return [*process.cmdline(), *process.environ().values()]
    except psutil.NoSuchProcess:
        return []


@contextmanager
def default_ports() -> Iterator[None]:
    """Keep other test runs on this machine from using the default ports, which the commands of the documents use."""
    with (Path(tempfile.gettempdir()) / "dropflow-default-ports.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def gone(processes: Sequence[psutil.Process], seconds: float = _SECONDS) -> bool:
    """Return whether all of the processes end within a number of seconds."""
    pause, clock = threading.Event(), SystemClock()
    end = clock.monotonic() + seconds
    while any(map(_runs, processes)):
        if clock.monotonic() > end:
            return False
        pause.wait(0.05)
    return True


def _runs(process: psutil.Process) -> bool:
    """Return whether a process has not ended; one that its parent has not waited for has."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def working_in(directory: Path) -> list[psutil.Process]:
    """Return the processes that have a path in a directory as an argument, variable, open file or current directory.

    What `info` of them tells stays, also of those that end meanwhile: name, cmdline, environ and cwd.
    """

    def is_below(word: str) -> bool:
        return f"{directory}/" in word or word == str(directory)

    found = []
    for process in psutil.process_iter(["name", "cmdline", "environ", "cwd"]):
        of = process.info
        words = [*(of["cmdline"] or []), *(of["environ"] or {}).values(), of["cwd"] or ""]
        if any(map(is_below, words)) or any(map(is_below, _open_files(process))):
            found.append(process)
    return found


def _open_files(process: psutil.Process) -> list[str]:
    try:
        return [each.path for each in process.open_files()]
    except psutil.Error:
        return []


def end_working_in(directory: Path, names: str = "") -> None:
    """Kill what works in a directory and has a name that begins so, until nothing does: one may start another."""
    own = {os.getpid(), *(each.pid for each in psutil.Process().parents())}
    for _ in range(20):
        left = [each for each in working_in(directory) if each.pid not in own]
        with suppress(psutil.NoSuchProcess):
            left = [each for each in left if each.name().startswith(names)]
            for process in left:
                process.kill()
        psutil.wait_procs(left, timeout=2)
        if not left:
            return


@contextmanager
def ended_with_this_process(directory: Path) -> Iterator[None]:
    """Have daemons that work in a directory end with this process, also if it is killed before it can end them."""
    command = [sys.executable, "-m", "tests.processes", str(directory)]
    # In a session of its own, since whole process groups are killed.
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, start_new_session=True) as watcher:
        try:
            yield
        finally:
            watcher.communicate(b"ended")


def required_packages(name: str, found: Collection[str] = ()) -> set[str]:
    """Return the names of the packages that an installed one requires, without extras, and what these require."""
    wanted = {one.name for one in map(Requirement, distribution(name).requires or ()) if _is_needed(one)}
    every = {*found, *wanted}
    for new in wanted - set(found):
        every |= required_packages(new, every)
    return every


def _is_needed(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


if __name__ == "__main__" and not sys.stdin.buffer.read():
    end_working_in(Path(sys.argv[1]))
