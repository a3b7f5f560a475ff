r"""Deployments: a session with its whole placed graph, packed so that managers in between need not decode the graph.

::

    magic      8 bytes
    version    4 bytes   of this format, little-endian
    length     4 bytes   of the header, little-endian
    header     msgpack   session, epoch, places, options, and the size of the graph
    graph                a .dfg container (`dropflow.graph.codec`)

A composite manager forwards the graph as it is to each child that has a node of the session; each node slices it for
itself.
"""

import struct
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dropflow.api.contents_answer import Download
from dropflow.errors import BadFileError
from dropflow.graph.codec import Buffer
from dropflow.ids import SESSION_NAME, is_session_name
from dropflow.session_options import SubmitOptions

VERSION = 3
"""Version of the format. Other versions are not read."""

_PULL_SECONDS = 600.0
"""Seconds that nodes may take to prepare a session if they may have to pull images."""
_MAGIC = b"\x89DFD\r\n\x1a\n"
_PROLOGUE = struct.Struct("<8sII")
_Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Name = Annotated[str, Meta(min_length=1, max_length=255)]


class Place(msgspec.Struct, frozen=True, array_like=True):
    """One node of a deployment: its name, the address of its links, and the incarnation of its process."""

    node: _Name
    address: Annotated[str, Meta(max_length=1024)]
    incarnation: _Natural


class Deployment(SubmitOptions, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A session, the options that it was submitted with, and its graph.

    Attributes
    ----------
    session : str
        Its name.
    epoch : int
        Number of its deployment; grows when it is deployed again.
    graph : str
        Name of the graph.
    drops : int
        Drops of the whole graph.
    created : float
        Seconds since the epoch.
    places : tuple of Place
        All nodes of the session.
    witnesses : tuple of Place
        Processes without a part of the session that vote about its views (`managers.recovery.records.View`).
    nodes : tuple of str
        Names of the nodes that the receiver is to prepare, if it is a composite manager. Only the sender knows them: a
        composite that does not know one of its nodes yet must refuse the deployment instead of skipping the node.
    notes : tuple of str
        Notes about the deployment, for people.
    decision : bytes
        With what a session that was over continues: an encoded `managers.recovery.records.ViewDecision`. Empty for a
        new session.
    view : int
        Number of the view with which the session begins.
    recomputed : int
        How many drops the session computed again before, because contents were lost.
    copies : dict of str to tuple of int
        Nodes that continue with their copy of the session: its epoch and the number of its view. The others begin
        without one.
    joined_by : str
        Name of the manager that adds nodes which come while the session runs; empty if none does.
    request_id : str
        Id of the request that submitted the session; empty if it had none.
    user : str
        Owner of the session. Only managers send deployments, so that it is true.
    is_joining : bool
        Whether the session runs already, and the receiver is to join it: it is the last of `places`, and has no drops
        until the others agree on a view that has it.
    started : float
        When the session that the receiver is to join was started, in seconds since the epoch; 0 if it does not join.
    has_images : bool
        Whether the nodes may have to pull images of containers, which takes minutes.
    dfg : bytes-like
        The placed graph as a ``.dfg`` container; never part of the header. Empty if it is in a file.
    until, check and others
        See `dropflow.session_options.SubmitOptions`.
    """

    session: Annotated[str, Meta(pattern=SESSION_NAME)]
    epoch: _Natural
    graph: str
    drops: _Natural
    created: float
    places: tuple[Place, ...]
    witnesses: tuple[Place, ...] = ()
    nodes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    decision: bytes = b""
    view: _Natural = 0
    recomputed: _Natural = 0
    copies: dict[_Name, tuple[_Natural, _Natural]] = msgspec.field(default_factory=dict)
    joined_by: Annotated[str, Meta(max_length=255)] = ""
    request_id: Annotated[str, Meta(max_length=64)] = ""
    user: Annotated[str, Meta(max_length=64)] = ""
    is_joining: bool = False
    started: float = 0.0
    has_images: bool = False
    dfg: Any = b""

    @property
    def is_continuation(self) -> bool:
        """Whether it continues a session that was over."""
        return bool(self.decision)

    @property
    def members(self) -> tuple[Place, ...]:
        """The members of the session, without a node that is to join."""
        return self.places[:-1] if self.is_joining else self.places

    def seconds(self, usual: float) -> float:
        """Return how long its nodes may take to prepare it."""
        return max(usual, _PULL_SECONDS) if self.has_images else usual

    def recomputed_before(self, node: str) -> int:
        """Return how many of these one node reports: the first one all, the others none."""
        return self.recomputed if self.places and self.places[0].node == node else 0

    def without_graph(self) -> "Deployment":
        """Return the deployment without the bytes of the graph."""
        return msgspec.structs.replace(self, dfg=b"")

    def buffers(self) -> list[bytes | memoryview]:
        """Return the deployment as pieces of bytes in order; the graph is not copied."""
        size = memoryview(self.dfg).nbytes
        header = msgspec.msgpack.encode(_DeploymentHeader(deployment=self.without_graph(), size=size))
        return [_PROLOGUE.pack(_MAGIC, VERSION, len(header)) + header, self.dfg]


class _DeploymentHeader(msgspec.Struct, frozen=True, kw_only=True):
    deployment: Deployment
    size: _Natural


def pack(deployment: Deployment) -> bytes:
    """Return the deployment as bytes."""
    return b"".join(deployment.buffers())


def deployment_download(deployment: Deployment) -> Download:
    """Return a deployment as a download; the graph is not copied."""
    buffers = deployment.buffers()
    size = sum(memoryview(buffer).nbytes for buffer in buffers)
    return Download(
        name=f"{deployment.session}.deployment",
        content_type="application/vnd.dropflow.deployment",
        size=size,
        chunks=(bytes(buffer) for buffer in buffers),
    )


def unpack(buffer: Buffer) -> Deployment:
    """Return the deployment in `buffer`. Its graph is a view of the buffer, and is not decoded.

    Raises
    ------
    BadFileError
        The bytes are not a deployment, are one of another version, or are incomplete.
    """
    view = memoryview(buffer).cast("B")
    if bytes(view[: len(_MAGIC)]) != _MAGIC or len(view) < _PROLOGUE.size:
        raise BadFileError("not a deployment", hint="submit a graph instead: only managers send deployments")
    _, version, length = _PROLOGUE.unpack_from(view)
    if version != VERSION:
        # Version 1 has no number: its header begins where the number is now.
        raise BadFileError(
            f"the deployment was sent by another version of dropflow; this one reads version {VERSION} of the format",
            hint="run the same version of dropflow on all nodes, islands and masters",
        )
    start = _PROLOGUE.size + length
    try:
        header = msgspec.msgpack.decode(view[_PROLOGUE.size : start], type=_DeploymentHeader)
    except (ValueError, RecursionError) as error:  # msgspec raises UnicodeDecodeError, too
        raise BadFileError(f"the header of the deployment cannot be read: {error}") from error
    if not is_session_name(header.deployment.session):
        raise BadFileError(f"{header.deployment.session!r} cannot be the name of a session")
    if len(view) != start + header.size:
        raise BadFileError("the deployment is incomplete")
    return msgspec.structs.replace(header.deployment, dfg=view[start:])
