"""What the doctor sees: managers, the ways between them, and what is wrong."""

from typing import Literal

import msgspec

from dropflow.rest.schema import Child, ManagerInfo, NodeInfo, ProbeResult

__all__ = ["Finding", "Sight", "Way"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong: where, what, and what to do."""

    where: str
    text: str
    hint: str


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one manager.

    Attributes
    ----------
    url : str
        Where it was asked.
    info : ManagerInfo or None
        What it says about itself; None if it did not answer.
    skew : float
        Seconds by which its clock is ahead of the clock here.
    delay : float
        Seconds that it took to answer.
    children, nodes : tuples
        What it sees below itself.
    links : str
        Why the port of its links cannot be reached from here; empty if it can, or if it has none.
    code, trouble, hint : str
        Stable code of the error, why it did not answer, and what to do.
    mute : str
        Why it did not tell what it reaches of the others; empty if it did, or was not asked.
    """

    url: str
    info: ManagerInfo | None = None
    skew: float = 0.0
    delay: float = 0.0
    children: tuple[Child, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    links: str = ""
    code: str = ""
    trouble: str = ""
    hint: str = ""
    mute: str = ""


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """The way from one manager to another, as the first one found it.

    Attributes
    ----------
    near, far : str
        URLs of the manager that tried and of the one that it meant.
    means : str
        ``links`` between nodes, ``rest`` for requests.
    reach : ProbeResult
        What became of it.
    """

    near: str
    far: str
    means: Literal["links", "rest"]
    reach: ProbeResult
