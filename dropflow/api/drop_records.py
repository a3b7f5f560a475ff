"""Records of drops and of results in ``/api/v1``; their form is described in `dropflow.api.session_records`."""

from typing import Annotated

import msgspec
from msgspec import Meta

from dropflow.api.session_records import FailureInfo
from dropflow.times.statistics import AttemptProfile

_Natural = Annotated[int, Meta(ge=0, le=2**53)]


class PageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of a long list: `limit` entries from `offset` on."""

    offset: _Natural = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


FIRST_PAGE = PageQuery()


class DropQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters on the drops of a session: a drop must match all that are not empty.

    Attributes
    ----------
    state : str
        Name of a state, or several with commas between.
    key : str
        Key of a logical node.
    node : str
        Name of a node manager.
    text : str
        Part of the drop's id or of its logical node's name, ignoring case.
    oid : str
        The whole id of a drop.
    ending : str
        End of the drop's id.
    name : str
        Name of a logical node, or that and the indices of one of its drops: ``Measure 3`` or ``Measure_0-3``.
    row : int
        Row of a drop in the whole graph; -1 for any.
    sort : str
        What the list is sorted by: row, id, name (of the logical node), state, node, attempt or size; with a minus in
        front in descending order. By default it has the order of the graph on each node.
    time : float
        A moment, in seconds since the epoch: the drops as they were then, in the order of the graph. 0 for now.
    """

    state: Annotated[str, Meta(max_length=200)] = ""
    key: Annotated[str, Meta(max_length=200)] = ""
    node: Annotated[str, Meta(max_length=255)] = ""
    text: Annotated[str, Meta(max_length=200)] = ""
    oid: Annotated[str, Meta(max_length=1024)] = ""
    ending: Annotated[str, Meta(max_length=1024)] = ""
    name: Annotated[str, Meta(max_length=1024)] = ""
    row: Annotated[int, Meta(ge=-1, le=2**53)] = -1
    sort: Annotated[
        str,
        Meta(
            pattern="^$|^-?(row|id|name|state|node|attempt|size)$",
            description="row, id, name, state, node, attempt or size; with - in front, the largest first",
        ),
    ] = ""
    time: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    offset: _Natural = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


FIRST_DROPS = DropQuery()


class DropInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One drop in a row. `drop` is its row in the whole graph, `oid` its text id; `size` is None when there is none.

    `is_running` is whether the attempt of an application in WRITING runs in a worker or thread, or is queued; None for
    other drops, and if the node does not know it.
    """

    drop: int
    oid: str
    name: str
    key: str
    category: str
    is_app: bool
    state: str
    node: str
    attempt: int = 1
    size: int | None = None
    is_running: bool | None = None


class DropPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of drops.

    Attributes
    ----------
    total : int
        Number of all drops that match.
    missing : tuple of str
        Nodes that did not answer.
    held, whole : int
        Drops of the session on the nodes that answered, and on all its nodes. A manager below others may hold fewer.
    """

    drops: tuple[DropInfo, ...]
    total: int
    offset: int = 0
    limit: int = 100
    missing: tuple[str, ...] = ()
    held: int = 0
    whole: int = 0


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """A drop at the other end of an edge. `port` is the name of the port, if the graph has one.

    `size` is that of its content, and `path` where that is, if it is a file; as far as the node has them.
    """

    drop: int
    oid: str
    name: str
    state: str
    node: str
    port: str = ""
    size: int | None = None
    path: str = ""


class DropDetail(DropInfo, frozen=True, kw_only=True):
    """Everything about one drop.

    Attributes
    ----------
    inputs, outputs : tuple of Neighbour
        A page of its predecessors, and of its successors.
    input_count, output_count : int
        Number of all of them.
    reasons : tuple of str
        Why it is in its state, in words.
    has_log, has_data : bool
        Whether there is a log, and content that can be downloaded.
    parameters : dict of str to str
        Its logical node's parameters, as text.
    attempts : tuple of AttemptProfile
        Its attempts on its node that have ended, and the one that runs.
    missing : float
        The share of its data that is missing, from 0 to 1, because failures were tolerated.
    path : str
        The file or directory that is its content, on its node; empty if it is neither.
    """

    reasons: tuple[str, ...] = ()
    failure: FailureInfo | None = None
    inputs: tuple[Neighbour, ...] = ()
    outputs: tuple[Neighbour, ...] = ()
    input_count: int = 0
    output_count: int = 0
    has_log: bool = False
    has_data: bool = False
    parameters: dict[str, str] = {}
    attempts: tuple[AttemptProfile, ...] = ()
    missing: float = 0.0
    path: str = ""


class ResultInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A result of a session: the content of a leaf, or of a drop that is to persist.

    `path` is relative to the session's directory (``results/x.txt``, ``files/out/y.fits``), or absolute outside of it.
    If the node of the drop does not answer, `node` has a copy of its content, and `owner` is the node of the drop.
    `checksum` is the CRC-32 with which it was committed, that of its tree for a directory; None if it is not known.
    `missing` is the share of the data that it was made without, because failures were tolerated. `reused` names the
    session and host from which it was taken; empty if it was computed, or its application is on another node.
    """

    drop: int
    oid: str
    name: str
    node: str
    path: str
    size: int
    checksum: int | None = None
    is_directory: bool = False
    owner: str = ""
    missing: float = 0.0
    reused: str = ""
