"""The other nodes that sessions here need, and those of them that are lost: a pure state machine over a clock.

How long a peer may be silent is in `managers.membership`.
"""

from collections.abc import Mapping
from math import inf

import msgspec

from dropflow.errors import LinkError, RestartedError
from managers.deployment import Place
from managers.membership import Change, Join, Leave, Membership, MemberState, Probed, Received, Tick
from managers.uptime import Uptime

_READS = 8
"""Number of reads of the links in the time after which a peer is suspect."""


class Loss(msgspec.Struct, frozen=True):
    """All processes of a peer before incarnation `before` are lost; `is_final` if they have ended."""

    peer: str
    before: int
    reason: str
    is_final: bool = False


class PeerMonitor:
    """Judges the peers that sessions need by the time of their last message.

    A peer is judged from `need` on, until `release` was called for every session that needs it. Time in which this
    process did not run itself (it was stopped, or its host was busy) does not count as silence.

    Parameters
    ----------
    node : str
        Name of this node.
    suspect_after, lost_after : float
        Seconds of silence; see `managers.membership.Membership`.
    now : float
        The monotonic time.
    """

    def __init__(self, node: str, *, suspect_after: float, lost_after: float, now: float) -> None:
        self._node = node
        self._members = Membership(suspect_after=suspect_after, lost_after=lost_after)
        self._period = suspect_after / _READS
        self._uptime = Uptime(suspect_after / 2, now)
        self._needed: dict[str, set[str]] = {}
        self._last_received: dict[str, float] = {}
        self._incarnations: Mapping[str, int] = {}
        self._refusals: dict[str, str] = {}
        self._down: set[str] = set()
        """Peers without a connection."""
        self._is_probing = False
        self._next_read = inf

    @property
    def needed(self) -> Mapping[str, set[str]]:
        """The sessions that need each peer."""
        return self._needed

    @property
    def paused(self) -> float:
        """Seconds in which this process did not run."""
        return self._uptime.paused

    def need(self, session: str, places: Mapping[str, Place], now: float) -> list[Loss]:
        """Judge these peers from now on, and return the losses that this update finds."""
        time = self._uptime.read(now)
        changes: list[Change] = []
        for name, place in places.items():
            self._refusals.pop(name, None)
            changes += self._members.handle(Join(name, place.incarnation, place.address), time)
            self._needed.setdefault(name, set()).add(session)
        self._plan(now)
        return self._losses(changes)

    def find_replaced(self, places: Mapping[str, Place]) -> list[Loss]:
        """Return the losses of these processes whose peer was started again since.

        If another session has caused that loss to be reported already, neither `need` nor an update reports it again.
        """
        members, losses = self._members.members, []
        for name, place in places.items():
            known = members[name].incarnation if name in members else 0
            if max(known, self._incarnations.get(name, 0)) > place.incarnation:
                losses.append(Loss(name, place.incarnation + 1, "its process was started again", is_final=True))
        return losses

    def release(self, session: str, now: float) -> list[Loss]:
        """Forget the peers that only this session needs, and return the losses that this update finds. Idempotent."""
        time = self._uptime.read(now)
        changes: list[Change] = []
        for peer in [peer for peer, sessions in self._needed.items() if session in sessions]:
            self._needed[peer].discard(session)
            if self._needed[peer]:
                continue
            del self._needed[peer]
            # The silence of a peer that is not needed must not count when it is needed again.
            member = self._members.members.get(peer)
            if member is not None:
                changes += self._members.handle(Leave(peer, member.incarnation), time)
                self._members.forget(peer)
        self._plan(now)
        return self._losses(changes)

    def update(self, last_received: Mapping[str, tuple[int, float]], now: float) -> list[Loss]:
        """Update the time of the last message from each peer, and return the peers that are lost.

        Parameters
        ----------
        last_received : mapping
            Incarnation of each peer, and the time of its last message.
        now : float
            The monotonic time.
        """
        time = self._uptime.read(now)
        self._incarnations = {name: incarnation for name, (incarnation, _) in last_received.items()}
        changes: list[Change] = []
        for peer, (incarnation, moment) in last_received.items():
            if peer in self._needed and self._last_received.get(peer) != moment:
                self._last_received[peer] = moment
                changes += self._members.handle(Received(peer, incarnation), time)
        changes += self._members.handle(Tick(), time)
        return self._losses(changes)

    def note_connection(self, peer: str, *, is_down: bool | None) -> None:
        """Note that the connection to a peer is broken or cannot be opened, or is open again; None for neither."""
        if is_down:
            self._down.add(peer)
        elif is_down is not None:
            self._down.discard(peer)

    def begin_probe(self) -> dict[str, str]:
        """Begin a probe, until `note_probes` is called: return the addresses of the peers to connect to, by name."""
        if self._is_probing:
            return {}
        members = self._members.members
        addresses = {
            name: members[name].address
            for name in sorted(self._down & self._needed.keys() & members.keys())
            if members[name].state.is_present and members[name].address
        }
        self._is_probing = bool(addresses)
        return addresses

    def note_probes(self, refused: Mapping[str, bool], now: float) -> list[Loss]:
        """Note whether the hosts of peers refused connections, and return the peers that are lost."""
        self._is_probing = False
        time = self._uptime.read(now)
        changes: list[Change] = []
        for peer, is_refused in refused.items():
            changes += self._members.handle(Probed(peer, is_refused), time)
        return self._losses(changes)

    def note_refusal(self, peer: str, reason: str) -> None:
        """Note that a peer refuses links from this process."""
        self._refusals[peer] = reason

    def find_missing(self, places: Mapping[str, Place]) -> dict[str, Place]:
        """Return the peers among these whose expected process has not answered."""
        return {name: place for name, place in places.items() if self._incarnations.get(name, 0) != place.incarnation}

    def why_unreachable(self, missing: Mapping[str, Place]) -> RestartedError | LinkError | None:
        """Return why these peers will not answer; None if they may still answer."""
        later = sorted(name for name, place in missing.items() if self._incarnations.get(name, 0) > place.incarnation)
        if later:
            return RestartedError(
                f"node {', '.join(later)} was restarted after the session was planned for it",
                where=self._node,
                hint="submit the graph again",
            )
        return self.unreachable(missing) if any(name in self._refusals for name in missing) else None

    def unreachable(self, missing: Mapping[str, Place]) -> LinkError:
        """Return the error that names these peers, and what each does instead of answering."""
        why = "; ".join(
            f"node {name} at {place.address} "
            f"{'refuses: ' + self._refusals[name] if name in self._refusals else 'does not answer'}"
            for name, place in sorted(missing.items())
        )
        return LinkError(
            f"node {self._node} cannot reach its peers: {why}",
            where=self._node,
            hint="see whether they run, whether a firewall is between them, and whether all have the same key "
            "('dropflow doctor' does)",
        )

    def begin_read(self, now: float) -> bool:
        """Return whether the links are to be read now; if so, plan the next read."""
        if now < self._next_read:
            return False
        self._next_read = now + self._period
        return True

    def deadline(self) -> float:
        """Return when the links are to be read next; infinity while no peer is needed."""
        return self._next_read

    def _plan(self, now: float) -> None:
        if not self._needed:
            self._next_read = inf
        elif self._next_read == inf:
            self._next_read = now + self._period

    def _losses(self, changes: list[Change]) -> list[Loss]:
        return [
            Loss(change.after.name, change.after.incarnation + 1, change.reason)
            for change in changes
            if change.after.state is MemberState.LOST and change.after.name in self._needed
        ]
