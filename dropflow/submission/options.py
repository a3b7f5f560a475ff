"""The options that name a manager. Importing them is quick, so that commands can declare them."""

import os
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from dropflow.api.client import Client


class Tunnel(Protocol):
    """An ssh that leads to a manager, as `dropflow.cli.jobs.login` opens it."""

    @property
    def secret(self) -> bytes | None:
        """The cluster key, if the other end has one."""
        ...

    def wait(self) -> None:
        """Wait until the connection is cut."""
        ...


class ConnectionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that name a manager; `tunnel` is the ssh that leads there, and may have its key."""

    url: str | None = None
    token: str | None = None
    key: str | None = None
    tunnel: Tunnel | None = None

    def connect(self, *, timeout: float = 30.0) -> "Client":
        """Return a client for the manager that the options name. Nothing is sent yet.

        Raises
        ------
        NoManagerError
            No manager is named, and none runs on this host.
        UsageError
            There are several; the address is malformed; the key cannot be used.
        """
        from dropflow.submission.connection import connect_to, manager_url

        return connect_to(manager_url(self), self, timeout=timeout)


def environment_connection() -> ConnectionOptions:
    """Return the connection from the environment, for functions and for commands without options for it."""
    names = ("DROPFLOW_URL", "DROPFLOW_TOKEN", "DROPFLOW_KEY")
    url, token, key = (os.environ.get(name) or None for name in names)
    return ConnectionOptions(url=url, token=token, key=key)
