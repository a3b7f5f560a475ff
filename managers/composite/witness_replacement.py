"""Has this manager become the witness of sessions whose witness is lost: part of `CompositeMachine`.

The nodes of a session find that its witness is lost, and show that in their reports. A manager above all of them then
asks a member for a view with itself as the witness. If several do, one of them is refused.
"""

from dropflow.rest.manager_records import Role
from dropflow.rest.operation_records import MemberRequest
from dropflow.rest.session_records import SessionDetail
from dropflow.states import SessionState
from managers.composite.children import Children
from managers.composite.deployment_plan import usable_witness
from managers.composite.machine_time import MachineTime
from managers.composite.member_changes import MemberChanges
from managers.composite.nodes import nodes_of
from managers.composite.session_cache import SessionCache
from managers.composite.sessions import Sessions
from managers.composite.waiting_operations import Routine
from managers.composite.witness import Witness

__all__ = ["WitnessReplacement"]

_LOOK_SECONDS = 1.0
"""How often is looked for sessions without a witness."""
_AGAIN = 30.0
"""Seconds until a member is asked again after that failed."""
_TRIES = 3
"""How often a member is asked in one view of a session."""
_REMEMBERED = 10_000
_GOING = (SessionState.RUNNING.name, SessionState.PAUSED.name)


class WitnessReplacement:
    """Finds sessions that lack a witness, and asks their members.

    Parameters
    ----------
    role : str
        Of the composite.
    children, cache, sessions, members, witness, time :
        The parts of the composite.
    """

    def __init__(
        self,
        role: Role,
        *,
        children: Children,
        cache: SessionCache,
        sessions: Sessions,
        members: MemberChanges,
        witness: Witness,
        time: MachineTime,
    ) -> None:
        self._role: Role = role
        self._children = children
        self._cache = cache
        self._sessions = sessions
        self._members = members
        self._witness = witness
        self._time = time
        self._looked = -_LOOK_SECONDS
        self._tried: dict[tuple[str, int, int], tuple[int, float]] = {}
        """How often was asked in each view of each deployment, and when that may be done again."""

    def wanted(self) -> list[SessionDetail]:
        """Return the sessions whose witness this manager is to become now."""
        if self._witness.place is None or self._time.now < self._looked + _LOOK_SECONDS:
            return []
        self._looked = self._time.now
        found = []
        for name in self._cache.sessions():
            session = self._sessions.merged(name) if self._cache.lacks_witness(name) else None
            if session is not None and self._is_wanted(session):
                self._note_try(session)
                found.append(session)
        return found

    def replace(self, session: SessionDetail) -> Routine[None]:
        """Ask a member for a view in which this manager is the witness."""
        place = self._witness.place
        if place is None:
            return
        invitation = self._witness.invite(session.session, session.epoch)
        member = MemberRequest(
            node=place.node, links=place.address, incarnation=place.incarnation, invitation=invitation
        )
        yield from self._members.add_member(session.session, member)

    def _is_wanted(self, session: SessionDetail) -> bool:
        tries, not_before = self._tried.get(_key(session), (0, 0.0))
        if (
            session.status not in _GOING
            or not session.lacks_witness
            or self._witness.votes(session.session, session.epoch)
            or tries >= _TRIES
            or self._time.now < not_before
        ):
            return False
        # A manager that does not see all members may be on another side of a split than the others.
        here = {node.name: node for node in nodes_of(self._children.views(), role=self._role)}
        members = [here[name] for name in session.members if name in here and here[name].state != "lost"]
        return len(members) == len(session.members) and usable_witness(members, self._witness.place) is not None

    def _note_try(self, session: SessionDetail) -> None:
        key = _key(session)
        self._tried[key] = self._tried.pop(key, (0, 0.0))[0] + 1, self._time.now + _AGAIN
        while len(self._tried) > _REMEMBERED:
            del self._tried[next(iter(self._tried))]


def _key(session: SessionDetail) -> tuple[str, int, int]:
    return session.session, session.epoch, session.view
