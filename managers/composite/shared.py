"""Objects that all parts of an island or a master share."""

from collections.abc import Callable
from dataclasses import dataclass

from dropflow.api.node_records import Role
from managers.composite.children import Children, MachineTime
from managers.composite.routines import Requests
from managers.composite.session_cache import SessionCache
from managers.composite.witness import Witness


@dataclass(frozen=True)
class Shared:
    """Objects that all parts of an island or a master share.

    Attributes
    ----------
    name, role : str
        Name and role of the island or master.
    time : MachineTime
        The time of the event that is handled.
    cache : SessionCache
        The last answers of the children.
    log : callable
        Writes a warning to the log.
    """

    name: str
    role: Role
    time: MachineTime
    children: Children
    requests: Requests
    cache: SessionCache
    witness: Witness
    log: Callable[[str], None]
