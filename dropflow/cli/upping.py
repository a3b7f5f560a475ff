"""The body of ``dropflow up``: processes below this one, which never outlive it.

Each child holds the reading end of a pipe whose writing end only this process has. When this process ends, however it
ends, the pipe is closed and the children end cleanly. They share a token through a file that only their owner reads:
arguments and environments of processes are seen by others.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, Queue
from typing import TextIO

import msgspec

from dropflow.cli.exits import Exit
from dropflow.cli.paths import default_key, default_root
from dropflow.cli.serving import announce, browser_url, claim_root, cluster_key
from dropflow.cli.stopping import Stopping
from dropflow.errors import WorldError
from dropflow.private import private_directory
from dropflow.rest.auth import make_token, store_token

__all__ = ["UpOptions", "run_up"]

_START_SECONDS = 60.0
_END_SECONDS = 15.0
_LAST_WORDS_SECONDS = 1.0
"""How long the output of a child that has ended is read, when something else holds it open."""
_TRANSLATOR, _MASTER, _ISLAND = 8084, 8002, 8001


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options of ``dropflow up`` say; see their help."""

    nodes: int = 1
    port: int | None = None
    no_auth: bool = False
    root: str | None = None
    workers: int | None = None
    key: str | None = None
    lost_after: float = 15.0
    log_level: str = "info"


class UpReady(msgspec.Struct, frozen=True, kw_only=True):
    """The ready line of ``dropflow up``."""

    ready: bool = True
    role: str = "up"
    url: str
    translator: str
    master: str
    island: str
    nodes: tuple[str, ...]
    token: str | None


class _Told(msgspec.Struct, frozen=True):
    """The first line of a child: that it is ready, or why it is not."""

    ready: bool = False
    url: str = ""
    error: dict[str, str] = {}


class _Child:
    """One process below this one.

    Parameters
    ----------
    parent : int
        File descriptor by which it notices the end of this process.
    ended : queue
        Gets the child when its process has ended.
    """

    def __init__(self, role: str, name: str, arguments: Sequence[str], parent: int, ended: "Queue[_Child]") -> None:
        self.role = role
        self.name = name
        self._first: Queue[str] = Queue()
        self._ended = ended
        self.process = subprocess.Popen(  # noqa: S603 - our own command, no shell
            [sys.executable, "-m", "dropflow", role, "--name", name, *arguments, "--output", "json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[parent],
            process_group=0,  # Ctrl-C is for this process alone, which ends the others in order
        )
        reader = threading.Thread(target=self._read, args=(self.process.stdout,), name=name, daemon=True)
        reader.start()
        threading.Thread(target=self._await, args=(reader,), name=f"{name}-end", daemon=True).start()

    def url(self, stopping: Stopping) -> str:
        """Its address, as soon as it is ready; empty if this process is to end before.

        Raises
        ------
        WorldError
            It ended, or takes too long.
        """
        line = ""
        for _ in range(int(_START_SECONDS * 10)):
            try:
                line = self._first.get(timeout=0.1)
                break
            except Empty:
                if stopping.asked():
                    return ""
        try:
            told = msgspec.json.decode(line or "{}", type=_Told)
        except msgspec.MsgspecError:
            told = _Told()
        if told.ready:
            return told.url
        status = self.process.poll()
        why = told.error.get("text", "") or (f"it ended with status {status}" if status is not None else "it is silent")
        raise WorldError(f"the {self.role} cannot be started: {why}", where=self.name, hint=told.error.get("hint", ""))

    def end(self) -> None:
        """Ask it to end; `wait` waits for it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Wait until it has ended, and end it by force if it does not."""
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            sys.stderr.write(f"{self.name} does not end; it is killed\n")
            self.process.kill()
            self.process.wait()

    def _read(self, stream: TextIO) -> None:
        for line in stream:
            self._first.put(line)

    def _await(self, reader: threading.Thread) -> None:
        # Not the end of its output: a process that it has started, and left behind, may hold that.
        self.process.wait()
        reader.join(_LAST_WORDS_SECONDS)
        self._first.put("")
        self._ended.put(self)


def run_up(options: UpOptions) -> Exit:
    """Start everything, say that it is ready, and wait for the end.

    Returns
    -------
    Exit
        `Exit.FINISHED` when told to end; `Exit.FAILED` when every process below has ended by itself.

    Raises
    ------
    WorldError
        One of the processes cannot be started: none is left behind.
    """
    secret: list[Path] = []
    with Stopping(at_once=lambda: _remove(secret)) as stopping, ExitStack() as stack:
        root = claim_root(Path(options.root) if options.root else default_root("up"), stack)
        cluster_key(options.key, beyond=False)  # made once, before all children look for it
        token = None if options.no_auth else make_token()
        token_file = root / "token"
        if token is not None:
            secret.append(token_file)
            stack.callback(_remove, secret)
            store_token(token_file, token)
        reader, writer = os.pipe()
        stack.callback(os.close, writer)
        stack.callback(os.close, reader)
        family = _Family(options, root, reader, stopping)
        stack.callback(family.end)
        ready = family.start(token)
        if ready is None:
            return Exit.FINISHED
        announce(ready, people=_for_people(ready, root))
        return family.watch()


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


class _Family:
    """All processes below this one."""

    def __init__(self, options: UpOptions, root: Path, parent: int, stopping: Stopping) -> None:
        self._options = options
        self._root = root
        self._parent = parent
        self._stopping = stopping
        self._children: list[_Child] = []
        self._ended: Queue[_Child] = Queue()

    def start(self, token: str | None) -> UpReady | None:
        """Start the nodes side by side, then what stands on them; None if it is to end before all are ready."""
        options = self._options
        cores = len(os.sched_getaffinity(0))
        workers = options.workers or max(1, cores // options.nodes)
        timing = ("--lost-after", f"{options.lost_after}", "--suspect-after", f"{min(3.0, options.lost_after / 2)}")
        nodes = [
            self._begin(
                "node",
                f"node-{number + 1}",
                self._port(3 + number, 0),
                ("--links-port", "0", "--workers", f"{workers}", *timing),
            )
            for number in range(options.nodes)
        ]
        nodes_at = [child.url(self._stopping) for child in nodes]
        if self._stopping.asked():
            return None
        pairs = [word for url in nodes_at for word in ("--nodes", url)]
        island = self._begin("island", "island", self._port(2, _ISLAND), (*pairs, *timing)).url(self._stopping)
        if self._stopping.asked():
            return None
        below = ("--islands", island, *timing)
        master = self._begin("master", "master", self._port(1, _MASTER), below).url(self._stopping)
        if self._stopping.asked():
            return None
        translator = self._begin("translator", "translator", self._port(0, _TRANSLATOR), ("--to", master))
        at = translator.url(self._stopping)
        if self._stopping.asked():
            return None
        return UpReady(url=master, translator=at, master=master, island=island, nodes=tuple(nodes_at), token=token)

    def watch(self) -> Exit:
        """Tell who ends by itself, until this process is to end or nobody is left."""
        left = len(self._children)
        threading.Thread(target=self._tell, args=(left,), name="children", daemon=True).start()
        self._stopping.wait()
        return Exit.FINISHED if any(child.process.poll() is None for child in self._children) else Exit.FAILED

    def end(self) -> None:
        """End all processes: those above first, so that nobody asks who has gone."""
        self._stopping.stop()
        for child in reversed(self._children):
            child.end()
        for child in reversed(self._children):
            child.wait()

    def _tell(self, left: int) -> None:
        for rest in range(left - 1, -1, -1):
            child = self._ended.get()
            if self._stopping.asked():
                return
            log = self._root / child.name / "manager.log"
            sys.stderr.write(f"{child.name} has ended with status {child.process.returncode}: see {log}")
            sys.stderr.write("; the others go on\n" if rest else "\n")
            sys.stderr.flush()
        self._stopping.stop()

    def _begin(self, role: str, name: str, port: int, more: Sequence[str]) -> _Child:
        options = self._options
        entrance = ("--no-auth",) if options.no_auth else ("--token-file", str(self._root / "token"))
        root = self._root / name
        private_directory(root)
        arguments = (
            *("--root", str(root), "--port", f"{port}", *more, *entrance),
            *("--key", options.key or str(default_key()), "--group", f"up-{os.getpid()}"),
            *("--log-file", str(root / "manager.log"), "--log-level", options.log_level),
            *("--watch-parent", f"{self._parent}"),
        )
        child = _Child(role, name, arguments, self._parent, self._ended)
        self._children.append(child)
        return child

    def _port(self, offset: int, usual: int) -> int:
        if self._options.port is None:
            return usual
        return self._options.port + offset if self._options.port else 0


def _for_people(ready: UpReady, root: Path) -> str:
    return (
        f"sessions, in a browser:    {browser_url(ready.master, ready.token)}\n"
        f"translator, in a browser:  {browser_url(ready.translator, ready.token)}\n"
        f"here:                      dropflow submit GRAPH --wait\n"
        f"logs and results in {root}\n"
    )
