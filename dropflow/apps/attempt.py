"""The context of one attempt: its inputs, outputs and services while it runs, and its contents afterwards."""

import io
import json
import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from dropflow.apps.app_interface import InputData
from dropflow.apps.attempt_input import AttemptInput, StreamedInput
from dropflow.apps.command import Command, program_path
from dropflow.apps.encodings import cannot_hold, canonical, encode, is_text, separator
from dropflow.apps.formats import FORMATS, copy_content, write_format
from dropflow.apps.missing_data import VARIABLE
from dropflow.apps.runtime_environment import hidden_in
from dropflow.apps.template_cache import AppNode, TemplateCache, effective, text_or_none
from dropflow.clock import Clock
from dropflow.data.store import ContentWriter, Slot
from dropflow.data.streams import StreamedWriter
from dropflow.data.workspace import Workspace
from dropflow.errors import AppError, Interrupted
from dropflow.execution.content_location import Handle
from dropflow.execution.drop_log import DropLog
from dropflow.execution.tasks import Output, StreamOpened, Task
from dropflow.graph.completeness import GONE, missing_by_port
from dropflow.graph.templates import ORDER_PORT, Argument, needs_of
from dropflow.host.processors import thread_variables
from dropflow.states import DropState
from dropflow.stopping import GRACE_SECONDS, is_importing, raise_in

_WRITE_BUFFER_BYTES = 1 << 16
"""Bytes that the stream of an output collects before it writes them."""
_NO_CALL: tuple[Sequence[str], Sequence[Any], Mapping[str, Any]] = ((), (), {})

# One output of an attempt.


class AttemptOutput:
    """`dropflow.apps.app_interface.OutputData` of one attempt."""

    __slots__ = (
        "_abandoned",
        "_attempt",
        "_edge",
        "_number",
        "_part",
        "_path",
        "_store",
        "_streams",
        "name",
        "oid",
        "port",
    )

    def __init__(self, attempt: "AttemptContext", edge: Output, number: int) -> None:
        plans = attempt.plans
        self._attempt = attempt
        self._edge = edge
        self._number = number
        self._store = plans.store(edge.template)
        self._part: ContentWriter | None = None
        self._path: Path | None = None
        self._streams: list[BinaryIO] = []
        self._abandoned = False
        self.port = plans.links[edge.link].source_port
        self.oid = edge.oid
        self.name = plans.templates[edge.template].name

    @property
    def drop(self) -> int:
        """Row of the data drop."""
        return self._edge.drop

    @property
    def streams(self) -> bool:
        """Whether consumers may read appended data before the attempt is over."""
        return self._edge.streams and not self._edge.shared and self._store.growing is not None

    @property
    def is_shared(self) -> bool:
        """Whether other applications write to the drop, too."""
        return self._edge.shared or self._attempt.plans.may_be_shared(self._edge.template)

    @property
    def is_directory(self) -> bool:
        """Whether the drop holds a directory, to be made at `path`."""
        return self._store.is_directory

    def write(self, data: bytes | bytearray | memoryview | str) -> int:
        """Append to the content, text as UTF-8. Returns the number of bytes."""
        self._attempt.check()
        part = self._part or (self._begin_stream() if self.streams else self._begin())
        return part.write(data.encode(), text=True) if isinstance(data, str) else part.write(data)

    def append(self, block: memoryview) -> int:
        """As `write`, for the streams of `open`; ignores data that they flush after the output was abandoned."""
        return len(block) if self._abandoned else self.write(block)

    def open(self) -> BinaryIO:
        """Return a writable stream that appends to the content. It is closed at the latest when the attempt ends."""
        stream = cast(BinaryIO, io.BufferedWriter(_Appender(self), _WRITE_BUFFER_BYTES))
        self._streams.append(stream)
        return stream

    def put(self, value: Any, encoding: str | None = None) -> None:
        """Write `value` encoded with `encoding`, by default the encoding of the port.

        With the encoding ``path``, a file drop gets a copy of the file that `value` names; with that of a format, the
        library of the format writes the file or directory.
        """
        self._attempt.check()
        name = canonical(encoding) if encoding else self._attempt.plan.encoding(self.port)
        name = effective(name, self._store)
        if name == "path" and self._store.unwritten is None:
            self._take(value)
            return
        try:
            if name in FORMATS:
                self._write_format(name, value)
                return
            body = encode(name, value)
        except AppError as error:
            error.where = error.where or f"output '{self.port or self.name}'"
            raise
        # Producers on other nodes are not among the edges here.
        if self._attempt.plans.may_be_shared(self._edge.template):
            body += separator(name)
        (self._part or self._begin()).write(body, text=is_text(name) or (name == "raw" and isinstance(value, str)))

    @property
    def path(self) -> Path:
        """Temporary path for a program that writes the content itself (parent exists, the path does not)."""
        if self._path is None:
            self._flush()
            self._path = Path((self._part or self._begin()).path())
        return self._path

    def skip(self) -> None:
        """Skip this output, and with it its consumers."""
        self._attempt.skip(self.drop)

    def finish(self) -> Handle:
        """End writing and return the content."""
        for stream in self._streams:
            stream.close()
        if self._part is None:
            unwritten = self._store.unwritten
            if unwritten is not None:
                return unwritten
        part = self._part or self._begin()
        if self._path is not None and not os.path.lexists(part.path()):
            port = self.port or self.name
            self._attempt.log(f"nothing was written to the output '{port}', which is empty: {self._path}", "WARNING")
        return part.finish()

    def abandon(self) -> None:
        """Discard the written data, and the data in the buffers of streams."""
        self._abandoned = True
        for stream in self._streams:
            stream.close()
        if self._part is not None:
            self._part.abandon()
            self._part = None

    def _begin(self) -> ContentWriter:
        self._part = self._store.part(self._slot())
        return self._part

    def _begin_stream(self) -> ContentWriter:
        """Begin a content that consumers read while it grows, except for data from `put` or a program."""
        attempt, grow = self._attempt, self._store.growing
        assert grow is not None  # see streams
        task = attempt.task
        folder = attempt.workspace.part_name(task.drop, task.attempt, f"{self._number}.stream")
        slot = self._slot()
        part = StreamedWriter(grow(slot), folder, self._opened, attempt.check, attempt.clock, shielded=slot.shielded)
        attempt.on_stop(part.wake)
        self._part = part
        return part

    def _opened(self, stream: Handle) -> None:
        task = self._attempt.task
        self._attempt.on_stream_opened(StreamOpened(task.drop, task.attempt, self.drop, stream))

    def _slot(self) -> Slot:
        attempt = self._attempt
        task = attempt.task
        return Slot(
            attempt.workspace,
            self.oid,
            task.drop,
            task.attempt,
            self._number,
            attempt.clock.now(),
            attempt.given_name(self._edge.link),
            self._edge.kept,
            attempt.interruption.shielded,
        )

    def _flush(self) -> None:
        for stream in self._streams:
            if not stream.closed:
                stream.flush()

    def _write_format(self, name: str, value: Any) -> None:
        if self._attempt.plans.may_be_shared(self._edge.template):
            raise AppError(
                f"'{self.name}' has several producers, and a content in the format '{name}' has one value",
                hint="give each producer data of its own",
            )
        with cannot_hold(name, value):
            write_format(name, value, self.path)

    def _take(self, value: Any) -> None:
        """Copy the file or directory that `value` names, unless it is already at the path of the output."""
        if not isinstance(value, str | os.PathLike) or not os.path.exists(value):  # noqa: PTH110 - any path-like
            raise AppError(
                f"the value {value!r:.60} is not the path of an existing file, which '{self.name}' should get",
                where=f"output '{self.port or self.name}'",
                hint="write to the path that is given for this port, or return the path of an existing file",
            )
        copy_content(Path(os.fspath(value)), self.path)


class _Appender(io.RawIOBase):
    """The raw stream below `AttemptOutput.open`."""

    def __init__(self, output: AttemptOutput) -> None:
        self._output = output

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._output.append(memoryview(data).cast("B"))


# Interrupts the code of an application in the thread that runs it, and no other code in that thread.


class Interruption:
    """Whether one attempt is to stop, and the thread in which `Interrupted` is then raised once.

    The application runs between `enter` and `leave`.

    Parameters
    ----------
    lock : context manager
        Makes `request` and `leave` exclude each other. Reentrant: a signal handler may request in the same thread.
    """

    __slots__ = ("_is_raised", "_lock", "_thread", "is_requested")

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self.is_requested = False
        """Whether the attempt is to stop."""
        self._lock = lock
        self._thread = 0
        self._is_raised = False

    def enter(self) -> None:
        """Begin to run code of the application in this thread.

        Raises
        ------
        Interrupted
            The attempt is to stop.
        """
        # `request` sets `is_requested` and then reads `_thread`, so one of the two sees the other.
        self._thread = threading.get_ident()
        if self.is_requested:
            raise Interrupted

    def leave(self) -> None:
        """End running code of the application: nothing is raised in this thread after this call.

        Raises
        ------
        Interrupted
            It was interrupted just now.
        """
        self._thread = 0
        if self._is_raised:
            with self._lock:  # `request` may be about to raise; a pending exception is raised at the next call
                threading.get_ident()

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Run code that must not be interrupted at any point, such as the start of a process. From any thread.

        Raises
        ------
        Interrupted
            Afterwards, if the attempt was interrupted meanwhile.
        """
        thread = threading.get_ident()
        if self._thread != thread:  # only the thread of the application is interrupted
            yield
            return
        self.leave()
        was_raised = self._is_raised
        try:
            yield
        finally:
            with self._lock:
                self._thread = thread
                is_raised = self._is_raised
        if is_raised and not was_raised:
            raise Interrupted

    def request(self) -> int | None:
        """Interrupt the application. May be called from any thread.

        Returns
        -------
        int or None
            Thread in which an exception is pending now, 0 if there is none. None if the application cannot be
            interrupted now, because it imports a module.
        """
        self.is_requested = True
        with self._lock:
            if self._is_raised:
                return 0
            if self._thread and is_importing(self._thread):
                return None
            self._is_raised = True  # before `_thread` is read: `leave` sets `_thread` and then reads this
            thread = self._thread
            if thread:
                raise_in(thread, Interrupted)
            return thread


class AttemptContext:
    """`dropflow.apps.app_interface.Context` of one task.

    Cheap to make: inputs, outputs, files and events are made when the application uses them.

    `lock` is the lock of `Interruption`.
    """

    __slots__ = (
        "_call",
        "_command",
        "_event",
        "_given_up",
        "_grace",
        "_inputs",
        "_log",
        "_outputs",
        "_scratch",
        "_skipped",
        "_wakers",
        "clock",
        "interruption",
        "memory",
        "on_stream_opened",
        "plan",
        "plans",
        "task",
        "workspace",
    )

    def __init__(  # noqa: PLR0917 - built once a task, by the executor only: keywords cost a microsecond
        self,
        task: Task,
        plan: AppNode,
        plans: TemplateCache,
        workspace: Workspace,
        clock: Clock,
        log: DropLog,
        on_stream_opened: Callable[[StreamOpened], None],
        lock: AbstractContextManager[object],
    ) -> None:
        self.task = task
        self.plan = plan
        self.plans = plans
        self.workspace = workspace
        self.clock = clock
        self.on_stream_opened = on_stream_opened
        self._log = log
        self._inputs: list[AttemptInput] | None = None
        self._outputs: list[AttemptOutput] | None = None
        self._skipped: set[int] | None = None
        self._scratch = ""
        self._grace = GRACE_SECONDS
        self.interruption = Interruption(lock)
        self._given_up = False
        self._event: threading.Event | None = None
        self._command: Command | None = None
        self._wakers: tuple[Callable[[], None], ...] = ()
        self._call: tuple[Sequence[str], Sequence[Any], Mapping[str, Any]] = _NO_CALL
        self.memory = 0
        """Peak memory in bytes outside of this process and its children; 0 if it is not known."""

    @property
    def oid(self) -> str:
        """Text id of the application drop."""
        return self.task.oid

    @property
    def name(self) -> str:
        """Name of its node."""
        return self.plan.name

    @property
    def index(self) -> tuple[int, ...]:
        """Position of the drop on each axis of its template."""
        return self.task.index

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1."""
        return self.task.attempt

    @property
    def session(self) -> str:
        """Session id."""
        return self.workspace.session

    @property
    def arguments(self) -> Mapping[str, Argument]:
        """Every field of the node by name."""
        return self.plan.arguments

    @property
    def directory(self) -> Path:
        """The session's ``files`` directory."""
        return self.workspace.files

    @property
    def inputs(self) -> Sequence[AttemptInput]:
        """The inputs, in the order of the graph, without inputs that only order drops."""
        if self._inputs is None:
            self._inputs = [
                StreamedInput(self, edge)
                if edge.state is DropState.WRITING and edge.handle
                else AttemptInput(self, edge)
                for edge in self.task.inputs
                if self.plans.links[edge.link].target_port != ORDER_PORT
            ]
        return self._inputs

    @property
    def outputs(self) -> Sequence[AttemptOutput]:
        """The outputs, in the order of the graph; one for each data drop and port."""
        if self._outputs is None:
            self._outputs = [
                AttemptOutput(self, edge, number)
                for number, edge in enumerate(self.task.outputs)
                if self.plans.links[edge.link].source_port != ORDER_PORT
            ]
        return self._outputs

    def input(self, port: str) -> AttemptInput | None:
        """Return the first input at `port`."""
        return next((entry for entry in self.inputs if entry.port == port), None)

    def log(self, text: str, level: str = "INFO") -> None:
        """Add a line to the log of the drop."""
        # Without this, a file that was just opened would stay open until the garbage collector runs.
        with self.interruption.shielded():
            self._log.line(level, text, self.clock.now())

    def wait(self, seconds: float) -> None:
        """Sleep, but wake and raise `Interrupted` when the attempt is stopped."""
        if seconds > 0 and not self.interruption.is_requested:
            # `stop` sets the flag and then the event; here the event is made before the flag is read. So either this
            # thread sees the flag, or `stop` sees the event.
            self._event = self._event or threading.Event()
            if not self.interruption.is_requested:
                self._event.wait(seconds)
        self.check()

    @property
    def memory_limit(self) -> int:
        """Bytes of memory that the attempt has; 0 if its node declares none."""
        return int(self.task.memory or needs_of(self.plan.template).memory)

    @property
    def missing(self) -> Mapping[str, float]:
        """Share of the data at each port that is missing, from 0 to 1; see `dropflow.graph.completeness`."""
        ports = ((self.plans.links[edge.link].target_port, edge) for edge in self.task.inputs)
        return missing_by_port(
            (port, edge.state, edge.handle.missing if edge.handle else 0.0)
            for port, edge in ports
            if port != ORDER_PORT
        )

    def note_call(self, names: Sequence[str], args: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Note the arguments of the present call, for the report of a failure."""
        self._call = names, args, named

    def values(self) -> dict[str, Any]:
        """Return the arguments of the last call, by name."""
        names, args, named = self._call
        return {**dict(zip(names, args, strict=False)), **named}

    def used_memory(self, size: int) -> None:
        """Note how many bytes of memory were used outside of this process and its children."""
        self.memory = max(self.memory, size)

    def command(
        self,
        command: str,
        environment: Mapping[str, str],
        *,
        source: InputData | None = None,
        sink: Callable[[bytes], object] | None = None,
        hidden: Collection[str] = (),
    ) -> int:
        """Run a shell command in `directory` and return its exit status; see `app_interface.Context.command`.

        Its environment is that of this process with limits of threads, ``DLG_UID``, ``DLG_SESSION_ID`` and
        ``DLG_ROOT``, and `environment` on top.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        write = hidden_in(self._log.write_bytes, hidden)
        running = Command(
            command,
            self.directory,
            {
                **_environment(self.oid, self.session, self.plan.template.cpus),
                VARIABLE: json.dumps(self.missing),
                **environment,
            },
            write,
            source=None if source is None else source.open(),
            output=sink,
            clock=self.clock,
        )
        with self.interruption.shielded():
            self._command = running
            if self.interruption.is_requested:
                running.stop(self._grace)
            try:
                return running.run()
            finally:
                self._command = None
                if hidden:
                    write(b"")

    def check(self) -> None:
        """Raise `Interrupted` if the attempt is to stop."""
        if self.interruption.is_requested:
            raise Interrupted

    def stop(self, grace: float = GRACE_SECONDS) -> int | None:
        """Stop waits and commands, or interrupt the application. May be called from any thread.

        Returns
        -------
        int or None
            Thread in which an exception is pending now, 0 if there is none. None if the application cannot be
            interrupted now, because it imports a module.
        """
        self._grace = grace
        self.interruption.is_requested = True
        event, command = self._event, self._command
        if event is not None:
            event.set()
        if command is not None:
            command.stop(grace)
        for wake in self._wakers:
            wake()
        return self.interruption.request()

    def give_up(self) -> None:
        """Discard the outputs of the attempt: it was given up, and its failure is reported already."""
        self._given_up = True

    def on_stop(self, wake: Callable[[], None]) -> None:
        """Call `wake` when the attempt is stopped (now if it is), so that a waiting thread wakes and calls `check`."""
        self._wakers = (*self._wakers, wake)
        if self.interruption.is_requested:
            wake()

    def skip(self, drop: int) -> None:
        """Skip an output."""
        self._skipped = self._skipped or set()
        self._skipped.add(drop)

    def scratch(self) -> str:
        """Return a temporary directory of this attempt, which is removed at its end."""
        if not self._scratch:
            name = self.workspace.part_name(self.task.drop, self.task.attempt, "in")
            self._scratch = self.workspace.part_directory(name)
        return self._scratch

    def given_name(self, link: int) -> str:
        """Return the file name that the application chose for an output; empty if it chose none.

        It is the value of the output port if that names a path. A connected input of that name has priority over the
        field.
        """
        argument = self.plan.naming(self.plans.links[link])
        if argument is None:
            return ""
        data = self.input(argument.name)
        if data is not None and data.ok and data.in_memory and not data.is_private:
            return text_or_none(data.value("utf-8")) or ""
        return text_or_none(argument.value) or ""

    def finish(self) -> tuple[dict[int, Handle], tuple[int, ...]]:
        """Finish all outputs. Returns their contents by data drop, and the skipped drops."""
        if self._given_up:
            raise Interrupted
        handles, skipped = self._finished()
        for source in self.task.inputs:
            if source.state in GONE or (source.handle is not None and source.handle.missing):
                lost = max(self.missing.values(), default=0.0)
                if lost:
                    handles = {drop: msgspec.structs.replace(handle, missing=lost) for drop, handle in handles.items()}
                break
        return handles, skipped

    def _finished(self) -> tuple[dict[int, Handle], tuple[int, ...]]:
        skipped = self._skipped or ()
        handles: dict[int, Handle] = {}
        if self._outputs is None:
            store = self.plans.store
            for edge in self.task.outputs:
                unwritten = store(edge.template).unwritten
                if unwritten is None:
                    return _finish_outputs(self.outputs, skipped), tuple(skipped)
                handles[edge.drop] = unwritten
            return handles, ()
        return _finish_outputs(self.outputs, skipped), tuple(skipped)

    def refuse_changed_inputs(self) -> None:
        """Raise if the application has changed one of its inputs; see `dropflow.apps.attempt_input`."""
        for data in self._inputs or ():
            data.refuse_changed()

    def abandon(self) -> None:
        """Discard the written data; never raises."""
        for output in self._outputs or ():
            output.abandon()

    def start_over(self) -> None:
        """Discard the written data of all outputs, so that they are written anew."""
        self.abandon()
        self._outputs = self._skipped = None

    def close(self) -> None:
        """Close inputs and remove the temporary directory."""
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)
        for data in self._inputs or ():
            data.close()
        # Breaks the reference cycle: with it, mapped contents would stay until the garbage collector runs.
        self._inputs = self._outputs = None
        self._call = _NO_CALL


def _finish_outputs(outputs: Sequence[AttemptOutput], skipped: Collection[int]) -> dict[int, Handle]:
    """Finish all outputs but the skipped ones. Returns their contents by data drop."""
    handles: dict[int, Handle] = {}
    for output in outputs:
        if output.drop in skipped:
            output.abandon()
        else:
            handles[output.drop] = output.finish()
    return handles


def _environment(oid: str, session: str, cpus: int) -> dict[str, str]:
    """Return the environment of commands: that of this process, limits of threads, and the variables of DALiuGE."""
    threads = thread_variables(cpus, os.environ)
    own = {"PATH": program_path(), "DLG_UID": oid, "DLG_SESSION_ID": session}
    return {"DLG_ROOT": str(Path.home() / "dlg"), **threads, **os.environ, **own}
