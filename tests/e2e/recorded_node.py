"""Histories of the sessions of real nodes: a node writes what it commits, reads and promises to a file.

`recorded` returns what stands for ``-m dropflow`` in its command, so that a few methods are wrapped. Each record is one
line of JSON, written at once, so that the file has everything that happened until the process was killed. The
clock is the host's monotonic one, which all processes share.
"""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dropflow.__main__ import main as run
from dropflow.clock import SystemClock
from dropflow.execution.session import Session
from dropflow.execution.tasks import Task
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid
from dropflow.states import DropState
from managers.messages import PromiseView
from managers.node.decisions.events import ContinueSession, SilenceSession
from managers.node.host import SessionHost
from managers.node.resources import ProcessResources
from managers.recovery.records import ViewDecision, unpack_column
from managers.recovery.vote import SendToPeer
from managers.simulation.history import Recorder
from tests.managers.simulation.checked_history import Gone, Promised, Record, check_history

_ROOT = Path(__file__).resolve().parents[2]

_SETTLED = (int(DropState.COMPLETED), int(DropState.ERROR), int(DropState.SKIPPED))


class Decided(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A node adopted a view.

    Attributes
    ----------
    reset : tuple of str
        Completed drops that run again.
    moved : tuple of str
        Drops of nodes that are members no more, if they were not known to be settled.
    """

    time: float
    node: str
    session: str
    view: int
    reset: tuple[str, ...]
    moved: tuple[str, ...]


Line = Record | Decided
_decode = msgspec.json.Decoder(Line).decode


def recorded(history: Path) -> tuple[str, ...]:
    """Return arguments of the Python interpreter for ``dropflow`` with a file that gets the history."""
    code = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from tests.e2e.recorded_node import main; main()"
    return "-c", code, str(history)


class History:
    """What the nodes of a cluster have recorded of their sessions, and what a user of it was told.

    Parameters
    ----------
    path : Path
        The file that `recorded` was given; there is none where nodes are not recorded.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._told: list[Line] = []

    @property
    def now(self) -> float:
        """The time in records."""
        return SystemClock().monotonic()

    def add(self, record: Line) -> None:
        """Add something that the nodes do not know."""
        self._told.append(record)

    def gone(self, node: str) -> None:
        """Note that the process of a node was killed: the next one does not know what it has promised."""
        self.add(Gone(time=self.now, node=node))

    def of(self, session: str) -> list[Line]:
        """Return the records of a session in order of time."""
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        found = [*map(_decode, lines), *self._told]
        mine = [one for one in found if one.session in (session, "")]
        return sorted(mine, key=lambda one: one.time)

    def violations(self, session: str) -> list[str]:
        """Return what is wrong with the history of a session, whose results are noted as `Found`."""
        return check_history(one for one in self.of(session) if not isinstance(one, Decided))


class _Time:
    @property
    def time(self) -> float:
        return SystemClock().monotonic()


class _File(list[Any]):
    """Records that go to a file. Processes append to it together: each record is one write."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def append(self, record: Any, /) -> None:
        os.write(self._file, msgspec.json.encode(record) + b"\n")


def _record(path: Path, node: str) -> None:
    """Wrap the methods of this process in which contents are committed and read, and views change."""
    recorder = Recorder(_Time())
    recorder.history = _File(path)
    make_session, effects = ProcessResources.make_session, SessionHost.effects

    def recorded_session(
        self: ProcessResources, graph: PhysicalGraph, repository: Any, exchange: Any, deployment: Any, **more: Any
    ) -> Session:
        recorder.enter_view(node, deployment.session, exchange.view)
        recorded = recorder.recorded(repository, graph, node=node, session=deployment.session)
        session = make_session(self, graph, recorded, exchange, deployment, **more)
        if more["before"] is None:
            _tap_submit(session.runner, lambda task: recorder.started(node, deployment.session, task))
        return session

    def recorded_effects(self: SessionHost) -> dict[type, Callable[[Any], None]]:
        found = effects(self)

        def noted(effect: Callable[[Any], None]) -> Callable[[Any], None]:
            def carry_out(action: Any) -> None:
                _note(recorder, node, action)
                effect(action)

            return carry_out

        return {kind: noted(effect) for kind, effect in found.items()}

    ProcessResources.make_session = recorded_session  # type: ignore[method-assign,assignment]
    SessionHost.effects = recorded_effects  # type: ignore[method-assign]


def _tap_submit(runner: Any, note: Callable[[Task], None]) -> None:
    submit = runner.submit

    def recorded(tasks: Sequence[Task]) -> None:
        for task in tasks:
            note(task)
        submit(tasks)

    runner.submit = recorded


def _note(recorder: Recorder, node: str, action: Any) -> None:
    """Record an action of the node that ends a view, or begins one."""
    now, history = recorder.time, recorder.history
    match action:
        case SilenceSession():
            history.append(Gone(time=now, node=node, session=action.hosted.name))
        case SendToPeer(message=PromiseView() as promise):
            history.append(Promised(time=now, node=node, session=promise.session, view=promise.view))
        case ContinueSession():
            reset, moved = _again(action.hosted.directory.graph_in_view(), action.decision)
            view = action.decision.view.number
            decided = Decided(time=now, node=node, session=action.session, view=view, reset=reset, moved=moved)
            history.append(decided)  # type: ignore[arg-type]
        case _:
            pass


def _again(graph: PhysicalGraph, decision: ViewDecision) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the drops that may run again because of a decision: those that it resets, and those that it moves."""
    members = {place.node for place in decision.view.members}
    is_kept = np.array([place in members for place in graph.places], dtype=np.bool_)[graph.part]
    reset = unpack_column(decision.reset, np.int32).tolist()
    taken_over = unpack_column(decision.taken_over, np.uint8)
    settled = np.isin(taken_over, _SETTLED) if len(taken_over) else np.ones(graph.drops, dtype=np.bool_)
    moved = np.flatnonzero(~is_kept & ~settled).tolist()
    return tuple(oid(graph, row) for row in reset), tuple(oid(graph, row) for row in moved)


def main() -> None:
    """Run ``dropflow`` with the arguments behind the path of the history."""
    path = Path(sys.argv.pop(1))
    _record(path, sys.argv[sys.argv.index("--name") + 1])
    run()
