"""What must hold when a trial is over: how each session has ended, what is left, and what its history says."""

import random
from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial

import msgspec
import numpy as np

from dropflow.execution.content_table import kept_drops
from dropflow.execution.session import Session
from dropflow.ids import session_directory_name
from dropflow.states import DropState, SessionState, is_over
from managers.machine_calls import Unanswered
from managers.node.finished_sessions import DamagedSession
from managers.node.hosted_session import HostedSession
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.history import content_bytes, digest
from managers.simulation.simulated_composite import SimulatedComposite
from managers.simulation.simulated_node import SimulatedNode
from tests.managers.simulation.checked_history import Acknowledged, Found, check_history
from tests.managers.simulation.fault_injector import FaultInjector

__all__ = ["Expected", "KnownAbove", "TrialChecks", "kept_contents", "states_of"]

_STOPPED = ("the execution failed", "too few nodes answered to go on")
"""In the texts of parts that have given up: one that cannot keep its journal, and those that then lack a majority."""

_COMPLETE = (DropState.COMPLETED, DropState.SKIPPED)
_AFTER_FAILURE = (DropState.ERROR, DropState.CANCELLED)
"""What drops are that a failure stopped, itself or with the session."""

_HEARD = 60.0
"""Seconds after which managers have heard of a process that was started, also of one that was cut off for a while."""


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
        here = {node: simulated.sessions[name] for node, simulated in self._live.items() if name in simulated.sessions}
        parts: dict[str, HostedSession] = {n: hosted for n, hosted in here.items() if isinstance(hosted, HostedSession)}
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
        if self._injector.full:  # attempts that could not be stored may have failed
            self._check_drops(name, expected, parts, may_fail=True)
            return views != {0}
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

    def _check_drops(  # noqa: C901 - one rule after the other
        self, name: str, expected: Expected, parts: Mapping[str, HostedSession], *, may_fail: bool = False
    ) -> None:
        """Check the states and contents of all drops; `may_fail` is whether some may have failed that should not."""
        owners: Counter[int] = Counter()
        failed, has_ended = set[int](), False
        for node, part in parts.items():
            # What tolerates failures of its inputs goes on without them: with other contents, or not at all.
            is_tolerant = may_fail and any(template.error_threshold for template in part.piece.graph.templates)
            has_stopped = any(text in part.info().text for text in _STOPPED)
            has_ended |= has_stopped
            rows, states = part.piece.drop, np.frombuffer(states_of(part), dtype=np.uint8)
            for here in np.flatnonzero(part.piece.is_own).tolist():
                row, state = int(rows[here]), DropState(int(states[here]))
                owners[row] += 1
                if may_fail and (state in _AFTER_FAILURE or has_stopped):
                    failed.add(row)
                    has_ended |= state is DropState.CANCELLED
                elif state != expected.states[row] and not (
                    is_tolerant and {state, expected.states[row]} <= {*_COMPLETE}
                ):
                    self._wrong(
                        name, f"drop {row} on {node} is {state.name}, not {DropState(expected.states[row]).name}"
                    )
            is_free = expected.is_noisy or is_tolerant
            for row, content in kept_contents(part).items():
                if not is_free and row in expected.contents and content != expected.contents[row]:
                    self._wrong(name, f"the content of drop {row} on {node} is another one")
        if any(count > 1 for count in owners.values()):
            self._wrong(name, f"drops with several owners: {[row for row, count in owners.items() if count > 1]}")
        if name not in self._ended_before_loss:
            missing = [row for row in range(len(expected.states)) if not owners[row]]
            # A session that a full disk has ended does not go on with the drops of a node that was lost since.
            if missing and not (may_fail and has_ended):
                self._wrong(name, f"drops without an owner: {missing}")
            there = {row for part in parts.values() for row in kept_contents(part)}
            lost = sorted(expected.contents.keys() - there - failed - {*missing})
            if lost:
                self._wrong(name, f"results without content: {lost}")
            reasons = [info.text for part in parts.values() for info in part.detail().failures]
            reasons += [part.info().text for part in parts.values()]
            if may_fail and any(part.state is SessionState.FAILED for part in parts.values()) and not any(reasons):
                self._wrong(name, "it failed, and no member has a reason")

    def check_orphans(self) -> None:
        """Check that nothing is left of sessions that are no more, and no work in progress of those that are over."""
        for name, node in self._live.items():
            known = {session_directory_name(session) for session in node.sessions}
            left = sorted(path.name for path in node.directory.iterdir() if path.is_dir() and path.name not in known)
            if left:
                self.violations.append(f"directories of no session are left on {name}: {left}")
            for session, hosted in node.sessions.items():
                tmp = node.directory / session_directory_name(session) / "tmp"
                is_readable = not isinstance(hosted, DamagedSession)  # which stays as it is until it is deleted
                if is_readable and hosted.state.is_terminal and tmp.exists() and any(tmp.iterdir()):
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


class KnownAbove:
    """What islands and the master know of the sessions while a trial goes on, and what they answer at its end.

    It draws nothing from the chance of the simulation, so that a trial is the same whether it is judged or not.

    Parameters
    ----------
    cluster : SimulatedCluster
        The cluster.
    injector : FaultInjector
        What happens to it. A session that users change, or have tried again, is only judged at its end.
    chance : Random
        Decides when to look.

    Attributes
    ----------
    violations : list of str
        What was found.
    """

    def __init__(self, cluster: SimulatedCluster, injector: FaultInjector, chance: random.Random) -> None:
        self.violations: list[str] = []
        self._cluster = cluster
        self._injector = injector
        self._chance = chance
        self._ends: dict[tuple[int, str], str] = {}
        """Terminal states by number of processes that were started so far, and session.

        Nodes and managers that are started again may know less, or know that a part cannot be read any more.
        """
        self._started = 0, 0.0
        """How many processes were started so far, and when it was seen that they were so many."""

    def watch(self, sessions: Collection[str]) -> None:
        """Look now and then from now on."""
        self._look(sessions)
        self._cluster.simulation.call_later(self._chance.expovariate(1.0), partial(self.watch, sessions))

    def _look(self, sessions: Collection[str]) -> None:
        time, started = self._cluster.simulation.time, len(self._cluster.processes)
        if started != self._started[0]:
            self._started = started, time
        if time < self._started[1] + _HEARD:
            return
        (top,) = (above for above in self._cluster.above if above.url == self._cluster.top)
        for session in sorted(set(sessions) - self._injector.requests.keys() - self._injector.changed):
            detail = top.machine.known(session) if top.process.is_alive else None
            if detail is not None:
                self._compare(session, detail.status)

    def _compare(self, session: str, status: str) -> None:
        """Check that a status is the same as before, if that was the end."""
        key = len(self._cluster.processes), session
        before = self._ends.get(key, status)
        if before != status:
            self._wrong(
                self._cluster.top, session, f"was {before}, is {status} at {self._cluster.simulation.time:.1f} s"
            )
        if is_over(status):
            self._ends[key] = status

    def check(self, session: str) -> None:
        """Ask all managers for the status of a session that is over, and compare it with what the members say."""
        if self._injector.requests.get(session) == "delete":
            return
        hosted = {
            name: part.detail()
            for name, node in self._cluster.nodes.items()
            if node.process.is_alive and isinstance(part := node.sessions.get(session), HostedSession)
        }
        latest = max(hosted.values(), key=lambda info: info.view, default=None)
        if latest is None or not all(info.is_over for info in hosted.values()):
            return
        names = latest.members or tuple(hosted)
        members = {name: info for name, info in hosted.items() if info.view == latest.view and name in names}
        statuses = {info.status for info in members.values()}
        has_agreed = any({end.node for end in detail.ends} >= set(names) for detail in members.values())
        for above in self._cluster.above:
            below = [name for name in members if self._is_below(name, above)]
            if not below:
                continue
            # Nodes do not tell each other that they have cancelled: what is below another island is not known here.
            cancelled = [name for name in below if members[name].status == SessionState.CANCELLED.name]
            knows_end = has_agreed or len(cancelled) > len(names) // 2
            answer = self._cluster.call("session", url=above.url, session=session)
            if isinstance(answer, Unanswered):
                self._wrong(above.name, session, f"answers {answer.error}; members say {statuses}")
                continue
            detail_ = answer.value
            if knows_end and not detail_.is_over:
                self._wrong(above.name, session, f"answers {detail_.status} ({detail_.text}); members say {statuses}")
            elif detail_.is_over and len(members) == len(names) and detail_.status not in statuses:
                self._wrong(above.name, session, f"answers {detail_.status}, and no member does: {statuses}")
            elif (
                detail_.is_over and detail_.status != "FAILED" and "FAILED" in {members[name].status for name in below}
            ):
                self._wrong(above.name, session, f"answers {detail_.status}, and a member says FAILED")
            if (
                above.url == self._cluster.top
                and session not in self._injector.requests.keys() | self._injector.changed
            ):
                self._compare(session, detail_.status)

    def _is_below(self, node: str, above: SimulatedComposite) -> bool:
        return above.role == "master" or self._cluster.nodes[node].url in above.children

    def _wrong(self, manager: str, session: str, text: str) -> None:
        self.violations.append(f"{manager}, session {session}: {text}")


def states_of(hosted: HostedSession) -> bytes:
    """Return the states of the drops of a slice."""
    return hosted.session.call(lambda live: bytes(live.core.drops.states))


def kept_contents(hosted: HostedSession) -> dict[int, bytes]:
    """Return the results that are left, by row of the whole graph."""
    piece = hosted.piece
    contents = hosted.session.call(Session.contents)
    kept = kept_drops(piece.graph)
    return {
        int(piece.drop[row]): content_bytes(handle)
        for row, handle in contents.items()
        if piece.is_own[row] and kept[row]
    }
