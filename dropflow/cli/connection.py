"""Which manager a command asks, and how it proves that it may.

The manager: ``--to`` or DROPFLOW_URL, else the one that runs on this host; of those started together, the topmost.
The proof: ``--token`` or DROPFLOW_TOKEN, else the token that a manager on this host has left for its owner, else a
signature with the cluster key, which works from every host of the cluster.
"""

from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from dropflow.cli.paths import default_key
from dropflow.cli.records import ManagerRecord, record_for, records_here
from dropflow.errors import UsageError
from dropflow.rest.client import Client

__all__ = ["Target", "connect", "connect_to", "manager_url"]

_RANK = ("master", "island", "node")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say about the manager to ask."""

    url: str | None = None
    token: str | None = None
    key: str | None = None


def connect(target: Target, *, timeout: float = 30.0) -> Client:
    """A client for the manager that is meant. Nothing is sent yet.

    Raises
    ------
    UsageError
        No manager is named and none is found, or there are several; the address is malformed; the key cannot be used.
    """
    return connect_to(manager_url(target), target, timeout=timeout)


def connect_to(url: str, target: Target, *, timeout: float = 30.0) -> Client:
    """A client for the manager at `url`, with the proof that `target` and this host have for it.

    A token that was given by hand is for the manager that was named: no other one is told it.
    """
    if target.token and (target.url is None or _same(url, target.url)):
        return Client(url, token=target.token, timeout=timeout)
    record = record_for(url)
    if record is not None:
        return Client(url, token=record.token, timeout=timeout)
    return Client(url, secret=_secret(target), timeout=timeout)


def manager_url(target: Target) -> str:
    """Address of the manager that is meant.

    Raises
    ------
    UsageError
        As `connect`.
    """
    if target.url:
        return _checked(target.url)
    found = [record for record in records_here() if record.role in _RANK]
    if not found:
        raise UsageError(
            "no manager is named, and none runs on this host",
            hint="start one with 'dropflow up', or name one with --to URL or DROPFLOW_URL",
        )
    top = _topmost(found)
    if len(top) > 1:
        urls = ", ".join(f"{record.url} ({record.role} {record.name})" for record in top)
        raise UsageError(f"several managers run on this host: {urls}", hint="choose one with --to URL or DROPFLOW_URL")
    return top[0].url


def _topmost(found: list[ManagerRecord]) -> list[ManagerRecord]:
    """Of managers that were started together the highest, and all that were started alone."""
    best: dict[str, ManagerRecord] = {}
    for record in found:
        group = record.group or record.url
        if group not in best or _RANK.index(record.role) < _RANK.index(best[group].role):
            best[group] = record
    return list(best.values())


def _checked(url: str) -> str:
    whole = url if "://" in url else f"http://{url}"
    parts = urlsplit(whole)
    try:
        port = parts.port
    except ValueError:
        port = -1
    is_host = bool(parts.hostname) and " " not in parts.netloc and parts.netloc.isprintable()
    if parts.scheme not in ("http", "https") or not is_host or port == -1 or parts.path.strip("/"):
        raise UsageError(f"{url!r} is no address of a manager", hint="it looks like http://HOST:PORT")
    return f"{parts.scheme}://{parts.netloc}"


def _same(one: str, other: str) -> bool:
    return _checked(one).lower() == _checked(other).lower()


def _secret(target: Target) -> bytes | None:
    from managers.keys import load

    path = Path(target.key) if target.key else default_key()
    if target.key is None and not path.exists():
        return None
    return load(path).secret
