"""The options that name a manager, and those of the commands that start one; without the commands' own modules."""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from dropflow.api.client import Client
    from dropflow.cli.jobs.login import LoginTunnel


class ConnectionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that name a manager; `tunnel` is the ssh that leads there, and may have its key."""

    url: str | None = None
    token: str | None = None
    key: str | None = None
    tunnel: "LoginTunnel | None" = None

    def connect(self, *, timeout: float = 30.0) -> "Client":
        """Return a client for the manager that the options name. Nothing is sent yet.

        Raises
        ------
        NoManagerError
            No manager is named, and none runs on this host.
        UsageError
            There are several; the address is malformed; the key cannot be used.
        """
        from dropflow.cli.connection import connect_to, manager_url

        return connect_to(manager_url(self), self, timeout=timeout)


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that all server processes share; see their help."""

    host: str = "127.0.0.1"
    port: int = 0
    advertise: str = ""
    name: str = ""
    root: str | None = None
    key: str | None = None
    no_auth: bool = False
    token_file: str | None = None
    allow_host: tuple[str, ...] = ()
    allow_origin: tuple[str, ...] = ()
    public_url: str = ""
    translator: tuple[str, ...] = ()
    new_token: bool = False
    watch_parent: int | None = None
    group: str = ""
    log_level: str = "info"
    log_file: str | None = None
    log_json: bool = False


class DiscoverOptions(msgspec.Struct, frozen=True):
    """Whether a manager announces itself and finds others by zeroconf; whether also under DALiuGE's names."""

    discover: bool = False
    daliuge_names: bool = False
