"""Tickets: each signs one browser in at this server, once, within a short time (ADR 0020).

A ticket is a random number that this server made and remembers. Others get one by a request that is signed with the
cluster key, or that carries the token. So it is of no use at another server or after a restart, and clocks of two hosts
are never compared.
"""

import math
import secrets
import threading
from enum import Enum
from typing import Annotated

import msgspec
from msgspec import Meta

from dropflow.api.client import Client
from dropflow.api.operations import Operation
from dropflow.api.signing import UserKey
from dropflow.clock import Clock, SystemClock
from dropflow.errors import HttpError

LONGEST = 600.0
"""Seconds that a ticket may be valid."""

_USUAL_SECONDS = 60.0
"""Seconds that a ticket is valid, if the caller gives no other time."""
_MOST_TICKETS = 1000
"""Tickets that wait for their use."""
_ANSWER_SECONDS = 5.0
"""Seconds in which a server must answer with a ticket."""


class Permission(Enum):
    """The rights of a browser that signs in."""

    NONE = "nothing"
    READ = "read"
    CHANGE = "read and change"


class TicketRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds that the ticket may wait for its use, and whether the browser may only read."""

    seconds: Annotated[float, Meta(gt=0, le=LONGEST)] = _USUAL_SECONDS
    read_only: bool = False


class TicketReply(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket; empty from a server that needs no credential.

    Attributes
    ----------
    url : str
        Address at which browsers reach the server, if that is not the one of the request.
    """

    ticket: str
    seconds: float
    url: str = ""


TICKET = Operation(
    name="ticket",
    method="POST",
    path="/api/v1/tickets",
    answer=TicketReply,
    body=TicketRequest,
    summary="A ticket that signs one browser in here, once.",
    to="server",
    errors=(HttpError,),
)


class Tickets:
    """The tickets of one server that were not used yet. May be used from any thread.

    Parameters
    ----------
    clock : Clock, optional
        The system's unless given.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        # Two threads of the server may get the same ticket at the same time, and only one of them may accept it.
        self._mutex = threading.Lock()
        self._valid: dict[str, tuple[float, bool]] = {}

    def issue(self, seconds: float = _USUAL_SECONDS, *, read_only: bool = False) -> str:
        """Return a new ticket.

        Raises
        ------
        HttpError
            503: too many tickets wait for their use.
        """
        ticket, now = secrets.token_urlsafe(32), self._clock.monotonic()
        with self._mutex:
            self._valid = {known: issued for known, issued in self._valid.items() if issued[0] > now}
            if len(self._valid) >= _MOST_TICKETS:
                raise HttpError(503, "too many tickets wait for their use", hint="ask again in a minute")
            self._valid[ticket] = now + seconds, read_only
        return ticket

    def redeem(self, ticket: str) -> Permission:
        """Return what a browser may do with the ticket, which is not valid any more afterwards."""
        # A dict compares hashes first, which depend on a secret of the process: the time of a lookup does not depend on
        # how much of a ticket is right.
        with self._mutex:
            end, read_only = self._valid.pop(ticket, (-math.inf, False))
        if self._clock.monotonic() >= end:
            return Permission.NONE
        return Permission.READ if read_only else Permission.CHANGE


def request_ticket(
    url: str,
    *,
    token: str | None = None,
    secret: bytes | UserKey | None = None,
    seconds: float = _USUAL_SECONDS,
    read_only: bool = False,
) -> str:
    """Return a ticket of the server at `url`; raises as `ticket_reply`."""
    return ticket_reply(url, token=token, secret=secret, seconds=seconds, read_only=read_only).ticket


def ticket_reply(
    url: str,
    *,
    token: str | None = None,
    secret: bytes | UserKey | None = None,
    seconds: float = _USUAL_SECONDS,
    read_only: bool = False,
) -> TicketReply:
    """Return the answer of the server at `url`, which must come within a few seconds, to a request for a ticket.

    Raises
    ------
    DropflowError
        It cannot be reached, or refuses the credential.
    """
    with Client(url, token=token, secret=secret, timeout=_ANSWER_SECONDS) as client:
        return client.call(TICKET, request=TicketRequest(seconds=seconds, read_only=read_only))
