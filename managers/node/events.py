"""Events and actions of a node manager's state machine, besides the calls of `managers.machine_calls`.

Sessions are named by their name and epoch: a name that was deleted may be used again. A *hosted* session is the object
that runs the engine, and the *instance* of a session is that object, or the one that reads its directory. The machine
passes them on to actions and does not look into them.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from dropflow.failure import Failure
from dropflow.rest.operation_records import CancelRequest
from dropflow.states import SessionState
from managers.deployment import Deployment
from managers.machine_calls import Call, Return

__all__ = [
    "Action",
    "Build",
    "Built",
    "CancelRecorded",
    "CancelSession",
    "Changed",
    "ConnectPeers",
    "Ended",
    "Event",
    "LinkRefused",
    "Log",
    "LoseNode",
    "NotBuilt",
    "NotConnected",
    "Over",
    "PeerChanged",
    "PeerEvent",
    "PeerRestarted",
    "PeerStopped",
    "PeersRead",
    "ReadPeers",
    "RecordCancel",
    "RemoveSession",
    "Removed",
    "RetireSession",
    "Retired",
    "SessionEvent",
    "StartSession",
]


# Events.


class Built(msgspec.Struct, frozen=True):
    """The session of a `Build` is built, and runs nothing yet. `neighbours` hold neighbours of its drops."""

    session: str
    epoch: int
    hosted: Any
    neighbours: tuple[str, ...]


class NotBuilt(msgspec.Struct, frozen=True):
    """The session of a `Build` could not be built; nothing of it is left."""

    session: str
    epoch: int
    error: Exception


class NotConnected(msgspec.Struct, frozen=True):
    """A `ConnectPeers` failed immediately: an address cannot be used."""

    session: str
    epoch: int
    error: Exception


class Changed(msgspec.Struct, frozen=True):
    """A session has a new version."""

    session: str
    epoch: int
    version: int


class Over(msgspec.Struct, frozen=True):
    """A session has its result. Its thread still writes to the session's directory."""

    session: str
    epoch: int
    status: SessionState


class Ended(msgspec.Struct, frozen=True):
    """The thread of a session that is over has done its last write."""

    session: str
    epoch: int


class Removed(msgspec.Struct, frozen=True):
    """A `RemoveSession` is done; `error` is why the directory could not be removed."""

    session: str
    epoch: int
    error: Exception | None = None


class Retired(msgspec.Struct, frozen=True):
    """A `RetireSession` is done: `finished` is the session as its directory has it, None if it cannot be read."""

    session: str
    epoch: int
    finished: Any = None


class CancelRecorded(msgspec.Struct, frozen=True):
    """A `RecordCancel` is done. A request that could not be written counts all the same."""

    session: str
    epoch: int
    call: int
    request: CancelRequest


class PeersRead(msgspec.Struct, frozen=True):
    """The links were read: the incarnation of each peer that ever sent a message, and the time of its last one."""

    last_received: Mapping[str, tuple[int, float]]


class PeerChanged(msgspec.Struct, frozen=True):
    """The link to a peer came up or went down."""

    peer: str


class LinkRefused(msgspec.Struct, frozen=True):
    """A peer refuses links from this process."""

    peer: str
    text: str


class PeerRestarted(msgspec.Struct, frozen=True):
    """A peer answers with a later incarnation than before."""

    peer: str
    incarnation: int


class PeerStopped(msgspec.Struct, frozen=True):
    """A peer has given up its part of a session: because it was cancelled there, or because of the loss of `node`."""

    peer: str
    session: str
    epoch: int
    reason: str
    node: str = ""
    failure: Failure | None = None


# Actions.


class Build(msgspec.Struct, frozen=True):
    """Build the session of a deployment: `Built` or `NotBuilt`."""

    deployment: Deployment


class ConnectPeers(msgspec.Struct, frozen=True):
    """Open links to these peers, by name with their addresses; `NotConnected` if an address cannot be used."""

    session: str
    epoch: int
    addresses: Mapping[str, str]


class ReadPeers(msgspec.Struct, frozen=True):
    """Read the time of the last message of each peer from the links: `PeersRead`."""


class StartSession(msgspec.Struct, frozen=True):
    """Start the thread of a hosted session: `Changed`, later `Over` and `Ended`."""

    hosted: Any


class RecordCancel(msgspec.Struct, frozen=True):
    """Write to the directory of a session that it is to be cancelled, and force that to the disk: `CancelRecorded`."""

    session: str
    epoch: int
    instance: Any
    call: int
    request: CancelRequest


class CancelSession(msgspec.Struct, frozen=True):
    """Cancel a hosted session. One that was not started is started first, and ends in its thread."""

    hosted: Any
    request: CancelRequest


class LoseNode(msgspec.Struct, frozen=True):
    """Fail a hosted session because of the loss of a node. One that was not started is started first."""

    hosted: Any
    node: str
    failure: Failure


class RemoveSession(msgspec.Struct, frozen=True):
    """Remove the directory of a session, and what the links remember of it: `Removed`."""

    session: str
    epoch: int
    instance: Any


class RetireSession(msgspec.Struct, frozen=True):
    """Read a session that is over from its directory, so that its engine can leave the memory: `Retired`."""

    session: str
    epoch: int
    hosted: Any


class Log(msgspec.Struct, frozen=True):
    """Write a line to the log of this process, about a session if `session` is not empty."""

    text: str
    session: str = ""
    is_warning: bool = True


SessionEvent = Built | NotBuilt | NotConnected | Changed | Over | Ended | Removed | Retired
PeerEvent = PeersRead | PeerChanged | LinkRefused | PeerRestarted | PeerStopped
Event = Call | SessionEvent | PeerEvent | CancelRecorded
Action = (
    Return
    | Build
    | ConnectPeers
    | ReadPeers
    | StartSession
    | RecordCancel
    | CancelSession
    | LoseNode
    | RemoveSession
    | RetireSession
    | Log
)
