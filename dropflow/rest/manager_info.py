"""The record with which managers, daemons and translators describe themselves."""

import os
import socket

from dropflow.clock import Clock
from dropflow.rest.manager_records import ManagerInfo, Role
from dropflow.version import __version__

__all__ = ["manager_info"]


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
