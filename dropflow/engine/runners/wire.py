"""What a pool and its worker processes say to each other: MessagePack in length-prefixed frames."""

import struct
from collections.abc import Iterator

import msgspec

from dropflow.engine.api import AttemptResult, ExecutorSpec, StreamOpened, Task

__all__ = [
    "AbortTask",
    "Buffer",
    "CloseExecutor",
    "ExecutorFailed",
    "ExecutorReady",
    "FromWorker",
    "OpenExecutor",
    "OutputOpened",
    "Recall",
    "Returned",
    "TaskResults",
    "Tasks",
    "ToWorker",
    "WorkerReady",
    "frame",
]

_LENGTH = struct.Struct("<Q")


class OpenExecutor(msgspec.Struct, frozen=True, tag="open-executor"):
    """Before the first attempt of a runner: how to build its executor (``package.module:function``), and from what."""

    runner: int
    factory: str
    spec: ExecutorSpec


class Tasks(msgspec.Struct, frozen=True, tag="tasks"):
    """Attempts of a runner, to be run in this order, numbered from `first`."""

    runner: int
    first: int
    tasks: tuple[Task, ...]


class AbortTask(msgspec.Struct, frozen=True, tag="abort"):
    """Stop this attempt of a runner if it waits or runs."""

    runner: int
    drop: int
    attempt: int


class Recall(msgspec.Struct, frozen=True, tag="recall"):
    """Give back up to so many attempts that have not begun, from the end of the queue."""

    most: int


class CloseExecutor(msgspec.Struct, frozen=True, tag="close-executor"):
    """Nothing of this runner follows: give back its executor."""

    runner: int


class WorkerReady(msgspec.Struct, frozen=True, tag="worker-ready"):
    """First message of a worker: it takes attempts."""


class ExecutorReady(msgspec.Struct, frozen=True, tag="executor-ready"):
    """The executor of a runner is built."""

    runner: int


class ExecutorFailed(msgspec.Struct, frozen=True, tag="executor-failed"):
    """Instead of `ExecutorReady`: why the executor of a runner cannot be built."""

    runner: int
    text: str


class TaskResults(msgspec.Struct, frozen=True, tag="results"):
    """TaskResults, in the order of the tasks."""

    results: tuple[AttemptResult, ...]


class Returned(msgspec.Struct, frozen=True, tag="returned"):
    """Answer to `Recall`: the numbers of the attempts that this process will not run, the last one first."""

    numbers: tuple[int, ...]


class OutputOpened(msgspec.Struct, frozen=True, tag="opened"):
    """What the attempt that runs has opened."""

    runner: int
    opened: StreamOpened


ToWorker = OpenExecutor | Tasks | AbortTask | Recall | CloseExecutor
FromWorker = WorkerReady | ExecutorReady | ExecutorFailed | OutputOpened | Returned | TaskResults

_encode = msgspec.msgpack.Encoder().encode


def frame(message: ToWorker | FromWorker) -> bytes:
    """A message as it goes over the socket."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


class Buffer:
    """Collects received bytes and gives back whole frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Append received bytes."""
        self._data += data

    def frames(self) -> Iterator[bytes]:
        """Every whole frame; what is left stays for the next call."""
        offset = 0
        while len(self._data) - offset >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data, offset)
            end = offset + _LENGTH.size + length
            if len(self._data) < end:
                break
            yield bytes(memoryview(self._data)[offset + _LENGTH.size : end])
            offset = end
        del self._data[:offset]
