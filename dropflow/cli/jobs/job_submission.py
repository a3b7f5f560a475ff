"""Jobs of ``dropflow launch``: how they are submitted and waited for, on the host of their batch system.

`run_order` submits a job and waits for it by the files in its directory (`_JobWait`). It answers with a `ScriptReply`,
a `LaunchReply`, or the answer of ``dropflow submit --wait``.
"""

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, OutputKind
from dropflow.errors import BatchSystemError, ConflictError, DropflowError
from managers.jobs.batch import SYSTEMS, BatchSystem, JobOrder, JobState, job_script
from managers.jobs.job_directory import JobDirectory, JobRequest, JobStatus

if TYPE_CHECKING:
    from dropflow.graph.physical import PhysicalGraph

_LOOK_SECONDS = 0.5
"""Seconds between two reads of the status of a job, which is a file."""
_ASK_SECONDS = (1.0, 2.0, 7.0, 30.0)
"""Seconds between calls of the batch system after a submission; the last one counts from then on."""
_SILENT_SECONDS = 30.0
"""Time without a new status after which the batch system is asked whether the job still runs."""


class ScriptReply(msgspec.Struct, frozen=True, kw_only=True):
    """The batch script that a job would have."""

    ok: bool = True
    script: str

    def lines(self) -> Iterator[str]:
        """Yield the script."""
        yield from self.script.splitlines()


class LaunchReply(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was submitted and is not waited for.

    Attributes
    ----------
    to : str
        What commands take as ``--to``.
    url : str
        Address of its island, once it has one: its pages, for a browser that ``dropflow open`` signs in.
    login : str
        The login node where it was submitted; empty for this host.
    """

    ok: bool = True
    job: str
    to: str
    directory: str
    session: str = ""
    url: str = ""
    login: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the place of the job, and the commands that reach it."""
        yield f"job {self.job}  {self.directory}"
        if self.url:
            yield f"  in the browser: {self.url} (dropflow open --to {self.to})"
        follow = f"watch {self.session}" if self.session else "submit GRAPH --wait"
        yield f"  here:           dropflow {follow} --to {self.to}"


def run_order(output: CommandOutput, order: JobOrder, job: JobDirectory, graph: "PhysicalGraph | None" = None) -> Exit:
    """Submit a job, wait for it, and print the answer.

    Parameters
    ----------
    job : JobDirectory
        New, or that of an earlier job with the same session.
    graph : PhysicalGraph or None
        The graph of a new session.
    """
    from dropflow.cli.jobs.hosts import end_process

    request = order.request
    if not request.results:
        request = msgspec.structs.replace(request, results=str(job.path / "results"))
    name, system = request.system, SYSTEMS[request.system]
    if order.dry_run:
        output.answer(ScriptReply(script=job_script(system, job, request, order.site)))
        return Exit.FINISHED
    if graph is not None:
        from dropflow.graph.codec import save

        save(graph, job.graph)
        job.graph.chmod(0o600)
    number = _submit(job, msgspec.structs.replace(order, request=request))
    waiting = _JobWait(output, system, job, number)
    reply = LaunchReply(job=number, to=f"{name}:{number}", directory=str(job.path), session=request.session)
    if order.detach:
        output.answer(reply)
        return Exit.FINISHED
    try:
        status = waiting.until_over() if request.session else waiting.until_running()
    except KeyboardInterrupt:
        if system.is_here:
            output.note(f"ending job {number}; its session can go on in another job: 'dropflow launch ... {job.path}'")
            end_process(int(number))
            return Exit.INTERRUPTED
        stop = " ".join((*system.cancel, number))
        output.note(f"stopped waiting; job {number} continues. It is in {job.path}; '{stop}' cancels it")
        return Exit.INTERRUPTED
    if status.detail is None or not request.session:
        output.answer(msgspec.structs.replace(reply, url=status.url))
        return Exit.FINISHED
    return _answer(output, status, request)


def _submit(job: JobDirectory, order: JobOrder) -> str:
    """Write the files of a job, submit it, and return its number. A new directory is removed if it is refused.

    Raises
    ------
    ConflictError
        The earlier job of the directory has not ended: both would write there.
    """
    from dropflow.submission.manager_records import record_job

    request, name = order.request, order.request.system
    system, before, is_new = SYSTEMS[name], job.status, not job.number.exists()
    if not is_new:
        earlier, former = job.number.read_text(encoding="ascii"), SYSTEMS[job.request.system]
        state = former.states_of_jobs([earlier]).get(earlier)
        if state is not None and not state.is_over:
            hint = f"wait for its end, or end it with '{' '.join((*former.cancel, earlier))}'"
            raise ConflictError(f"job {earlier} is {state.word} in this directory", where=str(job.path), hint=hint)
    try:
        script = job_script(system, job, request, order.site)
        job.write(request)
        if is_new:
            job.write_text(job.output, "")
        job.write_text(job.script, script)
        number = system.submit_job(job.script, order.arguments)
    except DropflowError as error:
        if is_new and not isinstance(error, BatchSystemError):  # without a number, it may be queued all the same
            job.remove()
        raise
    if before is not None:
        job.write(msgspec.structs.replace(before, state="starting", url="", notes=(), code="", text="", time=0.0))
    job.write_text(job.number, number)
    record_job(f"{name}-{number}", job.path)
    return number


def _answer(output: CommandOutput, status: JobStatus, request: JobRequest) -> Exit:
    """Print how the session ended, as ``dropflow submit --wait`` does."""
    from dropflow.cli.sessions.session_replies import SubmitReply, exit_of_session

    detail = status.detail
    assert detail is not None  # the caller has looked
    for note in status.notes:
        output.note(note)
    parts = max(len(detail.nodes), 1)
    output.answer(SubmitReply.of(detail, manager=status.url, parts=parts, waited=True, results=request.results))
    return exit_of_session(detail)


class _JobWait:
    """Waits for a job by the files in its directory; the batch system is asked when these do not tell enough."""

    def __init__(self, output: CommandOutput, system: BatchSystem, job: JobDirectory, number: str) -> None:
        from dropflow.clock import SystemClock

        self._output = output
        self._system = system
        self._job = job
        self._number = number
        self._clock = SystemClock()
        self._pause = threading.Event()
        self._state = ""
        self._asked = 0
        self._changed = self._next = self._clock.monotonic()
        self._last = -1.0

    def until_running(self) -> JobStatus:
        """Return the status of the job once its cluster answers.

        Raises
        ------
        BatchSystemError
            The job has ended.
        """
        while True:
            status = self._look()
            if status is not None and status.state == "over":
                raise BatchSystemError(f"job {self._number} has ended", where=str(self._job.path))
            if status is not None and status.state == "running":
                return status

    def until_over(self) -> JobStatus:
        """Show the progress of the session until it is over or no job goes on with it, and return the last status.

        Raises
        ------
        BatchSystemError
            The job has ended before the session was over.
        """
        from dropflow.submission.progress import session_progress, statistics_of

        with session_progress(quiet=self._output.kind is OutputKind.QUIET) as show:
            shown = -1.0
            while True:
                status = self._look()
                if status is None:
                    continue
                if status.detail is not None and status.time != shown:
                    shown = status.time
                    show(statistics_of(status.detail))
                if status.state == "over" or self._is_last(status):
                    return status

    def _is_last(self, status: JobStatus) -> bool:
        """Return whether the session has stopped and no job goes on with it."""
        from dropflow.cli.sessions.session_replies import exit_of_session

        if status.state != "stopped" or status.detail is None:
            return False
        is_alone = exit_of_session(status.detail) is Exit.PAUSED and not self._job.request.goes_on
        if is_alone or self._state == "over":
            self._output.note(f"the session can go on in another job: 'dropflow launch ... {self._job.path}'")
            return True
        return False

    def _look(self) -> JobStatus | None:
        """Return the status of the job after a short time, and ask the batch system if it is silent.

        Raises
        ------
        BatchSystemError
            The job has ended, and its directory does not say how.
        """
        self._pause.wait(_LOOK_SECONDS)
        status, now = self._job.status, self._clock.monotonic()
        if status is not None and status.time != self._last:
            self._last, self._changed = status.time, now
            if status.state == "stopped":
                self._asked, self._next = 0, now + _ASK_SECONDS[0]
        if status is not None and status.state == "over":
            self._raise_error(status)
            return status
        is_running = status is not None and status.time and status.state in ("starting", "running")
        if now >= self._next and (not is_running or now > self._changed + _SILENT_SECONDS):
            self._next = now + _ASK_SECONDS[min(self._asked, len(_ASK_SECONDS) - 1)]
            self._asked += 1
            self._ask(status)
        return status

    def _raise_error(self, status: JobStatus) -> None:
        if status.code:
            text = f"job {self._number} has ended: {status.text}"
            raise BatchSystemError(text, where=str(self._job.path), hint=f"the error has the code {status.code}")

    def _ask(self, status: JobStatus | None) -> None:
        """Ask the batch system for the state of the job, and note what has changed."""
        try:
            state: JobState | None = self._system.states_of_jobs([self._number]).get(self._number)
        except BatchSystemError as error:
            self._output.note(f"{error.text}; asking again")
            return
        if state is not None and not state.is_over:
            text = f"job {self._number} is {state.word}" + (f": {state.reason}" if state.reason else "")
            if text != self._state:
                self._state = text
                self._output.note(text)
            return
        word = state.word if state is not None else "gone"
        if status is not None and status.state == "stopped" and status.detail is not None:
            self._output.note(f"job {self._number} is {word}")
            self._state = "over"
            return
        self._pause.wait(2 * _LOOK_SECONDS)
        last = self._job.status
        if last is not None and (last.state == "over" or (last.state == "stopped" and last.detail is not None)):
            return
        raise BatchSystemError(
            f"job {self._number} has ended before its session was over: {word}",
            where=str(self._job.path),
            hint=f"see {self._job.output.name} there; 'dropflow launch ... {self._job.path}' goes on with the session",
        )
