"""The processes inside a job of ``dropflow launch``: the head on its first host, and a node manager on each.

The head is the batch script itself, so that signals of the batch system reach it. It starts the node managers by the
command of the batch system, an island beside itself, and the session; it writes how far they are into the directory
of the job. The session stops before the walltime and after SIGTERM, so that another job can go on with it.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from math import inf
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal, NoReturn, Self

import msgspec

from dropflow.api.auth import make_token, store_token
from dropflow.api.client import Client
from dropflow.api.patience import Patience, PatientClient
from dropflow.api.requests import WALLTIME_REQUEST, ResumeRequest, SubmitQuery
from dropflow.api.session_records import SessionDetail
from dropflow.cli.exit_status import Exit
from dropflow.cli.main import main
from dropflow.cli.output import CommandOutput
from dropflow.cli.sessions.session_replies import exit_of_session
from dropflow.clock import SystemClock
from dropflow.errors import BatchSystemError, ConflictError, DropflowError, NotFoundError, StorageError
from dropflow.files import private_directory, private_opener
from dropflow.formatting import plural
from dropflow.ids import safe_name
from dropflow.states import UNKNOWN, SessionState
from managers.child_processes import ChildProcesses
from managers.jobs.batch import SYSTEMS
from managers.jobs.job_directory import JobDirectory, JobRequest, JobStatus
from managers.keys import load

if TYPE_CHECKING:
    from dropflow.cli.sessions.downloads import FetchReply

_FIRST_NODE_SECONDS = 300.0
"""Seconds in which the island and the first node of a job must start."""
_OTHERS_SECONDS = 60.0
"""Seconds after the start of the first node in which all others should start; later ones are added."""
_JOB_LOOK_SECONDS = 0.2
"""Seconds between two looks at the job: at the reports of its nodes, or at its session."""
_POLL_SECONDS = 2.0
"""Seconds of one long poll for another version of the session."""
_BEAT_SECONDS = 10.0
"""Longest seconds between two writes of the status."""
_AWAY_SECONDS = 60.0
"""Seconds without an answer of the island about the session: a node may have failed and not be lost yet."""
_TERM_GRACE = 5.0
"""Seconds that attempts may clean up after SIGTERM: Slurm kills a job 30 s after it by default."""
_STOP_SECONDS = 15.0
"""Seconds to wait for the end of a session that was cancelled."""
_NODES_END_SECONDS = 10.0
"""Seconds in which the command that has started the nodes must end; then it is killed."""
_PREEMPTED_SECONDS = 6.0
"""Seconds after the end of the nodes of a preempted job in which its batch system may report the preemption."""
_MOST_IDLE = 3
"""Most starts of a job in a row that did not complete more drops."""
_ENDED = "the batch system has ended its job"


def run_member(directory: str, rank: str | None = None) -> NoReturn:
    """Run the node manager of this host, and exit."""
    job = JobDirectory(Path(directory))
    request = job.request
    system = SYSTEMS[request.system]
    number = int(rank if rank is not None else os.environ[system.rank])
    for announced in (signal.SIGUSR1, signal.SIGUSR2):  # of the end of the job, by Grid Engine to all processes
        signal.signal(announced, signal.SIG_IGN)
    root = job.nodes / str(number)
    private_directory(root)
    processors = os.environ.get(system.processors, "")
    watched = os.dup(0)  # standard input ends when the head ends
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # The ready line has the token of the node, and goes to no log.
    sys.stdout = open(job.ready_file(number), "w", encoding="utf-8", opener=private_opener)  # noqa: SIM115 - to the end
    options = [
        *("node", "--name", f"node-{number}", "--root", str(root), "--output", "json"),
        *_server_options(job),
        *("--links-port", "0", "--drain-seconds", f"{request.margin if request.is_pool else 0:g}"),
        *("--log-file", str(root / "manager.log")),
        *(("--workers", processors) if processors.isdigit() else ()),
        *(("--watch-parent", f"{watched}") if system.has_input and not request.is_pool else ()),
    ]
    main(options)


def run_head(directory: str, *spread: str) -> Exit:
    """Run the cluster of a job, and its session, until the session is over or the job must end.

    Returns
    -------
    Exit
        That of ``dropflow submit --wait``; `Exit.FINISHED` for a cluster for interactive work.
    """
    job = JobDirectory(Path(directory))
    request = job.request
    with _JobSignals(request) as signals, ExitStack() as stack:
        head = _JobHead(job, request, signals)
        try:
            try:
                stack.callback(head.close)
                head.start(spread)
                status = head.work()
            finally:
                stack.close()
            is_stopped = status is Exit.PAUSED or (head.was_ended and status is not Exit.FINISHED)
            # After SIGTERM the batch system starts it again.
            goes_on = is_stopped and signals.last is not signal.SIGTERM and request.goes_on
            if goes_on:
                head.count_idle()
        except DropflowError as error:
            is_ended = signals.last is signal.SIGTERM
            text = error.text + (f" ({error.hint})" if error.hint else "")
            head.tell("stopped" if is_ended else "over", code=error.code, text=_ENDED if is_ended else text)
            raise
        head.tell("stopped" if is_stopped else "over")
    return _start_again(request, status) if goes_on else status


def _start_again(request: JobRequest, status: Exit) -> Exit:
    system = SYSTEMS[request.system]
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    system.requeue_job(os.environ[system.job])
    return status


def _server_options(job: JobDirectory) -> list[str]:
    if job.request.tunnel:
        address = ["--port", "0", "--links-port", f"{job.request.tunnel[0]}"]
    else:
        address = ["--host", "0.0.0.0", "--port", "0", "--advertise", job.request.address]  # noqa: S104 - with a key
    return [*address, "--key", str(job.key), "--group", safe_name(job.path.name)]


class _JobSignals:
    """The signals by which a batch system announces the end of a job, and the walltime that the job knows itself."""

    def __init__(self, request: JobRequest) -> None:
        self.last: signal.Signals | None = None
        self._clock = SystemClock()
        before = request.seconds - request.margin
        self.walltime = self._clock.now() + before if request.seconds else 0.0
        """Time at which the session must stop, in seconds since the epoch; 0 if that is not known."""

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self._received)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the handlers: a second signal must not end the process while it cleans up."""

    @property
    def must_stop(self) -> bool:
        """Whether the job ends soon."""
        return self.last is not None or bool(self.walltime and self._clock.now() >= self.walltime)

    def _received(self, number: int, _: FrameType | None) -> None:
        if self.last is not signal.SIGTERM:
            self.last = signal.Signals(number)


class _JobNotes(CommandOutput):
    """Keeps notes for the status of the job, and prints them to its output."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Keep one line; each once."""
        if text not in self.notes:
            self.notes.append(text)
            super().note(text)


class _JobHead:
    """The cluster of a job and its session."""

    def __init__(self, job: JobDirectory, request: JobRequest, signals: _JobSignals) -> None:
        self._job = job
        self._request = request
        self._signals = signals
        self._output = _JobNotes()
        self._clock = SystemClock()
        self._pause = threading.Event()
        self._children = ChildProcesses()
        self._nodes: subprocess.Popen[bytes] | None = None
        self._known: set[int] = set()
        self._are_nodes_ended = False
        self._url = ""
        self._detail: SessionDetail | None = None
        self._before = JobStatus()
        self._idle = 0
        self._last = JobStatus()

    @property
    def was_ended(self) -> bool:
        """Whether the batch system has ended the job, or only its nodes, as Slurm does before it preempts a job."""
        return self._signals.last is signal.SIGTERM or self._are_nodes_ended

    def start(self, spread: Sequence[str]) -> None:
        """Start the node managers and, once they answer, the island.

        Raises
        ------
        BatchSystemError
            No node manager starts.
        WorldError
            The island does not start.
        """
        self._before = self._job.status or self._before
        self._detail, self._idle = self._before.detail, self._before.idle
        self._job.forget_addresses()
        self.tell("starting")
        self._nodes = subprocess.Popen(spread, stdin=subprocess.PIPE)  # noqa: S603 - of the script
        urls = self._wait_for_nodes()
        store_token(self._job.token, make_token())
        root = self._job.path / "island"
        private_directory(root)
        options = [
            *("island", "--name", "island", "--root", str(root), "--output", "json", *_server_options(self._job)),
            *("--token-file", str(self._job.token), "--log-file", str(root / "manager.log")),
            *(word for url in urls for word in ("--nodes", url)),
        ]

        def command(parent: int) -> list[str]:
            return [sys.executable, "-m", "dropflow", *options, "--watch-parent", f"{parent}"]

        launch = partial(self._children.launch, "island", "island", command, lambda _: None)
        self._url = self._children.wait_ready(self._children.call(launch), _FIRST_NODE_SECONDS)
        self.tell("running")

    def work(self) -> Exit:
        """Run the session until it is over or must stop, and fetch its results; or wait until the job must end."""
        if not self._request.session:
            while not self._signals.must_stop and not self._have_nodes_ended():
                with self._connect() as client:
                    self._add_late_nodes(client)
                self.tell("running")
                self._pause.wait(_POLL_SECONDS)
            return Exit.FINISHED
        with self._connect() as client:
            detail = self._follow(client, self._begin(client))
            status = exit_of_session(detail)
            is_last = status is not Exit.PAUSED or not self._request.goes_on
            if is_last and not self.was_ended:
                missing = self._fetch(client)
                if missing and status is Exit.FINISHED:
                    return Exit.FAILED
        return status

    def count_idle(self) -> None:
        """Count a job that is to be started again, if it has completed nothing.

        Raises
        ------
        BatchSystemError
            That was so several times in a row.
        """
        self._idle = self._before.idle_after(self._detail)
        if self._idle == _MOST_IDLE:
            self._idle = 0  # for those who start it again
            raise BatchSystemError(
                f"it ran {_MOST_IDLE} times in a row and completed no more drops, so it is not started again",
                where=str(self._job.path),
                hint=f"give it a longer --time; 'dropflow launch ... {self._job.path}' goes on",
            )

    def close(self) -> None:
        """End the island, then the node managers."""
        self._children.close()
        if self._nodes is None:
            return
        assert self._nodes.stdin is not None  # it is a pipe
        self._nodes.stdin.close()
        try:
            if not SYSTEMS[self._request.system].has_input:
                self._nodes.terminate()
            self._nodes.wait(_NODES_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._nodes.kill()
            self._nodes.wait()

    def tell(self, state: Literal["starting", "running", "stopped", "over"], *, code: str = "", text: str = "") -> None:
        """Write how far the job is, if that has changed or was last written some time ago."""
        status = JobStatus(
            state=state,
            url=self._url,
            present=len(self._known),
            detail=self._detail,
            notes=tuple(self._output.notes),
            code=code,
            text=text,
            idle=self._idle,
            time=self._last.time,
        )
        now = self._clock.now()
        if status == self._last and now < self._last.time + _BEAT_SECONDS:
            return
        self._last = msgspec.structs.replace(status, time=now)
        try:
            self._job.write(self._last)
        except StorageError:
            # A full disk must not end a session that runs; it is written again with the next beat.
            if state != "running":
                raise

    def _connect(self) -> Client:
        return Client(self._url, secret=load(self._job.key).secret)

    def _wait_for_nodes(self) -> list[str]:
        """Return the addresses of the nodes, once all have started or those that are late are not waited for."""
        until = self._clock.monotonic() + _FIRST_NODE_SECONDS
        while len(self._known) < self._request.nodes and self._clock.monotonic() < until:
            addresses = self._job.addresses()
            if addresses and not self._known:
                until = min(until, self._clock.monotonic() + _OTHERS_SECONDS)
            self._known = set(addresses)
            failed = self._job.failures()
            if self._signals.must_stop or self._have_nodes_ended() or len({*addresses, *failed}) >= self._request.nodes:
                break
            self._pause.wait(_JOB_LOOK_SECONDS)
        addresses, failed = self._job.addresses(), self._job.failures()
        self._known = set(addresses)
        for text in failed.values():
            self._output.note(text)
        if not addresses:
            raise BatchSystemError(
                "no node manager has started in this job"
                + "".join(f"; {text}" for text in dict.fromkeys(failed.values())),
                where=str(self._job.path),
                hint=f"see {self._job.output}; can the hosts write to this directory, and is dropflow installed there?",
            )
        late = self._request.nodes - len({*addresses, *failed})
        if late:
            self._output.note(f"{plural(late, 'node')} of {self._request.nodes} had not started in time")
        return [addresses[number] for number in sorted(addresses)]

    def _have_nodes_ended(self) -> bool:
        return self._nodes is not None and self._nodes.poll() is not None

    def _add_late_nodes(self, client: Client) -> None:
        addresses = self._job.addresses()
        for number in sorted(set(addresses) - self._known):
            with suppress(DropflowError):  # it is tried again
                client.add_child(addresses[number])
                self._known.add(number)

    # The session.

    def _begin(self, client: Client) -> SessionDetail:
        """Submit the session, or go on with it: all nodes of the earlier job have ended. Return it."""
        from dropflow.graph.codec import load as load_graph
        from dropflow.submission.submit import PlacementOptions, submit_fitted

        request, name = self._request, self._request.session
        walltime = self._signals.walltime
        until = min(filter(None, (request.options.until, walltime)), default=0.0)

        def submit() -> None:
            graph = load_graph(self._job.graph)
            query = SubmitQuery.of(msgspec.structs.replace(request.options, until=until), session=name)
            submit_fitted(patient_client, graph, query, PlacementOptions(), weight=graph.weight, note=self._output.note)

        def resume() -> None:
            try:
                patient_client.ask(
                    lambda manager: manager.resume(name, ResumeRequest(without_missing=True, until=until))
                )
            except ConflictError:  # an earlier job has ended before it had the results
                if not client.session(name).is_over:
                    raise

        with closing(PatientClient(self._connect, seconds=_AWAY_SECONDS)) as patient_client:
            if self._before.detail is None:
                try:
                    submit()
                except ConflictError:  # an earlier job has submitted it, and ended before it recorded that
                    resume()
            else:
                try:
                    resume()
                except NotFoundError:  # none of these nodes has it
                    submit()
            return patient_client.ask(lambda manager: manager.session(name))

    def _follow(self, client: Client, detail: SessionDetail) -> SessionDetail:
        """Return the session once it is over; stop it when the job must end.

        Raises
        ------
        BatchSystemError
            All nodes have failed, or those that could go on do not answer.
        DropflowError
            The island does not answer.
        """
        end = inf
        away, unknown = Patience(_AWAY_SECONDS, self._clock), Patience(_AWAY_SECONDS, self._clock)
        while True:
            self._detail = detail
            self.tell("running")
            if detail.is_over:
                return detail
            if self._signals.must_stop and end == inf:
                self._stop(client, detail)
                end = self._clock.monotonic() + _STOP_SECONDS
            have_ended = self._have_nodes_ended()
            self._are_nodes_ended = have_ended and self._is_preempted()
            if self._are_nodes_ended or (self._signals.must_stop and (have_ended or self._clock.monotonic() > end)):
                self._detail = msgspec.structs.replace(detail, status=SessionState.CANCELLED.name, text=_ENDED)
                return self._detail
            if have_ended:
                raise BatchSystemError(
                    "all node managers of the job have ended before the session was over", where=str(self._job.output)
                )
            if unknown.is_over:
                text = f"the session has been {UNKNOWN} for {_AWAY_SECONDS:g} s: {detail.text}"
                raise BatchSystemError(text, where=str(self._job.output))
            try:
                self._add_late_nodes(client)
                detail = client.watch(detail.session, version=detail.version, seconds=_POLL_SECONDS)
                away.end()
                self._pause.wait(_JOB_LOOK_SECONDS)
            except DropflowError:
                away.begin()
                if away.is_over:
                    raise
                self._pause.wait(1.0)
            if detail.status == UNKNOWN:
                unknown.begin()
            else:
                unknown.end()

    def _is_preempted(self) -> bool:
        """Return whether the nodes have ended because of the batch system, which may tell that a little later."""
        system = SYSTEMS[self._request.system]
        until = self._clock.monotonic() + _PREEMPTED_SECONDS
        while not self._signals.must_stop:
            with suppress(DropflowError):
                if system.is_preempted(os.environ.get(system.job, "")):
                    return True
            if not system.preempted or self._clock.monotonic() > until:
                return False
            self._pause.wait(2.0)
        return self._signals.last is signal.SIGTERM

    def _stop(self, client: Client, detail: SessionDetail) -> None:
        """Pause the session until what runs has ended, or half of the time is over; then cancel it."""
        name = detail.session
        is_late = self._signals.last is signal.SIGTERM
        if not is_late:
            until = self._clock.monotonic() + self._request.margin / 2
            with suppress(DropflowError):
                client.pause(name)
                while detail.running and not detail.is_over and self._clock.monotonic() < until:
                    detail = client.watch(name, version=detail.version, seconds=_POLL_SECONDS)
                    self._pause.wait(_JOB_LOOK_SECONDS)
                    if self._signals.last is signal.SIGTERM:
                        break
        with suppress(DropflowError):
            client.cancel(name, _ENDED if is_late else WALLTIME_REQUEST.reason, grace=_TERM_GRACE)

    def _fetch(self, client: Client) -> int:
        """Copy the results to where they were asked for; return how many could not be."""
        from dropflow.cli.sessions.fetch import fetch_results

        reply: FetchReply = fetch_results(client, self._request.session, Path(self._request.results), with_stores=False)
        for line in reply.lines() if reply.missing or reply.silent else ():
            self._output.note(line)
        return len(reply.missing) + len(reply.silent)
