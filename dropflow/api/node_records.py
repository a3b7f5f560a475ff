"""Records of nodes, other managers and hosts in ``/api/v1``: what they are, can run and have in use."""

import os
import socket
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dropflow.api.session_records import SessionInfo, SessionVersion
from dropflow.clock import Clock
from dropflow.version import __version__

Role = Literal["node", "island", "master", "daemon", "translator"]
MANAGER_ROLES = ("master", "island", "node")
"""The roles of managers, the topmost first."""
"""The kind of a process."""


class Lack(msgspec.Struct, frozen=True, kw_only=True):
    """A need (`dropflow.apps.needs`) that a node does not meet: why, and what to install."""

    need: str
    text: str
    hint: str = ""


class NodeComponents(msgspec.Struct, frozen=True, kw_only=True):
    """The software of a node, and which applications it can run.

    Attributes
    ----------
    node : str
        Its name.
    python : str
        Version of its Python.
    environment : str
        Directory of the Python environment, into which packages are to be installed.
    applications : int
        Number of built-in applications.
    engine : str
        Program that runs its containers; empty if there is none.
    registered : tuple of str
        Components that its packages register, with the package before them: entry points ``dropflow.components``.
    lacks : tuple of Lack
        Needs that it was asked about and does not meet.
    """

    node: str
    python: str = ""
    environment: str = ""
    applications: int = 0
    engine: str = ""
    registered: tuple[str, ...] = ()
    lacks: tuple[Lack, ...] = ()


_FULL_DISK = 16 * 1024 * 1024
"""Free bytes below which a disk is full; of a disk that is not much larger, a hundredth."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of a host, and how much of them is in use.

    Attributes
    ----------
    cores : int
        Processors that the manager may use.
    workers : int
        Worker processes that run applications.
    busy : int
        Attempts that run in workers or threads now.
    processor : float
        Use of all processors, per cent.
    memory, memory_free : int
        Bytes of main memory, and of those available.
    disk, disk_free : int
        Bytes of the file system of the sessions, and of those free.
    received : int
        Bytes of contents that the process of the node fetched from other nodes.
    gpus, gpus_free : int
        GPUs that the node gives to attempts, and those that none has now.
    """

    cores: int = 0
    workers: int = 0
    busy: int = 0
    processor: float = 0.0
    memory: int = 0
    memory_free: int = 0
    disk: int = 0
    disk_free: int = 0
    received: int = 0
    gpus: int = 0
    gpus_free: int = 0

    @property
    def is_disk_full(self) -> bool:
        """Whether nearly nothing fits on the disk: no session can be prepared there."""
        return self.disk_free < min(_FULL_DISK, self.disk / 100)


class ManagerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One manager, as it describes itself.

    Attributes
    ----------
    incarnation : int
        Distinguishes this process from others with its name. That of a node grows with each start.
    time : float
        Its clock now, to measure clock skew.
    protocol : int
        Version of the messages between nodes.
    key : str
        Fingerprint of its cluster key; empty without one.
    findings : tuple of str
        Problems of its stored data, such as sessions that cannot be read.
    """

    name: str
    role: Role
    url: str
    version: str
    host: str
    process: int
    incarnation: int
    started: float
    time: float
    protocol: int
    key: str = ""
    root: str = ""
    findings: tuple[str, ...] = ()


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One node manager.

    Attributes
    ----------
    url : str
        Address of its REST server; empty if it was never reached.
    links : str
        Address of its links, ``tcp://host:port``.
    state : str
        ``alive``, ``draining`` (it takes no sessions, and ends), ``drained`` (it has given all sessions away, and its
        process has ended or is about to), ``suspect`` (silent for longer than expected) or ``lost``.
    sessions : int
        Sessions that run on it.
    started : float
        When its process was started, in seconds since the epoch.
    island : str
        Its island, in the answer of a master.
    text : str
        Why it is not alive.
    """

    name: str
    url: str = ""
    links: str = ""
    incarnation: int = 0
    state: Literal["alive", "draining", "drained", "suspect", "lost"] = "alive"
    version: str = ""
    host: str = ""
    sessions: int = 0
    started: float = 0.0
    island: str = ""
    text: str = ""
    load: Load = Load()


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A direct child of an island (a node) or of a master (an island)."""

    name: str
    url: str
    role: Role
    state: Literal["alive", "drained", "suspect", "lost"] = "alive"
    text: str = ""


class ChildRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The manager to add as a child."""

    url: Annotated[str, Meta(min_length=8, max_length=1024)]


class ProbeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The addresses that a manager probes.

    Attributes
    ----------
    addresses : tuple of str
        ``tcp://host:port`` of a node's links, ``http://host:port`` of a manager.
    seconds : float
        How long the whole probe may take.
    """

    addresses: Annotated[
        tuple[
            Annotated[
                str,
                Meta(
                    max_length=300,
                    pattern=r"^(tcp|https?)://"
                    r"([A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?\])"
                    r"(:[0-9]{1,5})?(/[A-Za-z0-9_.~-]+)*$",
                ),
            ],
            ...,
        ],
        Meta(min_length=1, max_length=32),
    ]
    seconds: Annotated[float, Meta(ge=0.1, le=10)] = 3.0


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one manager can reach another.

    Attributes
    ----------
    ok : bool
        It answered: links with the handshake of the cluster key, a manager with its `ManagerInfo`.
    name : str
        Name in the answer, which may be another one than expected; empty if there is none.
    seconds : float
        Seconds until the answer.
    skew : float or None
        Seconds by which its clock is ahead of that of the manager that probes; None for links, and without an answer.
    version : str
        Version of its dropflow; empty if it is not known.
    protocol, incarnation : int
        See `ManagerInfo`; 0 if it is not known.
    key : str
        Fingerprint of its cluster key; empty if it has none, or if it is not known.
    code, trouble, hint : str
        Stable code and text of the error, and what to do; empty if it answered.
    """

    address: str
    ok: bool
    name: str = ""
    seconds: float = 0.0
    skew: float | None = None
    version: str = ""
    protocol: int = 0
    incarnation: int = 0
    key: str = ""
    code: str = ""
    trouble: str = ""
    hint: str = ""


class ManagerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a manager to its parent, once per period.

    Attributes
    ----------
    nodes : tuple of NodeInfo
        All node managers at or below it.
    sessions : tuple of SessionInfo
        The sessions that are not over.
    finished : tuple of SessionVersion
        The sessions that are over. A parent that does not have these versions asks for the sessions.
    """

    info: ManagerInfo
    nodes: tuple[NodeInfo, ...]
    sessions: tuple[SessionInfo, ...] = ()
    finished: tuple[SessionVersion, ...] = ()

    @classmethod
    def of(cls, info: ManagerInfo, nodes: Sequence[NodeInfo], sessions: Sequence[SessionInfo]) -> "ManagerStatus":
        """Return the status of a manager that has all these sessions."""
        return cls(
            info=info,
            nodes=tuple(nodes),
            sessions=tuple(session for session in sessions if not session.is_over),
            finished=tuple(
                SessionVersion(session=session.session, epoch=session.epoch, version=session.version)
                for session in sessions
                if session.is_over
            ),
        )


def manager_info(
    name: str,
    role: Role,
    *,
    url: str,
    started: float,
    clock: Clock,
    protocol: int,
    incarnation: int | None = None,
    key: str = "",
    root: str = "",
    findings: tuple[str, ...] = (),
) -> ManagerInfo:
    """Return the record of this process. Its incarnation is by default the time of its start, in microseconds."""
    return ManagerInfo(
        name=name,
        role=role,
        url=url,
        version=__version__,
        host=socket.gethostname(),
        process=os.getpid(),
        incarnation=int(started * 1e6) if incarnation is None else incarnation,
        started=started,
        time=clock.now(),
        protocol=protocol,
        key=key,
        root=root,
        findings=findings,
    )


class LoadSample(msgspec.Struct, frozen=True, array_like=True):
    """The load of a host at one time; in JSON an array in this order.

    Attributes
    ----------
    time : float
        Seconds since the epoch.
    processor : float
        Use of all processors, per cent.
    memory, disk : int
        Bytes in use.
    received, sent : int
        Bytes over all network interfaces but the local one, since the host was started.
    sessions, running : int
        Sessions that run, and attempts that run in workers or threads.
    """

    time: float
    processor: float
    memory: int
    disk: int
    received: int
    sent: int
    sessions: int
    running: int


class NodeHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a node during the last hour: a sample every `every` seconds, the oldest one first."""

    node: str
    every: float
    samples: tuple[LoadSample, ...] = ()


# The hosts of node managers: several of them on one host share its processors, which count once.


def cores_of_hosts(nodes: Iterable[NodeInfo]) -> dict[str, int]:
    """Return the processors of each host with a node that is not lost: the most that one of its nodes may use.

    A node whose host is not known is a host of its own.
    """
    cores: dict[str, int] = {}
    for node in nodes:
        if node.state != "lost":
            host = node.host or node.name
            cores[host] = max(cores.get(host, 0), node.load.cores)
    return cores
