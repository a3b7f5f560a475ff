"""Discovery of managers without configured addresses, by zeroconf (mDNS).

An announcement is public. It has the name, role, address, incarnation and version of a manager, and the fingerprint of
its cluster key, by which a parent selects the nodes of its own cluster. It proves nothing: the key is verified when the
managers connect. A process announces and listens only on the network that its server is bound to.
"""

import ipaddress
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import psutil

from dropflow.api.addresses import EVERYWHERE, http_parts, is_loopback
from dropflow.api.node_records import ManagerInfo, Role
from dropflow.errors import WorldError
from dropflow.ids import safe_name

if TYPE_CHECKING:
    from zeroconf import ServiceInfo, ServiceStateChange, Zeroconf

_log = logging.getLogger("dropflow.discovery")

TYPES: dict[Role, str] = {
    "node": "_dropflow-node._tcp.local.",
    "island": "_dropflow-island._tcp.local.",
    "master": "_dropflow-master._tcp.local.",
    "daemon": "_dropflow-daemon._tcp.local.",
    # Names of services have at most 15 characters.
    "translator": "_dropflow-tm._tcp.local.",
}
DALIUGE_TYPES: dict[Role, str] = {"node": "_NodeManager._tcp.local.", "island": "_DIM._tcp.local."}

_ASK_MILLISECONDS = 3000
"""Milliseconds that zeroconf may ask for the address of a service that it has found."""
_DALIUGE_NAME_CHARACTERS = 15
"""Characters of the name of the host that are announced to DALiuGE's managers."""


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """The public description of a manager, without secrets.

    Attributes
    ----------
    url : str
        Address of its REST server.
    incarnation : int
        Distinguishes this process from earlier ones of the same name.
    key : str
        Fingerprint of its cluster key; empty without one.
    """

    name: str
    role: Role
    url: str
    incarnation: int = 0
    version: str = ""
    key: str = ""

    @classmethod
    def of(cls, info: ManagerInfo) -> "Announcement":
        """Return the public part of the description of a manager."""
        return cls(
            name=info.name,
            role=info.role,
            url=info.url,
            incarnation=info.incarnation,
            version=info.version,
            key=info.key,
        )


class Discovery:
    """Announces managers and finds others, until it is closed.

    Parameters
    ----------
    host : str
        Address to which the server of this process is bound. It determines the network interfaces that are used.

    Raises
    ------
    WorldError
        Multicast cannot be used here.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        from zeroconf import IPVersion, Zeroconf  # noqa: PLC0415 - slow import, needed only with discovery

        self._host = host
        try:
            self._zeroconf: Zeroconf = Zeroconf(interfaces=interfaces_of(host), ip_version=IPVersion.V4Only)
        except OSError as error:
            raise WorldError(
                f"managers cannot find each other on {host}: {error.strerror or error}",
                hint="name them with --nodes or --islands instead",
            ) from error
        self._threads: list[threading.Thread] = []
        self._browsers: list[Any] = []
        self._closed = threading.Event()

    def announce(self, announcement: Announcement, *, daliuge: bool = False) -> None:
        """Start to announce a manager, without waiting for the network.

        Parameters
        ----------
        daliuge : bool
            Whether to announce it also under the name that DALiuGE gives to such a manager.
        """
        infos = [self._service(announcement)]
        if daliuge and announcement.role in DALIUGE_TYPES:
            infos.append(self._daliuge(announcement))
        # zeroconf takes more than a second to check that a name is free.
        thread = threading.Thread(
            target=self._register, args=(infos,), name=f"announce:{announcement.name}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def browse(self, role: Role, joined: Callable[[Announcement], None], left: Callable[[Announcement], None]) -> None:
        """Call back when managers appear, change or disappear, in a separate thread.

        Parameters
        ----------
        joined : callable
            Gets each manager that appears, or changes its announcement.
        left : callable
            Gets each manager that withdrew its announcement, or whose announcement expired.
        """
        from zeroconf import ServiceBrowser  # noqa: PLC0415 - see `__init__`

        listener = _Listener(role, joined, left)
        self._browsers.append(ServiceBrowser(self._zeroconf, TYPES[role], handlers=[listener.handle]))

    def settle(self) -> None:
        """Wait until all announcements so far are registered."""
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """Withdraw the announcements and stop listening. Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        self.settle()
        self._zeroconf.close()

    def _register(self, infos: "list[ServiceInfo]") -> None:
        from zeroconf import Error  # noqa: PLC0415 - see `__init__`

        for info in infos:
            try:
                self._zeroconf.register_service(info)
            except (Error, OSError) as error:
                if not self._closed.is_set():
                    _log.warning("%s cannot be announced: %s: %s", info.name, type(error).__name__, error)

    def _service(self, announcement: Announcement) -> "ServiceInfo":
        # Each process has its own name, so that the record of a killed one, until it expires, does not conflict.
        process = f"{announcement.incarnation & 0xFFFFFF:06x}"
        name = f"{safe_name(announcement.name)[:40]}-{process}"
        fields = {key: str(value) for key, value in msgspec.structs.asdict(announcement).items()}
        return self._info(TYPES[announcement.role], name, announcement.url, fields)

    def _daliuge(self, announcement: Announcement) -> "ServiceInfo":
        name = socket.gethostname()[:_DALIUGE_NAME_CHARACTERS]
        return self._info(DALIUGE_TYPES[announcement.role], name, announcement.url, {})

    def _info(self, kind: str, name: str, url: str, fields: dict[str, str]) -> "ServiceInfo":
        from zeroconf import ServiceInfo  # noqa: PLC0415 - see `__init__`

        parts = urlsplit(url)
        return ServiceInfo(
            kind,
            f"{name}.{kind}",
            port=parts.port or 80,
            properties=fields,
            server=f"{safe_name(socket.gethostname())}.local.",
            parsed_addresses=_addresses(self._host),
        )


class _Listener:
    """Converts events of zeroconf into announcements."""

    def __init__(
        self, role: Role, joined: Callable[[Announcement], None], left: Callable[[Announcement], None]
    ) -> None:
        self._role: Role = role
        self._joined = joined
        self._left = left
        self._known: dict[str, Announcement] = {}

    def handle(self, *, zeroconf: "Zeroconf", service_type: str, name: str, state_change: "ServiceStateChange") -> None:
        """Process a change of one service; the parameters have zeroconf's names."""
        if state_change.name == "Removed":
            self._removed(name)
        else:
            self._seen(zeroconf, service_type, name)

    def _seen(self, zeroconf: "Zeroconf", service_type: str, name: str) -> None:
        from zeroconf import Error  # noqa: PLC0415 - see `Discovery.__init__`

        info = None
        with suppress(Error):  # any process of the network may announce a name that cannot be one
            info = zeroconf.get_service_info(service_type, name, timeout=_ASK_MILLISECONDS)
        announcement = None if info is None else _read(self._role, info)
        if announcement is None:
            _log.warning("the zeroconf record of %s, announced as a %s, is not valid", name, self._role)
        elif self._known.get(name) != announcement:
            self._known[name] = announcement
            self._call(self._joined, announcement)

    def _removed(self, name: str) -> None:
        announcement = self._known.pop(name, None)
        if announcement is not None:
            self._call(self._left, announcement)

    def _call(self, callback: Callable[[Announcement], None], announcement: Announcement) -> None:
        try:
            callback(announcement)
        except Exception:  # noqa: BLE001 - see below
            # An exception here would end the thread, and with it discovery.
            _log.exception("%s %s was found, but processing it failed", announcement.role, announcement.name)


def interfaces_of(host: str) -> list[str]:
    """Return the IPv4 addresses of the interfaces on which a server bound to `host` can be reached.

    For a server on loopback these are only loopback; for a server on all addresses, those of all interfaces.
    """
    if not host or host in EVERYWHERE:
        all_addresses = (address for addresses in psutil.net_if_addrs().values() for address in addresses)
        return sorted(
            {"127.0.0.1", *(address.address for address in all_addresses if address.family is socket.AF_INET)}
        )
    if is_loopback(host):
        return ["127.0.0.1"]
    return [_numeric(host)]


def _addresses(host: str) -> list[str]:
    addresses = interfaces_of(host)
    beyond = [address for address in addresses if not is_loopback(address)]
    return beyond or addresses


def _numeric(host: str) -> str:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        try:
            return socket.gethostbyname(host)
        except OSError as error:
            raise WorldError(f"{host} has no IPv4 address: {error.strerror}", hint="give --host an address") from error
    return host


def _read(role: Role, info: "ServiceInfo") -> Announcement | None:
    """Return the announcement in a record from the network (which is untrusted); None if it is not valid."""
    try:
        fields = {key.decode(): (value or b"").decode() for key, value in info.properties.items()}
        announcement = msgspec.convert(fields | {"role": role}, Announcement, strict=False)
    except (UnicodeDecodeError, msgspec.ValidationError):
        return None
    return None if http_parts(announcement.url) is None else announcement
