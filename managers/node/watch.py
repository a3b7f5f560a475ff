"""The watch over the other nodes of running sessions: reaching them, and noticing when they are gone."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from dropflow.clock import Clock
from dropflow.errors import DropflowError, LinkError
from managers.deployment import Place
from managers.links import LinkChange, LinkEvent, Links
from managers.membership import Heard, Join, Membership, MemberState, Tick

__all__ = ["PeerWatch"]

_log = logging.getLogger(__name__)

_LOOKS = 8
"""How often to look at the links in the time after which a peer is suspect."""


class PeerWatch:
    """Watches the peers of sessions in a thread of its own.

    A peer is watched from `reach` on, until `release` was called for every session that it was reached for.

    Parameters
    ----------
    links : Links
        Of this process.
    lost : callable
        Takes the name of a peer that is lost, and why; called in the watch's thread, or in that of the links.
    suspect_after, lost_after : float
        Seconds; see `managers.membership.Membership`.
    clock : Clock
        Time.
    """

    def __init__(
        self,
        links: Links,
        lost: Callable[[str, str], None],
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
        self._changed = threading.Condition()
        self._wanted: Counter[str] = Counter()
        self._heard: dict[str, float] = {}
        self._refusals: dict[str, str] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def reach(self, places: Mapping[str, Place], *, seconds: float) -> None:
        """Open links to these peers and wait until all of them answer; from now on they are watched.

        Raises
        ------
        LinkError
            Peers that do not answer in time, or refuse this process: all of them are named.
        """
        now = self._clock.monotonic()
        with self._changed:
            for name, place in places.items():
                self._refusals.pop(name, None)
                self._members.handle(Join(name, place.incarnation, place.address), now)
            self._wanted.update(places.keys())
            self._changed.notify_all()
        try:
            for name, place in places.items():
                self._links.connect(name, place.address)
            self._wait(places, seconds)
        except DropflowError:
            self.release(places)
            raise

    def release(self, peers: Iterable[str]) -> None:
        """A session does not need these peers any more."""
        with self._changed:
            for peer in peers:
                self._wanted[peer] -= 1
                if self._wanted[peer] <= 0:
                    del self._wanted[peer]
                    self._members.forget(peer)

    def on_change(self, change: LinkChange) -> None:
        """Take in what the links say."""
        with self._changed:
            if change.event is LinkEvent.REFUSED:
                self._refusals[change.peer] = change.text
            self._changed.notify_all()
        if change.event is LinkEvent.RESTARTED and self._is_watched(change.peer):
            self._lost(change.peer, "its process was started again")

    def close(self) -> None:
        """Stop; idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _wait(self, places: Mapping[str, Place], seconds: float) -> None:
        deadline = self._clock.monotonic() + seconds
        while True:
            heard = self._links.heard()
            missing = {
                name: place for name, place in places.items() if heard.get(name, (0, 0.0))[0] != place.incarnation
            }
            if not missing:
                return
            with self._changed:
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
            for peer, why in lost:
                _log.warning("node %s is lost: %s", peer, why)
                self._lost(peer, why)
            with self._changed:
                if not self._closing:
                    self._changed.wait(self._period)

    def _look(self) -> list[tuple[str, str]]:
        """Tell the members what was heard, and say who is lost."""
        now = self._clock.monotonic()
        changes = []
        for peer, (incarnation, moment) in self._links.heard().items():
            if peer in self._wanted and self._heard.get(peer) != moment:
                self._heard[peer] = moment
                changes += self._members.handle(Heard(peer, incarnation), max(now, moment))
        changes += self._members.handle(Tick(), now)
        return [
            (change.after.name, change.reason)
            for change in changes
            if change.after.state is MemberState.LOST and change.after.name in self._wanted
        ]
