"""Messages between a pool and its worker processes, and a page of memory that they share.

Messages are MessagePack in length-prefixed frames, with contents sent once.
"""

import mmap
import socket
import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import msgspec

from dropflow.execution.content_location import Handle
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.tasks import AttemptResult, Input, StreamOpened, Task
from dropflow.graph.codec import pack

BUILD_EXECUTOR = "dropflow.runners.executor:build_executor"
"""The function that makes the executors of applications: the `factory` where none is given, as in tests."""

_LENGTH = struct.Struct("<Q")
_BLOCK = 1 << 18
"""Bytes that are received at a time: a Unix socket holds 208 KiB by default."""
_encode = msgspec.msgpack.Encoder().encode
_MOST = 8 << 20
"""Bytes that are kept for a worker."""
_Key = tuple[int, int]
"""Number of the runner, and drop."""
IDLE = -1
"""Stands for the number of an attempt if the worker has none."""
# Native alignment: each field is written and read by one instruction, so a reader never sees half of a write.
_NUMBER = struct.Struct("@q")
_BEAT = struct.Struct("@Q")
_BEAT_OFFSET = 8
"""Bytes before the number of heartbeats in the shared page."""
_LAST_OFFSET = 16
"""Bytes before the number of the last attempt in the shared page."""


class OpenExecutor(msgspec.Struct, frozen=True, tag="open-executor"):
    """Build the executor of a runner from `spec`, by `factory` (``package.module:function``). Sent before its tasks."""

    runner: int
    factory: str
    spec: ExecutorSpec


class Tasks(msgspec.Struct, frozen=True, tag="tasks"):
    """Run these attempts of a runner in this order, each with its followers; they are numbered from `first`.

    Contents that the worker has are sent without their bytes, see `SentContents`.
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
    """Begin no further attempt of the running chain; its remaining attempts are answered."""


class CloseExecutor(msgspec.Struct, frozen=True, tag="close-executor"):
    """Close the executor of a runner: no more tasks of this runner will come."""

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


class Outdated(msgspec.Struct, frozen=True, tag="outdated"):
    """The worker has loaded modules that were edited since: it returns the attempts of new runners.

    It is replaced when it has no other attempts.
    """


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
FromWorker = WorkerReady | ExecutorReady | ExecutorFailed | Outdated | OutputOpened | Returned | TaskResults


def frame(message: ToWorker | FromWorker) -> bytes:
    """Return a message as bytes for the socket."""
    try:
        body = _encode(message)
    except OverflowError:  # the spec of a runner has a parameter beyond 64 bits
        body = pack(message)
    return _LENGTH.pack(len(body)) + body


class Buffer:
    """Collects received bytes, and returns whole frames."""

    def __init__(self) -> None:
        self._data = bytearray()
        # A new object of this size for each message, as `recv` makes, costs 20 us.
        self._block = bytearray(_BLOCK)

    def receive(self, link: socket.socket) -> bool:
        """Append what a socket has; return False at its end.

        Raises
        ------
        OSError
            The socket cannot be read, or does not block and has nothing now (`BlockingIOError`).
        """
        count = link.recv_into(self._block)
        self._data += memoryview(self._block)[:count]
        return count > 0

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


# Contents that many attempts read, sent to a worker process once and not with each attempt.
#
# The pool and the worker both keep the contents that were sent last, by the same rule and in the same order. So the
# pool can tell which contents the worker has, without an answer. A content that the worker has is sent without its
# bytes.


class _LatestContents:
    """The contents that were used last, up to a number of bytes.

    Parameters
    ----------
    most : int
        Number of bytes.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._size = 0
        self._found: OrderedDict[_Key, Handle] = OrderedDict()

    def get(self, key: _Key) -> Handle | None:
        """Return a content, and mark it as the last one that was used; None if it is not kept."""
        handle = self._found.get(key)
        if handle is not None:
            self._found.move_to_end(key)
        return handle

    def add(self, key: _Key, content: Handle) -> None:
        """Keep a content instead of an earlier content of the drop; remove contents that were not used for longest."""
        self._remove(key)
        self._found[key] = content
        self._size += content.size
        while self._size > self._most:
            self._remove(next(iter(self._found)))

    def forget(self, runner: int) -> None:
        """Remove the contents of a runner."""
        for key in [key for key in self._found if key[0] == runner]:
            self._remove(key)

    def _remove(self, key: _Key) -> None:
        content = self._found.pop(key, None)
        if content is not None:
            self._size -= content.size


class SentContents(_LatestContents):
    """The contents that a worker keeps, as its pool knows them."""

    def without_known(self, runner: int, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """Return attempts that are sent now, without the bytes of the contents that the worker has."""
        return tuple([self._without_known(runner, task) for task in tasks])

    def _without_known(self, runner: int, task: Task) -> Task:
        changed: dict[int, Input] = {}
        for position, source in enumerate(task.inputs):
            handle = source.handle
            if not source.is_reread or handle is None or not handle.body:
                continue
            key = (runner, source.drop)
            if self.get(key) is handle:
                changed[position] = msgspec.structs.replace(source, handle=msgspec.structs.replace(handle, body=b""))
            else:
                self.add(key, handle)
        return _with_inputs(task, changed) if changed else task


class ReceivedContents(_LatestContents):
    """The contents that a worker keeps."""

    def with_known(self, runner: int, tasks: Sequence[Task]) -> Sequence[Task]:
        """Return attempts that were received, with the bytes of the contents that were sent before."""
        return [self._with_known(runner, task) for task in tasks]

    def _with_known(self, runner: int, task: Task) -> Task:
        changed: dict[int, Input] = {}
        for position, source in enumerate(task.inputs):
            handle = source.handle
            if not source.is_reread or handle is None or handle.kind != "bytes" or not handle.size:
                continue
            key = (runner, source.drop)
            if handle.body:
                self.add(key, handle)
            else:
                changed[position] = msgspec.structs.replace(source, handle=self.get(key))
        return _with_inputs(task, changed) if changed else task


def _with_inputs(task: Task, changed: dict[int, Input]) -> Task:
    """Return a task with other inputs at some positions."""
    inputs = tuple([changed.get(position, source) for position, source in enumerate(task.inputs)])
    return msgspec.structs.replace(task, inputs=inputs)


# A page of memory that a worker process shares with its pool: its current and last attempt, and its heartbeats.
#
# The pool reads it when the worker is dead, stopped, or too busy to answer on its socket.


class Marker:
    """The page, for both processes.

    Parameters
    ----------
    descriptor : int
        Descriptor of a file of `SIZE` zero bytes; may be closed afterwards.
    """

    SIZE = mmap.PAGESIZE

    def __init__(self, descriptor: int) -> None:
        self._page = mmap.mmap(descriptor, self.SIZE)

    @property
    def current(self) -> int:
        """Number of the attempt that the worker runs, or ran when it died; `IDLE` for none."""
        return int(_NUMBER.unpack_from(self._page, 0)[0])

    @current.setter
    def current(self, number: int) -> None:
        _NUMBER.pack_into(self._page, 0, number)

    @property
    def last(self) -> int:
        """Number of the last attempt that the worker began; `IDLE` for none."""
        return int(_NUMBER.unpack_from(self._page, _LAST_OFFSET)[0])

    def clear(self) -> None:
        """Write that no attempt has begun yet."""
        self.current = IDLE
        _NUMBER.pack_into(self._page, _LAST_OFFSET, IDLE)

    def begin(self, number: int) -> None:
        """Make an attempt the current one, and the last that was begun."""
        _NUMBER.pack_into(self._page, _LAST_OFFSET, number)
        _NUMBER.pack_into(self._page, 0, number)

    @property
    def beats(self) -> int:
        """Number of heartbeats of the worker."""
        return int(_BEAT.unpack_from(self._page, _BEAT_OFFSET)[0])

    def beat(self) -> None:
        """Increment the number of heartbeats."""
        _BEAT.pack_into(self._page, _BEAT_OFFSET, self.beats + 1)

    def close(self) -> None:
        """Unmap the page."""
        self._page.close()
