"""Tickets: each signs one browser in at this server, once, within a short time (ADR 0020).

A ticket is a random number that this server made and remembers. Others get one by a request that is signed with the
cluster key, or that carries the token. So it is of no use at another server or after a restart, and clocks of two hosts
are never compared.
"""

import secrets
import threading
from typing import Annotated

import msgspec
from msgspec import Meta

from dropflow.clock import Clock, SystemClock
from dropflow.errors import HttpError
from dropflow.rest.http_client import HttpTransport
from dropflow.rest.operation_caller import OperationCaller
from dropflow.rest.operations import Operation

__all__ = ["LONGEST", "TICKET", "TicketReply", "TicketRequest", "Tickets", "request_ticket"]

LONGEST = 600.0
"""Seconds that a ticket may be valid."""

_USUAL = 60.0
_MOST = 1000
_PATIENCE = 5.0


class TicketRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many seconds the ticket may wait for its use."""

    seconds: Annotated[float, Meta(gt=0, le=LONGEST)] = _USUAL


class TicketReply(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket; empty from a server that needs no credential."""

    ticket: str
    seconds: float


TICKET = Operation(
    name="ticket",
    method="POST",
    path="/api/v1/tickets",
    answer=TicketReply,
    body=TicketRequest,
    summary="A ticket that signs one browser in here, once.",
    tag="login",
    for_managers=False,
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
        self._ends: dict[str, float] = {}

    def issue(self, seconds: float = _USUAL) -> str:
        """Return a new ticket.

        Raises
        ------
        HttpError
            503: too many tickets wait for their use.
        """
        ticket, now = secrets.token_urlsafe(32), self._clock.monotonic()
        with self._mutex:
            self._ends = {known: end for known, end in self._ends.items() if end > now}
            if len(self._ends) >= _MOST:
                raise HttpError(503, "too many tickets wait for their use", hint="ask again in a minute")
            self._ends[ticket] = now + seconds
        return ticket

    def redeem(self, ticket: str) -> bool:
        """Return whether the ticket is valid; it is not valid any more afterwards."""
        # A dict compares hashes first, which depend on a secret of the process: the time says nothing about tickets.
        with self._mutex:
            end = self._ends.pop(ticket, None)
        return end is not None and self._clock.monotonic() < end


def request_ticket(url: str, *, token: str | None = None, secret: bytes | None = None, seconds: float = _USUAL) -> str:
    """Return a ticket of the server at `url`, which must answer within a few seconds.

    Raises
    ------
    DropflowError
        It cannot be reached, or refuses the credential.
    """
    transport = HttpTransport(url, token=token, secret=secret, timeout=_PATIENCE)
    try:
        return OperationCaller(transport).call(TICKET, body=TicketRequest(seconds=seconds)).ticket
    finally:
        transport.close()
