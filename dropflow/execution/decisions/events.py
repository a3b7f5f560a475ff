"""The events that the core of a session takes, and the actions that it returns.

Events are what the journal stores: replaying them through a fresh core gives the same state.

Records that exist in millions have ``gc=False``: they are frozen and cannot be part of a reference cycle, so the
cyclic garbage collector need not visit them.
"""

import msgspec

from dropflow.failure import Failure
from dropflow.states import DropState, SessionState
from dropflow.stopping import GRACE_SECONDS

NO_CAUSE = -1
"""Stands for the cause of a drop that is not in ERROR."""

NO_PRODUCER = -1
"""Stands for the producer of a drop on nodes that do not need it: all but the node of the drop."""


def foreign(row: int) -> int:
    """Return the cause that stands for a drop outside of this node's slice, by its row in the whole graph."""
    return -row - 2


def row_of_foreign(cause: int) -> int:
    """Return the row in the whole graph of a cause from `foreign`."""
    return -cause - 2


class KnownStates(msgspec.Struct, frozen=True, array_like=True):
    """The known states of the drops of a session that continues, see `dropflow.execution.decisions.continuation`.

    Attributes
    ----------
    states : bytes
        `DropState` of every drop. INITIALIZED for drops that have to run: they are not settled, or are reset.
    causes : dict of int to int
        The drop that started the error of each drop in ERROR.
    attempts : dict of int to int
        Number of the last attempt of each settled drop, and of the next attempt of the others, if it is not the first.
    uncounted_attempts : dict of int to int
        How many earlier attempts of a drop do not count as tries.
    skipped : dict of int to tuple of int
        By completed application: outputs that it chose to skip and that are not settled.
    reset : tuple of int
        Drops that had completed and run again because contents are lost, ascending.
    lost : tuple of int
        Completed data drops whose content is gone and not needed, ascending.
    reason : str
        Why the session had to continue.
    running : tuple of int
        Drops whose attempt, with the number in `attempts`, is still with the runner. Their state is WRITING.
    faults : dict of int to int
        Number of infrastructure faults of each drop that still count.
    released : tuple of int
        Data drops among `reset` and `lost` whose content was released after its last consumer, ascending.
    """

    states: bytes
    causes: dict[int, int] = {}
    attempts: dict[int, int] = {}
    uncounted_attempts: dict[int, int] = {}
    skipped: dict[int, tuple[int, ...]] = {}
    reset: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    reason: str = ""
    running: tuple[int, ...] = ()
    faults: dict[int, int] = {}
    released: tuple[int, ...] = ()


class Begin(msgspec.Struct, frozen=True, tag="begin", array_like=True):
    """The session starts: drops without producers or inputs become ready.

    A session that continues begins with the `known` states of its drops.
    """

    known: KnownStates | None = None


class Finished(msgspec.Struct, frozen=True, tag="finished", array_like=True, gc=False):
    """An attempt succeeded: an application ran, or a root data drop has its initial content.

    `skipped` are the outputs (drop ids) that the application chose to skip, as a Branch does. The contents of outputs
    with one producer are committed before this event.
    """

    drop: int
    attempt: int
    skipped: tuple[int, ...] = ()


class Failed(msgspec.Struct, frozen=True, tag="failed", array_like=True):
    """An attempt failed."""

    drop: int
    attempt: int
    failure: Failure


class Assembled(msgspec.Struct, frozen=True, tag="assembled", array_like=True, gc=False):
    """The parts that several producers wrote to a data drop were assembled, or that failed."""

    drop: int
    failure: Failure | None = None


class Reported(msgspec.Struct, frozen=True, tag="reported", array_like=True, gc=False):
    """A drop that lives on another node reached a terminal state.

    `cause` is the drop that started an error, `NO_CAUSE`, or, for a drop that is not in this node's slice, `foreign` of
    its row in the whole graph. `skipped` are the outputs in this slice that an application chose to skip. When this
    event arrives, the parts that an application wrote to drops here are committed, and the content of a data drop can
    be read from here.
    """

    drop: int
    state: DropState
    cause: int = -1
    attempt: int = 1
    skipped: tuple[int, ...] = ()


class Opened(msgspec.Struct, frozen=True, tag="opened", array_like=True, gc=False):
    """The only producer of a data drop has begun to write it, and consumers may read the data while they grow.

    `producer` is `NO_PRODUCER` if the event came from the node of the drop; `attempt` is the attempt of the producer.
    """

    drop: int
    producer: int
    attempt: int


class Withdrawn(msgspec.Struct, frozen=True, tag="withdrawn", array_like=True, gc=False):
    """The data that an attempt on another node wrote to a data drop are withdrawn: it failed, or the copy is broken."""

    drop: int
    attempt: int


class Lost(msgspec.Struct, frozen=True, tag="lost", array_like=True):
    """A node that has drops of the session is lost: the session fails. Drops that are not settled become CANCELLED."""

    node: str
    failure: Failure


class Cancel(msgspec.Struct, frozen=True, tag="cancel", array_like=True):
    """The session is cancelled: drops without an attempt become CANCELLED now, the others when their attempt has ended.

    Attempts have `grace` seconds to clean up. Another cancel may shorten that.
    """

    reason: str = ""
    grace: float = GRACE_SECONDS


class CancelDrop(msgspec.Struct, frozen=True, tag="cancel-drop", array_like=True):
    """These drops are cancelled, and their session goes on.

    A drop that is not settled becomes CANCELLED, and its attempt is stopped. Its successors count it as a failed input
    or producer, with this drop as the root cause.
    """

    drops: tuple[int, ...]
    reason: str = ""
    grace: float = GRACE_SECONDS


class Pause(msgspec.Struct, frozen=True, tag="pause", array_like=True):
    """The session is paused: attempts that run go on, and no other is started."""


class Continue(msgspec.Struct, frozen=True, tag="continue", array_like=True):
    """The session is continued after a pause."""


class Stopped(msgspec.Struct, frozen=True, tag="stopped", array_like=True):
    """The attempts of these drops have ended, in a session that was cancelled."""

    drops: tuple[int, ...]


class Abandon(msgspec.Struct, frozen=True, tag="abandon", array_like=True):
    """The attempts of a cancelled session that still run have had their time to stop: they are abandoned."""


Event = (
    Begin
    | Finished
    | Failed
    | Assembled
    | Opened
    | Withdrawn
    | Reported
    | Lost
    | Cancel
    | CancelDrop
    | Pause
    | Continue
    | Stopped
    | Abandon
)


class Run(msgspec.Struct, frozen=True, array_like=True, tag="run", gc=False):
    """Hand this attempt to a runner: execute an application, or give a root data drop its initial content.

    `delay` is the number of seconds to wait before that.
    """

    drop: int
    attempt: int
    delay: float = 0.0


class Assemble(msgspec.Struct, frozen=True, array_like=True, tag="assemble", gc=False):
    """Assemble the parts of this data drop: it has several producers, and all are settled."""

    drop: int


class Accept(msgspec.Struct, frozen=True, array_like=True, tag="accept", gc=False):
    """Accept the result of this attempt: the inputs that it ran ahead of are complete."""

    drop: int
    attempt: int


class Withdraw(msgspec.Struct, frozen=True, array_like=True, tag="withdraw", gc=False):
    """Stop reading the data that this attempt of the producer wrote of a data drop: they do not count any more."""

    drop: int
    attempt: int


class Release(msgspec.Struct, frozen=True, array_like=True, tag="release", gc=False):
    """Remove the content of this data drop, unless it is to persist: its last consumer is settled."""

    drop: int


class Publish(msgspec.Struct, frozen=True, array_like=True, tag="publish", gc=False):
    """Send to the nodes that hold neighbours of a drop that it is settled. Fields as those of `Reported`.

    The state WRITING means that a data drop is open, see `Opened`; INITIALIZED, that its stream is withdrawn. Events of
    a drop on another node go to that node.
    """

    drop: int
    state: DropState
    cause: int
    attempt: int
    skipped: tuple[int, ...] = ()


class Abort(msgspec.Struct, frozen=True, array_like=True, tag="abort", gc=False):
    """Stop this attempt if it can be stopped: its result does not count any more."""

    drop: int
    attempt: int
    grace: float = GRACE_SECONDS


class Finish(msgspec.Struct, frozen=True, array_like=True, tag="finish"):
    """End the session with this state: every drop is terminal. The last action, once."""

    state: SessionState


Action = Run | Assemble | Accept | Withdraw | Release | Publish | Abort | Finish
