"""Messages between a pool and its worker processes: MessagePack in length-prefixed frames."""

import struct
from collections.abc import Iterator

import msgspec

from dropflow.engine.api import AttemptResult, ExecutorSpec, StreamOpened, Task

__all__ = [
    "AbortTask",
    "Buffer",
    "CloseExecutor",
    "EndChain",
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
    """Build the executor of a runner from `spec`, by `factory` (``package.module:function``). Sent before its tasks."""

    runner: int
    factory: str
    spec: ExecutorSpec


class Tasks(msgspec.Struct, frozen=True, tag="tasks"):
    """Run these attempts of a runner in this order, each with those that follow it; they are numbered from `first`.

    Contents that the worker has are sent without their bytes (`dropflow.runners.reread_contents`).
    """

    runner: int
    first: int
    tasks: tuple[Task, ...]


class AbortTask(msgspec.Struct, frozen=True, tag="abort"):
    """Stop this attempt of a runner if it waits or runs; it has `grace` seconds to clean up."""

    runner: int
    drop: int
    attempt: int
    grace: float


class Recall(msgspec.Struct, frozen=True, tag="recall"):
    """Return up to `most` attempts that have not begun, from the end of the queue."""

    most: int


class EndChain(msgspec.Struct, frozen=True, tag="end-chain"):
    """Begin no further attempt of the chain that runs; they are answered."""


class CloseExecutor(msgspec.Struct, frozen=True, tag="close-executor"):
    """Close the executor of a runner: no tasks of it follow."""

    runner: int


class WorkerReady(msgspec.Struct, frozen=True, tag="worker-ready"):
    """The worker takes attempts. Its first message."""


class ExecutorReady(msgspec.Struct, frozen=True, tag="executor-ready"):
    """The executor of a runner is built."""

    runner: int


class ExecutorFailed(msgspec.Struct, frozen=True, tag="executor-failed"):
    """The executor of a runner cannot be built, and why."""

    runner: int
    text: str


class TaskResults(msgspec.Struct, frozen=True, tag="results"):
    """Results of attempts, in the order of the tasks."""

    results: tuple[AttemptResult, ...]


class Returned(msgspec.Struct, frozen=True, tag="returned"):
    """Answer to `Recall`: the numbers of the attempts that this worker will not run, the last one first."""

    numbers: tuple[int, ...]


class OutputOpened(msgspec.Struct, frozen=True, tag="opened"):
    """The attempt that runs has opened an output."""

    runner: int
    opened: StreamOpened


ToWorker = OpenExecutor | Tasks | AbortTask | Recall | EndChain | CloseExecutor
FromWorker = WorkerReady | ExecutorReady | ExecutorFailed | OutputOpened | Returned | TaskResults

_encode = msgspec.msgpack.Encoder().encode


def frame(message: ToWorker | FromWorker) -> bytes:
    """Return a message as bytes for the socket."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


class Buffer:
    """Collects received bytes, and returns whole frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Append received bytes."""
        self._data += data

    def frames(self) -> Iterator[bytes]:
        """Yield the body of every whole frame; the rest stays for the next call."""
        offset = 0
        while len(self._data) - offset >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data, offset)
            end = offset + _LENGTH.size + length
            if len(self._data) < end:
                break
            yield bytes(memoryview(self._data)[offset + _LENGTH.size : end])
            offset = end
        del self._data[:offset]
