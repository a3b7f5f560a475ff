r"""Deployments: a session with the slice of each of its nodes, packed so that managers in between need not decode it.

::

    magic      8 bytes
    length     4 bytes   of the header, little-endian
    header     msgpack   session, epoch, places, options, and the size of each slice
    slices               one after the other, each a .dfg container (`dropflow.graph.slices`)

A composite manager splits a deployment by its children (`subset`) and forwards the bytes.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dropflow.errors import BadFileError
from dropflow.graph.codec import Buffer
from dropflow.ids import SESSION_NAME, is_session_name

__all__ = ["Deployment", "Place", "pack", "subset", "unpack"]


_MAGIC = b"\x89DFD\r\n\x1a\n"
_LENGTH = struct.Struct("<I")
_Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Name = Annotated[str, Meta(min_length=1, max_length=255)]


class Place(msgspec.Struct, frozen=True, array_like=True):
    """One node of a deployment: its name, the address of its links, and the incarnation of its process."""

    node: _Name
    address: Annotated[str, Meta(max_length=1024)]
    incarnation: _Natural


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """A session and the slices of its graph.

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
        All nodes of the session, also those whose slices are not here.
    notes : tuple of str
        Notes about the deployment, for people.
    check : bool
        Check the whole state of the engine after each step; slow.
    infrastructure_retries : int
        How many infrastructure faults each drop may have.
    slices : mapping of str to buffer
        By the name of the node; never part of the header.
    """

    session: Annotated[str, Meta(pattern=SESSION_NAME)]
    epoch: _Natural
    graph: str
    drops: _Natural
    created: float
    places: tuple[Place, ...]
    notes: tuple[str, ...] = ()
    check: bool = False
    infrastructure_retries: _Natural = 5
    slices: Mapping[str, Any] = {}

    def buffers(self) -> list[bytes | memoryview]:
        """Return the deployment as pieces of bytes in order; the slices are not copied."""
        bare = msgspec.structs.replace(self, slices={})
        sizes = {node: len(memoryview(data).cast("B")) for node, data in self.slices.items()}
        header = msgspec.msgpack.encode(_Header(deployment=bare, sizes=sizes))
        return [_MAGIC + _LENGTH.pack(len(header)) + header, *self.slices.values()]


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    deployment: Deployment
    sizes: dict[str, _Natural]


def pack(deployment: Deployment) -> bytes:
    """Return the deployment as bytes."""
    return b"".join(deployment.buffers())


def unpack(buffer: Buffer) -> Deployment:
    """Return the deployment in `buffer`. Its slices are views of the buffer, and are not decoded.

    Raises
    ------
    BadFileError
        The bytes are not a deployment, or are incomplete.
    """
    view = memoryview(buffer).cast("B")
    start = len(_MAGIC) + _LENGTH.size
    if bytes(view[: len(_MAGIC)]) != _MAGIC or len(view) < start:
        raise BadFileError("not a deployment", hint="submit a graph instead: only managers send deployments")
    end = start + _LENGTH.unpack_from(view, len(_MAGIC))[0]
    try:
        header = msgspec.msgpack.decode(view[start:end], type=_Header)
    except (ValueError, RecursionError) as error:  # msgspec raises UnicodeDecodeError, too
        raise BadFileError(f"the header of the deployment cannot be read: {error}") from error
    if not is_session_name(header.deployment.session):
        raise BadFileError(f"{header.deployment.session!r} cannot be the name of a session")
    if len(view) != end + sum(header.sizes.values()):
        raise BadFileError("the deployment is incomplete")
    slices: dict[str, Buffer] = {}
    for node, size in header.sizes.items():
        slices[node] = view[end : end + size]
        end += size
    return msgspec.structs.replace(header.deployment, slices=slices)


def subset(deployment: Deployment, nodes: Iterable[str]) -> Deployment:
    """Return the deployment with the slices of these nodes only."""
    wanted = frozenset(nodes)
    kept = {node: data for node, data in deployment.slices.items() if node in wanted}
    return msgspec.structs.replace(deployment, slices=kept)
