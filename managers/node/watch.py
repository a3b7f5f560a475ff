"""The watch over the other nodes of running sessions: reaching them, and noticing when they are gone."""

import logging
import threading
from collections.abc import Callable, Hashable, Mapping

from dropflow.clock import Clock
from dropflow.errors import DropflowError, LinkError, RestartedError
from managers.deployment import Place
from managers.links import LinkChange, LinkEvent, Links
from managers.membership import Change, Heard, Join, Leave, Member, Membership, MemberState, Tick
from managers.uptime import Uptime

__all__ = ["PeerWatch"]

_log = logging.getLogger(__name__)

_LOOKS = 8
"""How often to look at the links in the time after which a peer is suspect."""


class PeerWatch:
    """Watches the peers of sessions in a thread of its own.

    A peer is watched from `reach` on, until `release` was called for everybody that it was reached for. Time in which
    this process did not run itself (it was stopped, or its host was busy) does not count as silence.

    Parameters
    ----------
    links : Links
        Of this process.
    lost : callable
        Takes the name of a peer that is lost, an incarnation, and why: all lives of the peer before that incarnation
        are over. Called in the watch's thread, or in that of the links.
    suspect_after, lost_after : float
        Seconds; see `managers.membership.Membership`.
    clock : Clock
        Time.
    """

    def __init__(
        self,
        links: Links,
        lost: Callable[[str, int, str], None],
        *,
        suspect_after: float,
        lost_after: float,
        clock: Clock,
    ) -> None:
        self._links = links
        self._lost = lost
        self._clock = clock
        self._members = Membership(suspect_after=suspect_after, lost_after=lost_after)
        self._period = suspect_after / _LOOKS
        self._uptime = Uptime(suspect_after / 2, clock.monotonic())
        self._changed = threading.Condition()
        self._wanted: dict[str, set[Hashable]] = {}
        self._judged: list[Change] = []
        """What came out while others came and went, and is still to be told."""
        self._heard: dict[str, float] = {}
        self._refusals: dict[str, str] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def reach(self, owner: Hashable, places: Mapping[str, Place], *, seconds: float) -> None:
        """Open links to these peers and wait until all of them answer; from now on they are watched for `owner`.

        Raises
        ------
        RestartedError
            The process of a peer is a later one than `places` says.
        LinkError
            Peers that do not answer in time, or refuse this process: all of them are named. Also if `owner` was
            released meanwhile.
        """
        with self._changed:
            now = self._now()
            for name, place in places.items():
                self._refusals.pop(name, None)
                self._judged += self._members.handle(Join(name, place.incarnation, place.address), now)
                self._wanted.setdefault(name, set()).add(owner)
            self._changed.notify_all()
        try:
            for name, place in places.items():
                self._links.connect(name, place.address)
            self._wait(owner, places, seconds)
        except DropflowError:
            self.release(owner)
            raise

    def release(self, owner: Hashable) -> None:
        """`owner` does not need its peers any more. Idempotent."""
        with self._changed:
            for peer in [peer for peer, owners in self._wanted.items() if owner in owners]:
                self._wanted[peer].discard(owner)
                if not self._wanted[peer]:
                    del self._wanted[peer]
                    self._forget(peer)
            self._changed.notify_all()

    def on_change(self, change: LinkChange) -> None:
        """Take in what the links say."""
        with self._changed:
            if change.event is LinkEvent.REFUSED:
                self._refusals[change.peer] = change.text
            self._changed.notify_all()
        if change.event is LinkEvent.RESTARTED and self._is_watched(change.peer):
            self._lost(change.peer, change.incarnation, "its process was started again")

    def close(self) -> None:
        """Stop; idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _wait(self, owner: Hashable, places: Mapping[str, Place], seconds: float) -> None:
        deadline = self._clock.monotonic() + seconds
        while True:
            lives = {name: incarnation for name, (incarnation, _) in self._links.last_seen().items()}
            missing = {name: place for name, place in places.items() if lives.get(name, 0) != place.incarnation}
            later = sorted(name for name, place in missing.items() if lives.get(name, 0) > place.incarnation)
            if later:
                raise RestartedError(
                    f"node {', '.join(later)} was started again after the session was cut for it",
                    where=self._links.name,
                    hint="submit the graph again",
                )
            if not missing:
                return
            with self._changed:
                if any(owner not in self._wanted.get(name, ()) for name in places):
                    raise LinkError("the session was taken back while its peers were reached", where=self._links.name)
                refused = {name: self._refusals[name] for name in missing if name in self._refusals}
                left = deadline - self._clock.monotonic()
                if refused or left <= 0:
                    break
                self._changed.wait(min(left, self._period))
        why = "; ".join(
            f"node {name} at {place.address} {'refuses: ' + refused[name] if name in refused else 'does not answer'}"
            for name, place in sorted(missing.items())
        )
        raise LinkError(
            f"node {self._links.name} cannot reach its peers: {why}",
            where=self._links.name,
            hint="see whether they run, whether a firewall is between them, and whether all have the same key "
            "('dropflow doctor' does)",
        )

    def _forget(self, peer: str) -> None:
        # Who is not watched is not heard either, and must not be found silent when it is wanted again.
        member = self._members.members.get(peer)
        if member is not None:
            self._judged += self._members.handle(Leave(peer, member.incarnation), self._now())
            self._members.forget(peer)

    def _is_watched(self, peer: str) -> bool:
        with self._changed:
            return peer in self._wanted

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closing:
                    return
                if not self._wanted:
                    self._changed.wait()
                    continue
                lost = self._look()
            for member, why in lost:
                _log.warning("node %s is lost: %s", member.name, why)
                self._lost(member.name, member.incarnation + 1, why)
            with self._changed:
                if not self._closing:
                    self._changed.wait(self._period)

    def _now(self) -> float:
        """Monotonic time less that in which this process did not run. Under the lock."""
        before = self._uptime.paused
        now = self._uptime.read(self._clock.monotonic())
        if self._wanted and self._uptime.paused > before:
            _log.warning("this process was held up for %.1f s", self._uptime.paused - before)
        return now

    def _look(self) -> list[tuple[Member, str]]:
        """Tell the members what was heard, and say who is lost."""
        now = self._now()
        changes, self._judged = self._judged, []
        for peer, (incarnation, moment) in self._links.last_seen().items():
            if peer in self._wanted and self._heard.get(peer) != moment:
                self._heard[peer] = moment
                changes += self._members.handle(Heard(peer, incarnation), now)
        changes += self._members.handle(Tick(), now)
        return [
            (change.after, change.reason)
            for change in changes
            if change.after.state is MemberState.LOST and change.after.name in self._wanted
        ]
