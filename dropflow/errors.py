"""The tree of errors, by who can correct them: the user, the environment, or dropflow.

::

    DropflowError
    ├── UsageError                  what was asked cannot be done; asking again gives the same answer
    │   ├── BadGraphError           a graph that cannot be translated; carries all its problems
    │   ├── BadFileError            a file that is damaged, or of another kind
    │   ├── UnknownComponentError   a class name that no component has
    │   ├── BadParameterError       a parameter whose value cannot be used
    │   ├── NoManagerError          a command needs a manager, and none was named or runs here
    │   ├── JobRefusedError         a batch system refused a job
    │   ├── NotFoundError           no session, node or drop of that name
    │   ├── ConflictError           it exists already, or is in a state that does not allow this
    │   ├── AmbiguousError          a short name that several drops have
    │   ├── AppError                the code of an application raised, or its command failed
    │   │   ├── AttemptTimeoutError an attempt took longer than its field 'timeout' allows
    │   │   ├── InputChangedError   an application changed the content of one of its inputs
    │   │   └── ResultDiffersError  an application gave another result than an earlier run did
    │   ├── MissingDependencyError  an optional package is not installed
    │   ├── ProtocolError           bytes that are not a dropflow message, or a peer that refuses the connection
    │   ├── GoneError               data that was released, or belongs to another attempt
    │   │   ├── LostContentsError   contents of a session are lost, see `dropflow.dask.persist`
    │   │   └── LostChunksError     chunks of dask collections are lost, see `dropflow.dask.lost_chunks`
    │   ├── NotOwnerError           a user tries to change a session of another user
    │   ├── QuotaError              a user has as many sessions or drops as the administrator permits
    │   ├── RangeError              a part of a content that begins after its end
    │   ├── ExportError             inputs of a replay that are secret or too large to be copied for a colleague
    │   └── PreviewError            a content that ends the process which reads it for a preview, or takes too long
    ├── WorldError                  a fault of the environment; trying again may help
    │   ├── StorageError            a read, write, commit or rename failed
    │   ├── WorkerDiedError         a worker process ended in the middle of an attempt
    │   │   ├── ResultLostError     it ended after the attempt, before its result was sent
    │   │   └── OutOfMemoryError    it, or the attempt, ended because memory was used up
    │   ├── InputLostError          an input on another node was removed while an attempt read it there
    │   ├── TransferError           contents cannot be brought to or from a worker of another engine
    │   ├── WorkerStartError        no worker process can be started, or none can run this session
    │   ├── LinkError               another node cannot be reached, or does not take what is sent
    │   │   └── RestartedError      a node was restarted after a session was planned for its earlier process
    │   ├── BatchSystemError        a batch system does not answer, or ended a job before its session was over
    │   └── ClockSkewError          the clocks of two hosts differ too much for requests between them
    ├── HttpError                   an error of HTTP only: no such page, wrong method, no token, too large
    └── InternalError               a bug of dropflow: please report it

`Interrupted` is not in the tree: it derives from `BaseException`, so that ``except Exception`` in an application does
not catch a cancel.
"""

import importlib
from typing import Any, ClassVar

__all__ = [
    "AmbiguousError",
    "AppError",
    "AttemptTimeoutError",
    "BadFileError",
    "BadGraphError",
    "BadParameterError",
    "BatchSystemError",
    "ClockSkewError",
    "ConflictError",
    "DropflowError",
    "ExportError",
    "GoneError",
    "HttpError",
    "InputChangedError",
    "InputLostError",
    "InternalError",
    "Interrupted",
    "JobRefusedError",
    "LinkError",
    "MissingDependencyError",
    "NoManagerError",
    "NotFoundError",
    "NotOwnerError",
    "OutOfMemoryError",
    "PreviewError",
    "ProtocolError",
    "QuotaError",
    "RangeError",
    "RestartedError",
    "ResultDiffersError",
    "ResultLostError",
    "StorageError",
    "TransferError",
    "UnknownComponentError",
    "UsageError",
    "WorkerDiedError",
    "WorkerStartError",
    "WorldError",
    "install_hint",
    "optional_package",
]


class DropflowError(Exception):
    """Base of the errors that dropflow raises.

    Parameters
    ----------
    text : str
        What is wrong, in one sentence that names the object.
    where : str
        File, JSON pointer, node or drop; empty when there is none.
    hint : str
        What to do about it; may be empty.
    of_host : bool
        Whether the cause is this host (a module that is not installed, a variable that is not set), so that another
        host may accept the same.
    """

    code: ClassVar[str] = "DF000"
    retryable: ClassVar[bool] = False
    infrastructure: ClassVar[bool] = False
    """Whether it ends an attempt without being a failure of its application (`dropflow.failure.Failure`)."""

    def __init__(self, text: str, *, where: str = "", hint: str = "", of_host: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.where = where
        self.hint = hint
        self.of_host = of_host

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{where}{self.text}{hint}"


class UsageError(DropflowError):
    """The request cannot be carried out; repeating it gives the same answer."""

    code = "DF100"


class BadGraphError(UsageError):
    """A graph that cannot be used. `problems` holds every finding (`dropflow.failure.Problem`), in order."""

    code = "DF101"

    def __init__(self, text: str, *, problems: tuple[object, ...] = (), where: str = "", hint: str = "") -> None:
        super().__init__(text, where=where, hint=hint)
        self.problems = problems


class BadFileError(UsageError):
    """A file that is damaged, or of another kind."""

    code = "DF102"


class UnknownComponentError(UsageError):
    """A class name that no component has."""

    code = "DF103"


class BadParameterError(UsageError):
    """A parameter whose value cannot be used. `fields` are the names of the fields of the node that it is about."""

    code = "DF104"

    def __init__(
        self, text: str, *, fields: tuple[str, ...] = (), where: str = "", hint: str = "", of_host: bool = False
    ) -> None:
        super().__init__(text, where=where, hint=hint, of_host=of_host)
        self.fields = fields


class AppError(UsageError):
    """The code of an application raised, or its command ended with a non-zero status."""

    code = "DF105"
    retryable = True


class AttemptTimeoutError(AppError):
    """An attempt took longer than its application's field ``timeout`` allows."""

    code = "DF110"


class InputChangedError(AppError):
    """An application changed the content of one of its inputs, which other drops may read."""

    code = "DF112"
    retryable = False


class ResultDiffersError(AppError):
    """An application gave another result than an earlier run with the same code, parameters and inputs."""

    code = "DF113"
    retryable = False


class MissingDependencyError(UsageError):
    """A package that a graph or a feature needs is not installed."""

    code = "DF106"


class NoManagerError(UsageError):
    """A command needs a manager; none was named, and none runs on this host."""

    code = "DF111"


class JobRefusedError(UsageError):
    """A batch system refused a job; the text is its own."""

    code = "DF118"


class NotFoundError(UsageError):
    """There is no session, node or drop of that name."""

    code = "DF107"


class ConflictError(UsageError):
    """It exists already, or is in a state that does not allow what was asked."""

    code = "DF108"


class AmbiguousError(UsageError):
    """A short name that several drops have, or may have."""

    code = "DF109"


class ProtocolError(UsageError):
    """Bytes that are not a dropflow message, or a peer that refuses the connection."""

    code = "DF120"


class GoneError(UsageError):
    """Data that was released already, or belongs to another attempt."""

    code = "DF121"


class NotOwnerError(UsageError):
    """A user tries to change a session of another user."""

    code = "DF126"


class QuotaError(UsageError):
    """A user has as many running sessions, or drops in them, as the administrator permits."""

    code = "DF127"


class ExportError(UsageError):
    """A replay is not copied for another person, because its inputs are secret or too large."""

    code = "DF128"


class RangeError(UsageError):
    """A part of a content that begins after its end; the content has `size` bytes."""

    code = "DF122"

    def __init__(self, text: str, *, size: int = 0, where: str = "", hint: str = "") -> None:
        super().__init__(text, where=where, hint=hint)
        self.size = size


class PreviewError(UsageError):
    """A content that ended the process which read it for a preview, or took it too long."""

    code = "DF125"


class WorldError(DropflowError):
    """A fault of the environment; trying again may help."""

    code = "DF200"
    retryable = True


class StorageError(WorldError):
    """A read, write, commit or rename of data failed."""

    code = "DF201"


class WorkerDiedError(WorldError):
    """A worker process ended in the middle of an attempt."""

    code = "DF202"
    infrastructure = True


class ResultLostError(WorkerDiedError):
    """A worker process ended before it had sent the result of an attempt that was over."""

    code = "DF203"


class OutOfMemoryError(WorkerDiedError):
    """An attempt was ended, or gave up, because memory was used up.

    If the worker process did not end, the attempt is repeated with ``--retry-memory`` only, as long as there is more.
    """

    code = "DF207"


class InputLostError(WorldError):
    """The content of an input, which is read in the directory of another node, was removed before the attempt ended.

    That node was started again, or has left the session. The attempt is repeated, once the content is there again.
    """

    code = "DF205"
    infrastructure = True


class TransferError(WorldError):
    """Contents cannot be brought to or from a worker of another engine: its disk, or a store, does not take them.

    The attempt is repeated, and does not count as a try of its application.
    """

    code = "DF206"
    infrastructure = True


class WorkerStartError(WorldError):
    """No worker process can be started, or none can make the executor of a session.

    Starts are repeated by the pool itself, for all attempts together (`dropflow.runners.worker_pool`).
    """

    code = "DF204"


class LinkError(WorldError):
    """Another node cannot be reached, or does not take what is sent to it."""

    code = "DF220"


class RestartedError(LinkError):
    """A node was restarted after a session was planned for its earlier process; planning it again helps."""

    code = "DF222"


class BatchSystemError(WorldError):
    """A batch system does not answer, or ended a job before its session was over."""

    code = "DF230"


class ClockSkewError(WorldError):
    """The clocks of two hosts differ too much for a request between them.

    `challenge` is the time to sign the request with (`dropflow.api.signing`).
    """

    code = "DF221"
    retryable = False

    def __init__(self, text: str, *, challenge: str = "", where: str = "", hint: str = "") -> None:
        super().__init__(text, where=where, hint=hint)
        self.challenge = challenge


class HttpError(DropflowError):
    """An error of HTTP only: no such page, wrong method, no token, too large.

    `challenge` is what to sign the request with instead (`dropflow.api.signing`).
    """

    code = "DF300"

    def __init__(self, status: int, text: str, *, challenge: str = "", where: str = "", hint: str = "") -> None:
        super().__init__(text, where=where, hint=hint)
        self.status = status
        self.challenge = challenge


class InternalError(DropflowError):
    """A bug of dropflow: please report it with the journal and the graph."""

    code = "DF900"


class Interrupted(BaseException):
    """Raised in the code of an application when its attempt is to stop: its session or its drop is cancelled.

    ``finally`` and ``with`` run as for any exception. Code that catches it should raise it again: after a grace period
    the process of the attempt is killed. Compiled code sees it only when it returns to Python.
    """


def optional_package(module: str, need: str, extra: str, *, of_host: bool = False) -> Any:
    """Import and return a module of an optional package.

    Parameters
    ----------
    module : str
        Its dotted name.
    need : str
        What needs it, with the verb: "contents at URLs need".
    extra : str
        The extra of ``pyproject.toml`` that installs it.
    of_host : bool
        Whether other hosts may have it; see `DropflowError`.

    Raises
    ------
    MissingDependencyError
        It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        raise MissingDependencyError(
            f"{need} the package {module.partition('.')[0]}, which is not installed",
            hint=install_hint(extra),
            of_host=of_host,
        ) from problem


def install_hint(extra: str) -> str:
    """Return how to install an extra of ``pyproject.toml``; this needs no package index that has dropflow."""
    return f"pip install 'dropflow[{extra}]' in the environment that has dropflow"
