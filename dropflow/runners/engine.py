"""The interface of another engine, which runs batches of attempts of a session in its workers."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.tasks import AttemptResult, Task

AttemptKey = tuple[int, int]
"""Drop and attempt."""


class Blob(msgspec.Struct, frozen=True, array_like=True):
    """A part of a content that is in a store."""

    url: str


Piece = bytes | Blob
"""A part of a content on its way."""


class CarriedContent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A content that travels with a batch: its path in the directory of the worker, and of how many pieces it is."""

    path: str
    pieces: int


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Attempts that one worker of the engine gets together. `number` is unique in its runner.

    For workers with directories of their own, `contents` are the inputs, whose pieces are sent beside this.
    """

    number: int
    tasks: tuple[Task, ...]
    contents: tuple[CarriedContent, ...] = ()


class AttemptLog(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The log of an attempt on a worker with a directory of its own."""

    drop: int
    attempt: int
    oid: str
    text: bytes


class BatchAnswer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An answer about a batch so far: results, and the attempts that have not begun and were taken back.

    An answer repeats what earlier answers for the same batch had. `worker` names the worker of the engine, and is empty
    if none has begun the batch. If it has a directory of its own, paths are relative to that one, only the last answer
    has results, and there are the contents, by their paths, and the logs.
    """

    number: int
    worker: str
    results: tuple[AttemptResult, ...] = ()
    returned: tuple[Task, ...] = ()
    contents: tuple[tuple[str, tuple[Piece, ...]], ...] = ()
    logs: tuple[AttemptLog, ...] = ()


class WorkerView(msgspec.Struct, frozen=True):
    """A worker of the engine: its name there, how many attempts it runs at a time, and the names of its host.

    If it cannot use the session directory, it `is_detached`, and has a directory of its own. `alias` is the name that
    the operator gave it, such as that of ``dask worker --name``.
    """

    name: str
    slots: int
    hosts: tuple[str, ...] = ()
    is_detached: bool = False
    alias: str = ""


class EngineCapacity(msgspec.Struct, frozen=True):
    """How many attempts the workers of an engine run at a time, and their bytes of memory; 0 if it does not answer."""

    slots: int = 0
    memory: int = 0


class EngineEvents(msgspec.Struct, frozen=True):
    """Callbacks by which an engine reports to its runner. Each is called from any thread, and returns immediately."""

    answered: Callable[[BatchAnswer, bool], None]
    """A batch was answered; the last argument is whether it has ended."""
    lost: Callable[[int, str], None]
    """A batch will not be answered any more, and why: "the Dask worker tcp://... was removed"."""
    workers: Callable[[Sequence[WorkerView]], None]
    """The workers that there are now."""
    broken: Callable[[str], None]
    """The engine cannot be reached any more, and why."""


ENOUGH_SECONDS = 5.0
"""How much work is worth a worker: what Dask takes for that by default."""


class Engine(Protocol):
    """Runs batches. All methods but `start`, `put` and `close` return immediately; they are called by one thread."""

    name: str
    """For messages, such as ``Dask``."""

    def start(self, spec: ExecutorSpec, factory: str, events: EngineEvents, *, store: str = "") -> Sequence[WorkerView]:
        """Connect to the engine, or start it, and return its workers.

        If one of them cannot use the session directory, all of them get directories of their own.

        Parameters
        ----------
        spec : ExecutorSpec
            What workers build an executor from.
        factory : str
            ``package.module:function`` that makes an `Executor` from the spec.
        events : EngineEvents
            Where it reports to.
        store : str
            URL of a directory in a store, by which the outputs of such workers go; empty for the answers.

        Raises
        ------
        DropflowError
            It cannot be reached, or its workers cannot run attempts of this session, such as for another version of
            dropflow.
        """
        ...

    def put(self, data: bytes) -> object:
        """Return an object of the engine for some bytes, which are there as long as the object is. From any thread."""
        ...

    def submit(self, batch: Batch, name: str, workers: Sequence[str], pieces: Sequence[object] = ()) -> None:
        """Have a worker run a batch: one of `workers` if there are any and that is possible, otherwise any.

        `name` is what people see on the pages of the engine. `pieces` are those of the contents of the batch: blobs, or
        objects that `put` has returned; the worker gets their bytes. From any thread.
        """
        ...

    def abort(self, attempts: Sequence[AttemptKey], grace: float) -> None:
        """Stop attempts, wherever they are. They are answered all the same."""
        ...

    def recall(self, numbers: Sequence[int]) -> None:
        """Have the workers of batches answer with what has ended, and return what has not begun."""
        ...

    def discard(self, number: int) -> None:
        """Forget a batch, and stop what runs of it. It is not answered."""
        ...

    def want(self, seconds: float) -> None:
        """Tell how many seconds of work wait for workers, at most `ENOUGH_SECONDS` of an attempt; it may get more."""
        ...

    def ping(self) -> None:
        """Tell all workers that the session is alive. They stop its attempts if they hear nothing for a minute."""
        ...

    def close(self) -> None:
        """Stop what runs, and leave the engine; end it if `start` started it. Idempotent."""
        ...


# How batches, their answers and the specs of sessions are sent to the workers of an engine: as
# msgpack.

encode = msgspec.msgpack.Encoder().encode
decode_batch = msgspec.msgpack.Decoder(Batch).decode
decode_answer = msgspec.msgpack.Decoder(BatchAnswer).decode
decode_answers = msgspec.msgpack.Decoder(list[BatchAnswer]).decode
decode_spec = msgspec.msgpack.Decoder(ExecutorSpec).decode
