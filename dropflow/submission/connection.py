"""The manager that a command connects to, and its credentials.

The manager is that of ``--to`` or DROPFLOW_URL, else the one that runs on this host; of managers that were started
together, the topmost. The credential is ``--token`` or DROPFLOW_TOKEN, else the token in the record of a manager on
this host, else a signature with the cluster key, which works on every host of the cluster. If the key of a user is
named, it comes before the token in a record: a user who names a key asks to act as that user.
"""

from pathlib import Path

from dropflow.api.addresses import http_parts
from dropflow.api.client import Client
from dropflow.api.node_records import MANAGER_ROLES
from dropflow.api.operations import INFO
from dropflow.api.patience import PatientClient
from dropflow.api.signing import UserKey, default_key_file
from dropflow.errors import NoManagerError, UsageError
from dropflow.submission.manager_records import ManagerRecord, record_for, records_here
from dropflow.submission.options import ConnectionOptions
from dropflow.web.tickets import TicketReply, ticket_reply
from managers.keys import ClusterKey, load_any

_REQUEST_SECONDS = 30.0
"""Seconds in which a manager must answer a request, if the command gives no other time."""


def connect_to(url: str, manager: ConnectionOptions, *, timeout: float = _REQUEST_SECONDS) -> Client:
    """Return a client for the manager at `url`, with the credential that the options or this host have for it.

    A token of the options is sent only to the manager that they name.
    """
    token, secret = _credential(url, manager)
    return Client(url, token=token, secret=secret, timeout=timeout)


def patient(client: Client, manager: ConnectionOptions, seconds: float) -> PatientClient:
    """Return a client that asks the manager of `client` again while it is away; the next connections are its own.

    Raises
    ------
    LinkError
        The manager does not answer a short question in this time, if that is less than any request may take.
    """
    left = [client]
    patient_client = PatientClient(lambda: left.pop() if left else connect_to(client.url, manager), seconds=seconds)
    if seconds < _REQUEST_SECONDS:
        patient_client.ask(lambda connected: connected.within(max(seconds / 2, 1.0)).call(INFO))
    return patient_client


def ticket_of(url: str, manager: ConnectionOptions, *, seconds: float, read_only: bool = False) -> TicketReply:
    """Return a ticket that signs a browser in at the manager at `url`, got with the credential of `connect_to`.

    Raises
    ------
    DropflowError
        The manager cannot be reached, or refuses the credential.
    """
    token, secret = _credential(url, manager)
    return ticket_reply(url, token=token, secret=secret, seconds=seconds, read_only=read_only)


def manager_url(manager: ConnectionOptions) -> str:
    """Return the address of the manager that the options name.

    Raises
    ------
    UsageError
        As `ConnectionOptions.connect`.
    """
    if manager.url:
        return _checked(manager.url)
    records = [record for record in records_here() if record.role in MANAGER_ROLES]
    if not records:
        raise NoManagerError(
            "no manager is named, and none runs on this host",
            hint="start one with 'dropflow up', name one with --to URL or DROPFLOW_URL, or run a graph without any: "
            "'dropflow run GRAPH'",
        )
    top = _topmost(records)
    if len(top) > 1:
        urls = ", ".join(f"{record.url} ({record.role} {record.name})" for record in top)
        raise UsageError(f"several managers run on this host: {urls}", hint="choose one with --to URL or DROPFLOW_URL")
    return top[0].url


def _topmost(records: list[ManagerRecord]) -> list[ManagerRecord]:
    """Return the highest of the managers that were started together, and all that were started alone."""
    best: dict[str, ManagerRecord] = {}
    for record in records:
        group = record.group or record.url
        if group not in best or MANAGER_ROLES.index(record.role) < MANAGER_ROLES.index(best[group].role):
            best[group] = record
    return list(best.values())


def _checked(url: str) -> str:
    address = url if "://" in url else f"http://{url}"
    parts = http_parts(address)
    if parts is None or " " in parts.netloc or not parts.netloc.isprintable() or parts.path.strip("/"):
        raise UsageError(f"{url!r} is not a manager URL", hint="an example is http://localhost:8002")
    return f"{parts.scheme}://{parts.netloc}"


def _same(first: str, second: str) -> bool:
    return _checked(first).lower() == _checked(second).lower()


def _credential(url: str, manager: ConnectionOptions) -> tuple[str | None, bytes | UserKey | None]:
    """Return the token, or the key that signs requests, for the manager at `url`."""
    if manager.token and (manager.url is None or _same(url, manager.url)):
        return manager.token, None
    named = load_any(Path(manager.key)) if manager.key else None
    if isinstance(named, UserKey):
        return None, named
    if named is None and manager.tunnel is not None and manager.tunnel.secret is not None:
        return None, manager.tunnel.secret
    record = record_for(url)
    if record is not None:
        return record.token, None
    path = default_key_file()
    key = named or (load_any(path) if path.exists() else None)
    return None, key.secret if isinstance(key, ClusterKey) else key
