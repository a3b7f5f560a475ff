"""What must hold when a trial is over: how each session has ended, what is left, and what its history says."""

from collections import Counter
from collections.abc import Mapping

import msgspec
import numpy as np

from dropflow.engine.content_table import kept_drops
from dropflow.engine.session import Session
from dropflow.ids import session_directory_name
from dropflow.states import DropState, SessionState
from managers.node.finished_sessions import DamagedSession
from managers.node.hosted_session import HostedSession
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.fault_injector import FaultInjector
from managers.simulation.history import Acknowledged, Found, check_history
from managers.simulation.recorder import content_bytes, digest
from managers.simulation.simulated_node import SimulatedNode

__all__ = ["Expected", "TrialChecks", "kept_contents", "states_of"]


class Expected(msgspec.Struct, frozen=True):
    """What a session ends as where nothing is lost.

    Attributes
    ----------
    status : str
        Of the session.
    states : bytes
        `DropState` of every drop.
    contents : mapping of int to bytes
        Its results by row.
    is_noisy : bool
        Whether contents are others in each run.
    """

    status: str
    states: bytes
    contents: Mapping[int, bytes]
    is_noisy: bool


class TrialChecks:
    """Checks of a cluster after a trial.

    Parameters
    ----------
    cluster : SimulatedCluster
        The cluster.
    injector : FaultInjector
        What happened to it.
    ended_before_loss : set of str
        Sessions whose members knew that all had finished when a node was lost: its results are lost with it.

    Attributes
    ----------
    violations : list of str
        What was found.
    """

    def __init__(self, cluster: SimulatedCluster, injector: FaultInjector, *, ended_before_loss: set[str]) -> None:
        self.violations: list[str] = []
        self._cluster = cluster
        self._injector = injector
        self._ended_before_loss = ended_before_loss

    @property
    def _live(self) -> dict[str, SimulatedNode]:
        return {node.name: node for node in self._cluster.nodes.values() if node.process.is_alive}

    def check(self, name: str, expected: Expected) -> bool:
        """Check how a session has ended; return whether it had to go on after a loss."""
        here = {node: one.sessions[name] for node, one in self._live.items() if name in one.sessions}
        parts: dict[str, HostedSession] = {n: one for n, one in here.items() if isinstance(one, HostedSession)}
        request = self._injector.requests.get(name, "")
        if self._lacks_majority(parts):
            return False
        for node, session in here.items():
            if not session.state.is_terminal:
                info = session.info()
                self._wrong(name, f"{info.status} on {node}, view {info.view}: {info.text}")
        if any(node.running for node in self._live.values()):
            self._wrong(name, f"still stepped on {[node.name for node in self._live.values() if node.running]}")
        if request in ("cancel", "delete") or not parts or self.violations:
            return False
        views = {session.info().view for session in parts.values()}
        # Some members may have ended with a view that others had to leave: they could not be reached.
        parts = {node: session for node, session in parts.items() if session.info().view == max(views)}
        infos = {node: session.info() for node, session in parts.items()}
        statuses = {node: info.status for node, info in infos.items()}
        if self._injector.full:
            return views != {0}  # attempts that could not be stored may have failed
        if expected.status == "FINISHED" and set(statuses.values()) != {"FINISHED"}:
            texts = {node: info.text for node, info in infos.items()}
            self._wrong(name, f"{statuses} instead of {expected.status}: {texts}")
        if expected.status == "FAILED" and "FAILED" not in statuses.values() and name not in self._ended_before_loss:
            self._wrong(name, f"{statuses} instead of {expected.status}")
        self._check_drops(name, expected, parts)
        return views != {0}

    def _lacks_majority(self, parts: Mapping[str, HostedSession]) -> bool:
        """Return whether a session waits or has failed for want of voters of its latest view that live.

        A view may be decided while one member cannot be reached, and another one crashes: then both are lost.
        """
        latest = max(parts.values(), key=lambda session: session.view.number, default=None)
        if latest is None or (latest.state.is_terminal and latest.state is not SessionState.FAILED):
            return False
        voters = {(place.node, place.incarnation) for place in latest.view.voters}
        return len(voters - self._injector.ended) <= len(voters) // 2

    def _check_drops(self, name: str, expected: Expected, parts: Mapping[str, HostedSession]) -> None:
        owners: Counter[int] = Counter()
        for node, part in parts.items():
            rows, states = part.piece.drop, np.frombuffer(states_of(part), dtype=np.uint8)
            for here in np.flatnonzero(part.piece.is_own).tolist():
                row = int(rows[here])
                owners[row] += 1
                if states[here] != expected.states[row]:
                    found, wanted = DropState(int(states[here])).name, DropState(expected.states[row]).name
                    self._wrong(name, f"drop {row} on {node} is {found} instead of {wanted}")
            for row, content in kept_contents(part).items():
                if not expected.is_noisy and row in expected.contents and content != expected.contents[row]:
                    self._wrong(name, f"the content of drop {row} on {node} is another one")
        if any(count > 1 for count in owners.values()):
            self._wrong(name, f"drops with several owners: {[row for row, count in owners.items() if count > 1]}")
        if name not in self._ended_before_loss:
            missing = [row for row in range(len(expected.states)) if not owners[row]]
            if missing:
                self._wrong(name, f"drops without an owner: {missing}")
            there = {row for part in parts.values() for row in kept_contents(part)}
            lost = sorted(expected.contents.keys() - there)
            if lost:
                self._wrong(name, f"results without content: {lost}")

    def check_orphans(self) -> None:
        """Check that nothing is left of sessions that are no more, and no work in progress of those that are over."""
        for name, node in self._live.items():
            known = {session_directory_name(session) for session in node.sessions}
            left = sorted(path.name for path in node.directory.iterdir() if path.is_dir() and path.name not in known)
            if left:
                self.violations.append(f"directories of no session are left on {name}: {left}")
            for session, one in node.sessions.items():
                tmp = node.directory / session_directory_name(session) / "tmp"
                is_readable = not isinstance(one, DamagedSession)  # which stays as it is until it is deleted
                if is_readable and one.state.is_terminal and tmp.exists() and any(tmp.iterdir()):
                    parts = sorted(path.name for path in tmp.iterdir())
                    self._wrong(session, f"temporary files are left on {name}: {parts}")

    def acknowledge(self) -> None:
        """Note the results of all sessions that are FINISHED: from now on they must be there.

        Not those of a session that a user deletes: a node that does not answer deletes it later.
        """
        self._note_results(Acknowledged)

    def check_history(self) -> None:
        """Check what was committed, read, promised and acknowledged."""
        self._note_results(Found)
        self.violations += check_history(self._cluster.recorder.history)

    def _note_results(self, kind: type[Acknowledged | Found]) -> None:
        recorder = self._cluster.recorder
        for name, node in self._live.items():
            for session, hosted in node.sessions.items():
                if self._injector.requests.get(session) == "delete":
                    continue
                if isinstance(hosted, HostedSession) and hosted.state is SessionState.FINISHED:
                    for row, content in kept_contents(hosted).items():
                        recorder.history.append(
                            kind(time=recorder.time, node=name, session=session, drop=str(row), digest=digest(content))
                        )

    def _wrong(self, session: str, text: str) -> None:
        self.violations.append(f"session {session}: {text}")


def states_of(hosted: HostedSession) -> bytes:
    """Return the states of the drops of a slice."""
    return hosted.session.call(lambda live: bytes(live.core.drops.states))


def kept_contents(hosted: HostedSession) -> dict[int, bytes]:
    """Return the results that are left, by row of the whole graph."""
    piece = hosted.piece
    found = hosted.session.call(Session.contents)
    kept = kept_drops(piece.graph)
    return {
        int(piece.drop[row]): content_bytes(handle) for row, handle in found.items() if piece.is_own[row] and kept[row]
    }
