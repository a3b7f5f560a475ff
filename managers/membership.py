"""Membership: which processes are present, silent or lost. A pure state machine over a clock that is passed in.

The owner of a `Membership` calls `handle` with each event and its time, gets the changes, and calls it again at
`deadline`.

::

                Join              Received               silence               silence
    (unknown) ───────▶ JOINED ───────────────▶ ALIVE ───────────────▶ SUSPECT ─────────▶ LOST
                          │                      ▲        Received       │                │ ▲
                          │                      └───────────────────────┘           Join │ │ no message
                          └───────────────────────────────────────────────────────────────┼─┘ in time
                                          Leave from anywhere ▶ LEFT ─── Join of a newer ─┘▶ JOINED

Silence may be that of a slow network. If the host of a member refuses connections to it, no process listens there: then
a fifth of the time is enough. Only repeated refusals count, never silence.

The *incarnation* of a process grows with each start. Events of an older incarnation are ignored. A newer one replaces
the older, which is lost without waiting for its silence. A lost member that was only out of reach may join again under
the same incarnation. A message from it is not enough for that: it must pass the handshake, in which the epoch of a
session keeps it from continuing work that was given up. A member that left stays away until it starts again.
"""

from collections.abc import Mapping
from enum import Enum
from math import inf
from types import MappingProxyType

import msgspec

SUSPECT_AFTER = 3.0
"""Seconds of silence after which a peer is suspect, unless options give another time."""
LOST_AFTER = 15.0
"""Seconds of silence after which a peer is lost, and its work is given up, unless options give another time."""
_REFUSED_SHARE = 5
"""Divisor of the time after which a peer is lost if it refuses connections: by default 3 s are left."""


class MemberState(Enum):
    """State of a member."""

    JOINED = "joined"
    """Announced; no message was received yet."""
    ALIVE = "alive"
    SUSPECT = "suspect"
    """Silent for `suspect_after` seconds."""
    LOST = "lost"
    """Silent for `lost_after` seconds: its work is given up."""
    LEFT = "left"
    """Announced its end."""

    @property
    def is_present(self) -> bool:
        """Whether the member may still answer."""
        return self not in (MemberState.LOST, MemberState.LEFT)


class Join(msgspec.Struct, frozen=True):
    """A process was announced, or passed the handshake."""

    name: str
    incarnation: int
    address: str = ""


class Received(msgspec.Struct, frozen=True):
    """A message from this incarnation of a member was received."""

    name: str
    incarnation: int


class Probed(msgspec.Struct, frozen=True):
    """A connection to a member was tried: whether its host refused it."""

    name: str
    is_refused: bool


class Leave(msgspec.Struct, frozen=True):
    """A member announced its end."""

    name: str
    incarnation: int
    reason: str = ""


class Tick(msgspec.Struct, frozen=True):
    """Time has passed."""


class Member(msgspec.Struct, frozen=True):
    """One member.

    Attributes
    ----------
    last_received : float
        When its last message came, or when it joined.
    since : float
        When its state began.
    refused_since : float
        Since when its host refuses all connections to it; infinity if it does not.
    """

    name: str
    incarnation: int
    address: str
    state: MemberState
    last_received: float
    since: float
    refused_since: float = inf


class Change(msgspec.Struct, frozen=True):
    """A member changed its state, or its incarnation. `before` is None for a new member."""

    before: Member | None
    after: Member
    reason: str


class Membership:
    """The members known to one process.

    Parameters
    ----------
    suspect_after : float
        Seconds of silence after which an ALIVE member is SUSPECT.
    lost_after : float
        Seconds of silence after which a member is LOST; more than `suspect_after`.
    """

    def __init__(self, *, suspect_after: float = SUSPECT_AFTER, lost_after: float = LOST_AFTER) -> None:
        if not 0 < suspect_after < lost_after:
            raise ValueError(f"0 < suspect_after < lost_after, not {suspect_after} and {lost_after}")
        self._suspect_after = suspect_after
        self._lost_after = lost_after
        self._members: dict[str, Member] = {}

    @property
    def members(self) -> Mapping[str, Member]:
        """All members by name, also lost and left ones: a read-only view."""
        return MappingProxyType(self._members)

    def handle(self, event: Join | Received | Probed | Leave | Tick, now: float) -> list[Change]:
        """Process one event at time `now` (seconds, which never decrease), and return the changes in order.

        Deadlines that have passed by `now` are judged first, so that the changes do not depend on how often this is
        called.
        """
        changes = self._judge(now)
        match event:
            case Join():
                changes += self._join(event, now)
            case Received():
                changes += self._receive(event, now)
            case Probed():
                changes += self._probe(event, now)
            case Leave():
                changes += self._leave(event, now)
            case Tick():
                pass
        return changes

    def deadline(self) -> float:
        """Return when to call `handle` with `Tick` at the latest; infinity if never."""
        return min((self._due(member) for member in self._members.values()), default=inf)

    def forget(self, name: str) -> None:
        """Remove a member that is LOST or LEFT; others stay."""
        member = self._members.get(name)
        if member is not None and not member.state.is_present:
            del self._members[name]

    def _due(self, member: Member) -> float:
        match member.state:
            case MemberState.ALIVE:
                return member.last_received + self._suspect_after
            case MemberState.JOINED | MemberState.SUSPECT:
                return member.last_received + self._lost_after
            case _:
                return inf

    def _judge(self, now: float) -> list[Change]:
        changes: list[Change] = []
        for member in list(self._members.values()):
            while (due := self._due(member)) <= now:
                silence = f"silent for {due - member.last_received:g} s"
                if member.state is MemberState.ALIVE:
                    changes.append(self._move(member, MemberState.SUSPECT, due, silence))
                elif member.state is MemberState.JOINED:
                    changes.append(self._move(member, MemberState.LOST, due, f"never answered, {silence}"))
                else:
                    changes.append(self._move(member, MemberState.LOST, due, silence))
                member = self._members[member.name]  # noqa: PLW2901 - judge the new state too
        return changes

    def _join(self, event: Join, now: float) -> list[Change]:
        known = self._members.get(event.name)
        if known is not None and event.incarnation < known.incarnation:
            return []
        if known is not None and event.incarnation == known.incarnation:
            if known.state is MemberState.LEFT:
                return []
            if known.state is not MemberState.LOST:
                self._members[known.name] = msgspec.structs.replace(known, address=event.address or known.address)
                return []
        changes = []
        if known is not None and known.incarnation < event.incarnation and known.state.is_present:
            changes.append(self._move(known, MemberState.LOST, now, "started again"))
            known = self._members[event.name]
        state, address = MemberState.JOINED, event.address or (known.address if known else "")
        joined = Member(event.name, event.incarnation, address, state, now, now)
        self._members[event.name] = joined
        return [*changes, Change(known, joined, "joined" if known is None else "joined again")]

    def _receive(self, event: Received, now: float) -> list[Change]:
        known = self._members.get(event.name)
        if known is None or known.incarnation != event.incarnation or not known.state.is_present:
            return []
        self._members[known.name] = received = msgspec.structs.replace(known, last_received=now, refused_since=inf)
        if known.state is MemberState.ALIVE:
            return []
        reason = "answered for the first time" if known.state is MemberState.JOINED else "answered again"
        return [self._move(received, MemberState.ALIVE, now, reason, before=known)]

    def _probe(self, event: Probed, now: float) -> list[Change]:
        known = self._members.get(event.name)
        if known is None or not known.state.is_present:
            return []
        since = min(known.refused_since, now) if event.is_refused else inf
        self._members[known.name] = probed = msgspec.structs.replace(known, refused_since=since)
        if now - since < self._lost_after / _REFUSED_SHARE:
            return []
        text = f"its host refuses connections, silent for {now - known.last_received:.0f} s"
        return [self._move(probed, MemberState.LOST, now, text, before=known)]

    def _leave(self, event: Leave, now: float) -> list[Change]:
        known = self._members.get(event.name)
        if known is None or known.incarnation != event.incarnation or not known.state.is_present:
            return []
        return [self._move(known, MemberState.LEFT, now, event.reason or "left")]

    def _move(
        self, member: Member, state: MemberState, now: float, reason: str, *, before: Member | None = None
    ) -> Change:
        after = msgspec.structs.replace(member, state=state, since=now)
        self._members[member.name] = after
        return Change(before or member, after, reason)
