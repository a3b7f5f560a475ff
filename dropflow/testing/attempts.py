"""One attempt of one application on the real executor, without a graph: for tests of applications."""

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dropflow.data.read import read
from dropflow.errors import AppError
from dropflow.execution.chains import LONG_SECONDS
from dropflow.execution.content_location import Handle
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.tasks import AttemptResult, Input, Output, StreamOpened, Task
from dropflow.failure import Failure
from dropflow.graph.templates import Argument, Kind, Link, Template
from dropflow.ids import drop_file_name
from dropflow.runners.executor import LocalExecutor
from dropflow.states import DropState
from dropflow.stopping import GRACE_SECONDS

FAILED: Any = object()
"""Content of an input whose producer failed."""

SKIPPED: Any = object()
"""Content of an input that was skipped."""

_WITHOUT = {FAILED: DropState.ERROR, SKIPPED: DropState.SKIPPED}

_MEMORY = "dlg.data.drops.memory.InMemoryDROP"
_FILE = "dlg.data.drops.file.FileDROP"
_ITSELF = 0
"""Row of the application in its graph; its inputs and outputs follow."""
_TRACK_SECONDS = 0.01
"""Seconds of an attempt that records when it runs."""


@dataclass(frozen=True)
class Given:
    """An input: bytes are raw content, str is text, a Path is that file or directory, any other value is pickled."""

    port: str
    content: Any
    name: str = ""
    oid: str = ""


@dataclass(frozen=True)
class Wanted:
    """An output: the port, and the name and class of the data drop behind it, with its fields."""

    port: str
    name: str = ""
    component: str = _MEMORY
    fields: tuple[Argument, ...] = ()


@dataclass(frozen=True)
class Attempted:
    """How an attempt ended.

    Attributes
    ----------
    handles : tuple of Handle or None
        One for each output, None if it was skipped or the attempt failed.
    result : AttemptResult
        As a session receives it.
    log : str
        The log of the drop.
    """

    handles: tuple[Handle | None, ...]
    result: AttemptResult
    log: str

    @property
    def failure(self) -> Failure:
        """Why it failed.

        Raises
        ------
        AssertionError
            The attempt succeeded.
        """
        if self.result.failure is None:
            raise AssertionError("the attempt succeeded")
        return self.result.failure

    @property
    def contents(self) -> list[bytes | None]:
        """Content of each output, None for those that were skipped.

        Raises
        ------
        AssertionError
            The attempt failed.
        """
        if self.result.failure is not None:
            raise AssertionError(f"the attempt failed: {self.result.failure.text}\n{self.result.failure.detail}")
        return [None if handle is None else read(handle) for handle in self.handles]

    @property
    def values(self) -> list[Any]:
        """Unpickled content of each output."""
        return [pickle.loads(content) if content else None for content in self.contents]  # noqa: S301 - our own


def try_app(
    component: str,
    directory: Path,
    *,
    inputs: Sequence[Given] = (),
    outputs: Sequence[Wanted | str] = (),
    fields: Mapping[str, Any] | Iterable[Argument] = (),
    category: str = "",
    index: tuple[int, ...] = (),
    collects: tuple[str, ...] = (),
) -> Attempted:
    """Run one attempt of the application `component` in this thread.

    Parameters
    ----------
    component : str
        Class name as a graph has it.
    directory : Path
        Session directory.
    inputs, outputs : sequence
        What is connected; an output given by its port alone is a memory drop. Ports that `fields` do not have are
        added to them.
    fields : mapping of str to Any, or iterable of Argument
        Fields of the node; a mapping gives application arguments, typed by their values.
    category : str
        Category of the node.
    index : tuple of int
        Its place in a scatter.
    collects : tuple of str
        Ports at which the graph collects.
    """
    wanted = [Wanted(output) if isinstance(output, str) else output for output in outputs]
    drops = [
        Template(
            key=f"in{n}",
            name=given.name or f"in{n}",
            kind=Kind.DATA,
            component=_FILE if isinstance(given.content, Path) else _MEMORY,
        )
        for n, given in enumerate(inputs)
    ]
    drops += [
        Template(
            key=f"out{n}", name=want.name or f"out{n}", kind=Kind.DATA, component=want.component, arguments=want.fields
        )
        for n, want in enumerate(wanted)
    ]
    arguments = _with_ports(_arguments(fields), [given.port for given in inputs], [want.port for want in wanted])
    node = Template(
        key="app",
        name="the app",
        kind=Kind.APP,
        component=component,
        category=category,
        arguments=arguments,
        collects=collects,
    )
    links = [Link(source=1 + n, target=_ITSELF, target_port=given.port) for n, given in enumerate(inputs)]
    links += [Link(source=_ITSELF, target=1 + len(inputs) + n, source_port=want.port) for n, want in enumerate(wanted)]
    spec = ExecutorSpec(
        session="trial", directory=os.fspath(directory), templates=(node, *drops), links=tuple(links), prefix="t"
    )
    task = Task(
        0,
        1,
        _ITSELF,
        "t_app_0",
        index,
        tuple(_input(n, given) for n, given in enumerate(inputs)),
        tuple(
            Output(1 + len(inputs) + n, f"t_out{n}_0", 1 + len(inputs) + n, len(inputs) + n) for n in range(len(wanted))
        ),
    )
    executor = LocalExecutor(spec)
    try:
        result = executor.execute(task)
    finally:
        executor.close()
    log = directory / "logs" / f"{drop_file_name(task.oid)}.log"
    handles = tuple(result.handles.get(output.drop) for output in task.outputs)
    return Attempted(handles, result, log.read_text() if log.exists() else "")


def _arguments(fields: Mapping[str, Any] | Iterable[Argument]) -> list[Argument]:
    if not isinstance(fields, Mapping):
        return list(fields)
    kinds = {bool: "Boolean", int: "Integer", float: "Float", str: "String"}
    return [
        Argument(name=name, value=value, type=kinds.get(type(value), "Json"), parameter_type="ApplicationArgument")
        for name, value in fields.items()
    ]


def _with_ports(arguments: list[Argument], inputs: list[str], outputs: list[str]) -> tuple[Argument, ...]:
    known = {argument.name for argument in arguments} | {""}
    for port in dict.fromkeys((*inputs, *outputs)):
        if port not in known:
            usage = {(True, True): "InputOutput", (True, False): "InputPort"}.get(
                (port in inputs, port in outputs), "OutputPort"
            )
            arguments.append(Argument(name=port, type="Object", usage=usage, parameter_type="ApplicationArgument"))
    return tuple(arguments)


def _input(number: int, given: Given) -> Input:
    oid = given.oid or f"t_in{number}_0"
    if given.content is FAILED or given.content is SKIPPED:
        return Input(1 + number, oid, 1 + number, number, _WITHOUT[given.content])
    return Input(1 + number, oid, 1 + number, number, DropState.COMPLETED, _handle(given.content))


def _handle(content: Any) -> Handle:
    if isinstance(content, Path):
        return Handle(
            kind="directory" if content.is_dir() else "file", location=str(content), size=content.stat().st_size
        )
    text = isinstance(content, str)
    body = content.encode() if text else content if isinstance(content, bytes) else pickle.dumps(content, protocol=5)
    return Handle(body=body, size=len(body), text=text)


# An executor whose components are scripts, for tests of runners: see `build`.


class ScriptedExecutor:
    """Components: ``fail`` fails, ``kill`` sends its process SIGKILL, ``exit`` ends it, ``hang`` waits for an abort.

    ``die-once`` sends its process SIGKILL in its first attempt. ``deaf`` waits forever and ignores aborts. ``mumble``
    writes to a path that no message can encode, and ``garble`` a content of half a byte. ``pid`` writes the id of its
    process. ``track`` works for a moment, and appends a line to ``files/track`` before and after that: ``begin`` or
    ``end``, and its row; ``track_long`` does the same, and reports a long time. Every other component copies its inputs
    to its outputs.
    """

    def __init__(self, spec: ExecutorSpec) -> None:
        self._spec = spec
        self.worker = 0
        self._aborts: dict[tuple[int, int], threading.Event] = {}
        self.on_stream_opened: Callable[[StreamOpened], None] = lambda _: None
        self.on_overdue: Callable[[AttemptResult], None] = lambda _: None

    def execute(self, task: Task) -> AttemptResult:
        """Run the script that the component names."""
        script = self._spec.templates[task.template].component
        if script == "fail":
            failure = Failure(
                code=AppError.code, kind="Scripted", text=f"{task.oid} is scripted to fail", retryable=True
            )
            return AttemptResult(task.drop, task.attempt, failure=failure)
        if script == "mumble":
            return AttemptResult(task.drop, task.attempt, {task.outputs[0].drop: Handle(location="\udcff")})
        if script == "garble":
            return AttemptResult(task.drop, task.attempt, {task.outputs[0].drop: Handle(size=0.5)})  # type: ignore[arg-type]
        if script == "kill" or (script == "die-once" and self._is_first(task)):
            os.kill(os.getpid(), signal.SIGKILL)
        if script == "exit":
            os._exit(7)
        if script in ("track", "track_long"):
            self._track(task, _TRACK_SECONDS if script == "track" else LONG_SECONDS)
        if script in ("hang", "deaf"):
            aborted = self._aborts.setdefault((task.drop, task.attempt), threading.Event())
            (aborted if script == "hang" else threading.Event()).wait()
            failure = Failure(code=AppError.code, kind="Aborted", text="aborted")
            return AttemptResult(task.drop, task.attempt, failure=failure)
        body = str(os.getpid()).encode() if script == "pid" else b"".join(_bodies(task))
        part = Handle(body=body, size=len(body))
        handles = {output.drop: part for output in task.outputs}
        return AttemptResult(task.drop, task.attempt, handles, seconds=LONG_SECONDS if script == "track_long" else 0.0)

    def _is_first(self, task: Task) -> bool:
        try:
            Path(self._spec.directory, "files", f"began-{task.drop}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _track(self, task: Task, seconds: float) -> None:
        # Lines that are appended to a file by single writes do not mix.
        with Path(self._spec.directory, "files", "track").open("a", buffering=1, encoding="ascii") as track:
            track.write(f"begin {task.drop}\n")
            threading.Event().wait(seconds)
            track.write(f"end {task.drop}\n")

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """End an attempt that hangs."""
        self._aborts.setdefault((drop, attempt), threading.Event()).set()

    def close(self) -> None:
        """Do nothing."""


def _bodies(task: Task) -> list[bytes]:
    return [each.handle.body for each in task.inputs if each.handle is not None]


def build(spec: ExecutorSpec) -> ScriptedExecutor:
    """Return an executor; ``dropflow.testing.attempts:build`` for worker processes."""
    return ScriptedExecutor(spec)


def refuse(spec: ExecutorSpec) -> ScriptedExecutor:
    """Raise, as an executor with a missing package would."""
    raise RuntimeError(f"no executor for {spec.session}")
