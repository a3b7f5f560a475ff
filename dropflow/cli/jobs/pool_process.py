"""The process of a pool, and the files by which ``dropflow pool`` commands it.

A pool is a process on this host, and a directory that it shares with its nodes: each is one job, which runs ``dropflow
launch member``. `managers.jobs.pool` decides; `_PoolProcess` asks the island and the batch system, and does it.
"""

import fcntl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from dropflow.api.client import Client
from dropflow.api.patience import Patience
from dropflow.api.requests import DrainRequest
from dropflow.api.signing import default_key_file
from dropflow.cli.exit_status import Exit
from dropflow.cli.jobs.job_submission import ScriptReply
from dropflow.cli.output import CommandOutput, columns
from dropflow.clock import SystemClock
from dropflow.errors import ConflictError, DropflowError, JobRefusedError, NotFoundError, StorageError, UsageError
from dropflow.files import private_directory
from dropflow.ids import is_session_name
from dropflow.states import SessionState
from dropflow.submission.manager_records import directory_of_job, forget_job, jobs_of, record_job
from dropflow.submission.options import ConnectionOptions
from managers.jobs.batch import SYSTEMS, Facility, job_script
from managers.jobs.job_directory import JobDirectory, JobRequest, read_record
from managers.jobs.pool import PoolSettings, PoolState, Seen, decide, refused, submitted
from managers.keys import load

_POOL_LOOK_SECONDS = 2.0
"""Seconds between two looks of a pool at its jobs and its island."""
_AWAY_SECONDS = 600.0
"""After so long without an answer of its island, a pool gives all nodes back and ends."""
_BY_COMMAND = "by 'dropflow pool pause'"


class PoolOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a pool: the file ``pool.json`` in its directory."""

    name: str
    island: str
    settings: PoolSettings
    site: Facility
    arguments: tuple[str, ...]


class PoolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a pool: the file ``state.json`` in its directory, which its process writes.

    Attributes
    ----------
    waiting : int
        Attempts that wait for a worker.
    text : str
        Text of the last problem.
    wanted_at : float
        When that was written, in the file ``wanted``, which the pool follows.
    """

    state: PoolState = PoolState()
    waiting: int = 0
    text: str = ""
    wanted_at: float = 0.0


class PoolRow(msgspec.Struct, frozen=True, kw_only=True):
    """One pool: how many nodes it has, has asked for and may have, and in which directory it is."""

    name: str
    island: str
    status: str
    nodes: int
    asked: int
    most: int
    waiting: int
    text: str
    directory: str


class PoolsReply(msgspec.Struct, frozen=True, kw_only=True):
    """Pools of this user."""

    ok: bool = True
    pools: tuple[PoolRow, ...]

    def lines(self) -> Iterator[str]:
        """One row for each."""
        if not self.pools:
            yield "no pools"
            return
        header = ("pool", "island", "status", "nodes", "asked for", "at most", "work waits", "directory")
        rows = [
            (pool.name, pool.island, pool.status, pool.nodes, pool.asked, pool.most, pool.waiting, pool.directory)
            for pool in self.pools
        ]
        yield from columns(rows, header=header, indent="")
        yield from (f"{pool.name}: {pool.text}" for pool in self.pools if pool.text)


def add_pool(
    output: CommandOutput,
    manager: ConnectionOptions,
    *,
    system: str,
    name: str,
    settings: PoolSettings,
    site: Facility,
    arguments: tuple[str, ...],
    dry_run: bool,
) -> Exit:
    """Write the files of a pool, and start its process.

    Raises
    ------
    ConflictError
        There is a pool of this name.
    UsageError
        The manager is not an island, there is no key, or the name cannot be used.
    """
    if not is_session_name(name):
        raise UsageError(f"{name!r} cannot be the name of a pool")
    path = Path(site.directory).expanduser().absolute() / f"pool-{name}"
    job = JobDirectory(path)
    request = JobRequest(
        system=system,
        session="",
        nodes=1,
        seconds=settings.seconds,
        margin=settings.margin,
        goes_on=False,
        results="",
        is_pool=True,
    )
    script = job_script(SYSTEMS[system], job, request, site)
    if dry_run:
        output.answer(ScriptReply(script=script))
        return Exit.FINISHED
    if manager.tunnel is not None:
        raise UsageError("a pool cannot use an island through ssh", where="--to", hint="add it on the login node")
    key = Path(manager.key) if manager.key else default_key_file()
    content = key.read_text(encoding="ascii") if load(key) else ""
    known = directory_of_job(f"pool-{name}")
    facts = None if known is None else read_record(known / "state.json", PoolFacts)
    if known is not None and (_is_running(known) or (facts is not None and facts.state.allocations)):
        hint = f"remove it first, go on with it ('dropflow pool resume {name}'), or give another --name"
        raise ConflictError(f"there is a pool {name}", where=str(known), hint=hint)
    with manager.connect() as client:
        info = client.info()
        if info.role != "island":
            raise UsageError(f"a pool is added to an island, and this is a {info.role}", where=client.url, hint="--to")
        if not client.nodes() and not settings.least:
            output.note("the island has no nodes, so that it takes no graphs: --min 1 keeps one")
        url = client.url
    private_directory(path.parent)
    private_directory(path)
    job.forget_addresses()
    order = PoolOrder(name=name, island=url, settings=settings, site=site, arguments=arguments)
    job.write(request)
    job.write_text(job.key, content)
    job.write_text(job.output, "")
    job.write_text(job.script, script)
    job.write_text(path / "pool.json", msgspec.json.encode(order).decode())
    job.write_text(path / "state.json", msgspec.json.encode(PoolFacts()).decode())
    job.write_text(path / "wanted", "on")
    record_job(f"pool-{name}", path)
    _start(path)
    output.answer(PoolsReply(pools=(_row(path),)))
    return Exit.FINISHED


def list_pools(output: CommandOutput) -> Exit:
    """Print the pools of this user, and a note for each directory that cannot be read."""
    rows = []
    for path in jobs_of("pool-"):
        try:
            rows.append(_row(path))
        except DropflowError as error:
            output.note(f"{path} is left out: {error.text}")
    output.answer(PoolsReply(pools=tuple(rows)))
    return Exit.FINISHED


def remove_pool(output: CommandOutput, name: str) -> Exit:
    """Tell a pool to give all nodes back, wait until it has, and forget it."""
    status = want(output, name, "removed", is_answered=False)
    path = _directory(name)
    with _lock(path, waits=True):
        pass
    output.answer(PoolsReply(pools=(_row(path),)))
    forget_job(f"pool-{name}")
    return status


def run_pool(output: CommandOutput, path: Path) -> Exit:
    """Be the process of a pool."""
    with _lock(path, waits=True):
        _PoolProcess(path, output).run()
    return Exit.FINISHED


def _directory(name: str) -> Path:
    directory = directory_of_job(f"pool-{name}")
    if directory is None:
        raise NotFoundError(f"there is no pool {name}", hint="'dropflow pool list' shows those of this user")
    return directory


def want(output: CommandOutput, name: str, wanted: str, *, is_answered: bool = True) -> Exit:
    """Tell the process of a pool what is wanted, and start it if it has ended."""
    path = _directory(name)
    JobDirectory(path).write_text(path / "wanted", wanted)
    if not _is_running(path):
        _start(path)
    if is_answered:
        output.answer(PoolsReply(pools=(_row(path),)))
    return Exit.FINISHED


def _start(path: Path) -> None:
    """Start the process of a pool, which outlives this one."""
    with (path / "output").open("ab") as log:
        subprocess.Popen(  # noqa: S603 - no shell
            [sys.executable, "-m", "dropflow", "pool", "work", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    pause, clock = threading.Event(), SystemClock()
    until = clock.monotonic() + _POOL_LOOK_SECONDS * 5
    while not _is_running(path) and clock.monotonic() < until:
        pause.wait(0.05)


@contextmanager
def _lock(path: Path, *, waits: bool = False) -> Iterator[bool]:
    """Hold the lock of the process of a pool; yield whether it is free."""
    with (path / "lock").open("a", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


def _is_running(path: Path) -> bool:
    with _lock(path) as is_free:
        return not is_free


def _row(path: Path) -> PoolRow:
    order = read_record(path / "pool.json", PoolOrder)
    facts = read_record(path / "state.json", PoolFacts)
    if order is None or facts is None or not (path / "wanted").exists():
        raise NotFoundError("this is not the directory of a pool", where=str(path))
    wanted = (path / "wanted").read_text(encoding="ascii")
    status = "removed" if wanted == "removed" else "paused" if facts.state.paused or wanted == "paused" else "on"
    if wanted != "removed" and not _is_running(path):
        status = "its process has ended; 'dropflow pool resume' starts it"
    allocations = facts.state.allocations
    return PoolRow(
        name=order.name,
        island=order.island,
        status=status,
        nodes=sum(bool(allocation.up) for allocation in allocations),
        asked=sum(not allocation.up for allocation in allocations),
        most=order.settings.most,
        waiting=facts.waiting,
        text=facts.state.paused or facts.text,
        directory=str(path),
    )


class _PoolProcess:
    """Asks the island and the batch system, and does what `decide` returns."""

    def __init__(self, path: Path, output: CommandOutput) -> None:
        order, facts = read_record(path / "pool.json", PoolOrder), read_record(path / "state.json", PoolFacts)
        if order is None or facts is None:
            raise NotFoundError("this is not the directory of a pool", where=str(path))
        self._path, self._order, self._facts, self._output = path, order, facts, output
        self._is_kept = True
        self._job = JobDirectory(path)
        self._system = SYSTEMS[self._job.request.system]
        self._client = Client(order.island, secret=load(self._job.key).secret)
        self._clock = SystemClock()
        self._pause = threading.Event()
        self._asked = -order.settings.every
        self._absence = Patience(_AWAY_SECONDS, self._clock)

    def run(self) -> None:
        """Work until the pool is removed and has no job, or its island has been away for long."""
        while True:
            ends = self._wanted() == "removed" or self._absence.is_over
            seen = self._look(ends=ends)
            state, actions = decide(self._facts.state, self._order.settings, seen)
            self._keep(state=state, waiting=seen.waiting)
            for action in actions:
                self._do(action.kind, action.job)
            if ends and not self._facts.state.allocations:
                return
            self._pause.wait(_POOL_LOOK_SECONDS)

    def _wanted(self) -> str:
        """Return what is wanted; what is new ends a pause, or begins one."""
        path = self._path / "wanted"
        wanted_at, wanted = path.stat().st_mtime, path.read_text(encoding="ascii")
        if wanted_at != self._facts.wanted_at:
            paused = _BY_COMMAND if wanted == "paused" else ""
            state = msgspec.structs.replace(self._facts.state, paused=paused, failed=0, refused=0, next=0.0)
            self._keep(state=state, text="", wanted_at=wanted_at)
        return wanted

    def _look(self, *, ends: bool) -> Seen:
        """Return what the island knows, and the batch system if it may be asked."""
        now, waiting, running, jobs = self._clock.now(), self._facts.waiting, {}, None
        try:
            for number, url in self._job.addresses().items():
                if any(
                    allocation.job == str(number) and not allocation.up for allocation in self._facts.state.allocations
                ):
                    with suppress(ConflictError):
                        self._client.add_child(url)
            alive = {node.name: node.load.busy for node in self._client.nodes() if node.state == "alive"}
            running = {
                allocation.job: alive[f"node-{allocation.job}"]
                for allocation in self._facts.state.allocations
                if f"node-{allocation.job}" in alive
            }
            live = [session for session in self._client.sessions() if session.status == SessionState.RUNNING.name]
            waiting = sum(live_session.queued + live_session.ready for live_session in live)
            self._absence.end()
        except DropflowError as error:
            self._keep(text=f"the island does not answer: {error.text}")
            self._absence.begin()
        if self._facts.state.allocations and self._clock.monotonic() >= self._asked + self._order.settings.every:
            self._asked = self._clock.monotonic()
            try:
                jobs = self._system.states_of_jobs(allocation.job for allocation in self._facts.state.allocations)
            except DropflowError as error:
                self._keep(text=error.text)
        return Seen(now=now, waiting=waiting, running=running, jobs=jobs, ends=ends)

    def _do(self, kind: str, job: str) -> None:
        state = self._facts.state
        try:
            if kind == "submit":
                number = self._system.submit_job(self._job.script, self._order.arguments)
                self._keep(state=submitted(state, number, self._clock.now()), text="")
                self._asked = self._clock.monotonic()
            elif kind == "drain":
                self._client.drain(f"node-{job}", DrainRequest(grace=self._order.settings.margin))
            else:
                self._system.cancel_job(job)
        except JobRefusedError as error:
            self._keep(state=refused(state, error.text), text=error.text)
        except DropflowError as error:
            self._keep(text=error.text)

    def _keep(self, **changed: Any) -> None:
        """Write how the pool is, if that has changed; again with the next look if the disk is full."""
        facts = msgspec.structs.replace(self._facts, **changed)
        if facts != self._facts:
            if facts.text and facts.text != self._facts.text:
                self._output.note(facts.text)
            self._facts, self._is_kept = facts, False
        if not self._is_kept:
            # Without this process, the nodes would not be given back.
            with suppress(StorageError):
                self._job.write_text(self._path / "state.json", msgspec.json.encode(facts).decode())
                self._is_kept = True
