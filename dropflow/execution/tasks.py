"""Attempts as messages: the task that a runner gets, what it opens meanwhile, and its result."""

from collections.abc import Callable, Sequence

import msgspec

from dropflow.execution.content_location import Handle
from dropflow.failure import Failure
from dropflow.states import DropState


class Input(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One input edge of an attempt: the data drop at its other end, as it is now.

    If `state` is WRITING, the drop is open and `handle` is a stream. An input that `is_reread` is one that several
    attempts read, with a content that is worth being sent to a worker process only once.
    """

    drop: int
    oid: str
    template: int
    link: int
    state: DropState
    handle: Handle | None = None
    is_reread: bool = False


class Output(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One output edge of an attempt.

    A `shared` output has several producers, and each writes a part of it. Consumers may read an output that `streams`
    while it is written. A content that is `kept` outlives the session; a large one is written to the disk directly.
    """

    drop: int
    oid: str
    template: int
    link: int
    shared: bool = False
    streams: bool = False
    kept: bool = False


class Task(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One attempt, complete: everything an executor needs beyond its spec.

    `index` is the drop's position in each axis of its template. For a root data drop `inputs` and `outputs` are empty
    and the executor gives the drop its initial content, as output handle of the drop itself. With `is_ahead`, some of
    its inputs are still being written, and the attempt may last until they are complete. With `is_suspect`, the process
    of an earlier attempt ended while it ran, or just after: it runs in a process that no other attempt has used. Of the
    attempts that wait, those with the greatest `priority` are started first.

    Those of `then` run after it in the same place, one after another. Each of them `follows` the one before it, whose
    output is its only input.

    A runner that has GPUs gives it the names of its own in `gpus`. With `memory`, it gets so many bytes and not as many
    as its template declares, because an earlier attempt had too little.
    """

    drop: int
    attempt: int
    template: int
    oid: str
    index: tuple[int, ...]
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    is_ahead: bool = False
    is_suspect: bool = False
    priority: int = 0
    then: "tuple[Task, ...]" = ()
    follows: bool = False
    gpus: tuple[str, ...] = ()
    memory: float = 0.0


class Usage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The end of an attempt, and the processor time, memory and bytes that it used.

    Attributes
    ----------
    ended : float
        When it ended, in seconds since the epoch.
    processor : float
        Seconds of processor time.
    memory : int
        Largest resident memory of its process meanwhile, in bytes; 0 if other attempts use the process too.
    read, written : int
        Bytes of its inputs and outputs, as far as their sizes are known.
    worker : int
        Number of its worker process, from 1; 0 without one.
    """

    ended: float
    processor: float = 0.0
    memory: int = 0
    read: int = 0
    written: int = 0
    worker: int = 0


class AttemptResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How an attempt ended. Nothing is committed yet: `handles` still point at temporary names.

    Attributes
    ----------
    handles : dict of int to Handle
        Content for output drops; an output that is in neither `handles` nor `skipped` completes empty.
    skipped : tuple of int
        Output drops that the application chose to skip.
    failure : Failure or None
        None when the attempt succeeded.
    seconds : float
        How long it ran.
    usage : Usage or None
        None for an attempt that did not run to its end.
    """

    drop: int
    attempt: int
    handles: dict[int, Handle] = {}
    skipped: tuple[int, ...] = ()
    failure: Failure | None = None
    seconds: float = 0.0
    usage: Usage | None = None


class StreamOpened(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A running attempt has begun to write this output, which consumers may read from `handle`."""

    drop: int
    attempt: int
    target: int
    handle: Handle


ResultSink = Callable[[Sequence[StreamOpened | AttemptResult]], None]
"""Takes the results of a runner, and what its attempts open, in order; called from any thread."""


def discard_results(_: Sequence[StreamOpened | AttemptResult]) -> None:
    """Stand in for the sink of a runner that has not been started."""
