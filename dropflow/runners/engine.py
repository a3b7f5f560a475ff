"""The interface of another engine, which runs batches of attempts of a session in its workers."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.tasks import AttemptResult, Task
from dropflow.graph.codec import read_extension

AttemptKey = tuple[int, int]
"""Drop and attempt."""
ENOUGH_SECONDS = 5.0
"""Seconds of work for which another worker is worth its start: the default of Dask."""
encode = msgspec.msgpack.Encoder().encode
decode_spec = msgspec.msgpack.Decoder(ExecutorSpec, ext_hook=read_extension).decode


class Blob(msgspec.Struct, frozen=True, array_like=True):
    """A part of a content that is in a store."""

    url: str


Piece = bytes | Blob
"""A part of a content that is sent: its bytes, or a blob with them."""


class CarriedContent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A content that travels with a batch: its path in the directory of the worker, and its number of pieces."""

    path: str
    pieces: int


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Attempts that one worker of the engine gets together. `number` is unique in its runner.

    For workers with directories of their own, `contents` are the inputs. Their pieces are sent separately.
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

    An answer repeats the content of earlier answers for the same batch. `worker` names the worker of the engine, and is
    empty if none has begun the batch. If the worker has its own directory, paths are relative to it. Then only the last
    answer has results, together with the logs and the contents, by their paths.
    """

    number: int
    worker: str
    results: tuple[AttemptResult, ...] = ()
    returned: tuple[Task, ...] = ()
    contents: tuple[tuple[str, tuple[Piece, ...]], ...] = ()
    logs: tuple[AttemptLog, ...] = ()


class WorkerView(msgspec.Struct, frozen=True):
    """A worker of the engine: its name there, the number of attempts that it runs at a time, and the names of its host.

    If it cannot use the session directory, it `is_detached`, and has a directory of its own. `alias` is the name that
    the operator gave it, such as that of ``dask worker --name``.
    """

    name: str
    slots: int
    hosts: tuple[str, ...] = ()
    is_detached: bool = False
    alias: str = ""


class EngineCapacity(msgspec.Struct, frozen=True):
    """The attempts that the workers of an engine run at a time, and their bytes of memory; 0 if it does not answer."""

    slots: int = 0
    memory: int = 0


class EngineEvents(msgspec.Struct, frozen=True):
    """Callbacks by which an engine reports to its runner. Each is called from any thread, and returns immediately."""

    answered: Callable[[BatchAnswer, bool], None]
    """A batch was answered; the last argument is whether it has ended."""
    lost: Callable[[int, str], None]
    """A batch will not be answered any more, and why: "the Dask worker tcp://... was removed"."""
    workers: Callable[[Sequence[WorkerView]], None]
    """The list of workers has changed; this is the new list."""
    broken: Callable[[str], None]
    """The engine cannot be reached any more, and why."""


class Engine(Protocol):
    """Runs batches. All methods but `start`, `put` and `close` return immediately; they are called by one thread."""

    name: str
    """Name for messages, such as ``Dask``."""

    def start(self, spec: ExecutorSpec, factory: str, events: EngineEvents, *, store: str = "") -> Sequence[WorkerView]:
        """Connect to the engine, or start it, and return its workers.

        If one of them cannot use the session directory, all of them get directories of their own.

        Parameters
        ----------
        spec : ExecutorSpec
            Specification from which workers build an executor.
        factory : str
            ``package.module:function`` that makes an `Executor` from the spec.
        events : EngineEvents
            Callbacks for its reports.
        store : str
            URL of a directory in a store, by which workers with their own directories send outputs; if it is empty,
            outputs are sent in the answers.

        Raises
        ------
        DropflowError
            The engine cannot be reached, or its workers cannot run attempts of this session, such as because they have
            another version of dropflow.
        """
        ...

    def put(self, data: bytes) -> object:
        """Return an object of the engine that holds some bytes as long as it exists. From any thread."""
        ...

    def submit(self, batch: Batch, name: str, workers: Sequence[str], pieces: Sequence[object] = ()) -> None:
        """Send a batch to a worker: if possible to one of `workers`, if the list has any; otherwise to any worker.

        `name` is shown on the pages of the engine. `pieces` are the pieces of the contents of the batch: blobs, or
        objects that `put` has returned; the worker gets their bytes. From any thread.
        """
        ...

    def abort(self, attempts: Sequence[AttemptKey], grace: float) -> None:
        """Stop attempts, wherever they are. They are answered all the same."""
        ...

    def recall(self, numbers: Sequence[int]) -> None:
        """Ask the workers of batches for the attempts that have ended, and for those that have not begun."""
        ...

    def discard(self, number: int) -> None:
        """Forget a batch, and stop its attempts. It is not answered."""
        ...

    def want(self, seconds: float) -> None:
        """Note how many seconds of work wait, at most `ENOUGH_SECONDS` for each attempt; the engine may add workers."""
        ...

    def ping(self) -> None:
        """Send all workers a sign that the session is alive. Without one for a minute, they stop its attempts."""
        ...

    def close(self) -> None:
        """Stop all attempts, and leave the engine; end it if `start` started it. Idempotent."""
        ...


# How batches, their answers and the specs of sessions are sent to the workers of an engine: as msgpack.

decode_batch = msgspec.msgpack.Decoder(Batch).decode
decode_answer = msgspec.msgpack.Decoder(BatchAnswer).decode
decode_answers = msgspec.msgpack.Decoder(list[BatchAnswer]).decode
