"""A manager becomes the witness of sessions whose witness is lost: part of `CompositeMachine`.

The reports of the nodes of a session show that its witness is lost. A manager above all of them then asks a member for
a view with itself as the witness. If several managers ask, only one becomes the witness.
"""

from dropflow.api.requests import MemberRequest
from dropflow.api.session_records import SessionDetail
from dropflow.states import SessionState
from managers.composite.children import Tries, nodes_of
from managers.composite.members import MemberChanges
from managers.composite.routines import Routine
from managers.composite.sessions import Sessions
from managers.composite.shared import Shared
from managers.planning import usable_witness

_LOOK_SECONDS = 1.0
"""Seconds between two searches for sessions without a witness."""
_GOING = (SessionState.RUNNING.name, SessionState.PAUSED.name)


class WitnessReplacement:
    """Finds sessions that lack a witness, and asks their members."""

    def __init__(self, shared: Shared, sessions: Sessions, members: MemberChanges) -> None:
        self._shared = shared
        self._sessions = sessions
        self._members = members
        self._looked = -_LOOK_SECONDS
        self._tried = Tries[tuple[str, int, int]](shared.time)
        """Views of sessions for which this manager has asked."""

    def wanted(self) -> list[SessionDetail]:
        """Return the sessions whose witness this manager is to become now."""
        if self._shared.witness.place is None or self._shared.time.now < self._looked + _LOOK_SECONDS:
            return []
        self._looked = self._shared.time.now
        sessions = []
        for name in self._shared.cache.sessions():
            session = self._sessions.merged(name) if self._shared.cache.lacks_witness(name) else None
            if session is not None and self._is_wanted(session):
                self._tried.note(_key(session))
                sessions.append(session)
        return sessions

    def replace(self, session: SessionDetail) -> Routine[None]:
        """Ask a member for a view in which this manager is the witness."""
        place = self._shared.witness.place
        if place is None:
            return
        invitation = self._shared.witness.invite(session.session, session.epoch)
        member = MemberRequest(
            node=place.node, links=place.address, incarnation=place.incarnation, invitation=invitation
        )
        yield from self._members.add_member(session.session, member)

    def _is_wanted(self, session: SessionDetail) -> bool:
        if (
            session.status not in _GOING
            or not session.lacks_witness
            or self._shared.witness.votes(session.session, session.epoch)
            or not self._tried.may(_key(session))
        ):
            return False
        # A manager that does not see all members may be on the other side of a network partition.
        here = {node.name: node for node in nodes_of(self._shared.children.views(), role=self._shared.role)}
        members = [here[name] for name in session.members if name in here and here[name].state != "lost"]
        return len(members) == len(session.members) and usable_witness(members, self._shared.witness.place) is not None


def _key(session: SessionDetail) -> tuple[str, int, int]:
    return session.session, session.epoch, session.view
