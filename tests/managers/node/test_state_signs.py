"""What runs and what is queued has a sign in the states that a node sends."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from dropflow.api.state_records import QUEUED, RUNNING, DropStates
from dropflow.engine.core import Core
from dropflow.engine.events import Begin
from dropflow.graph.slices import slice_by_place
from dropflow.states import DropState
from dropflow.testing.drawing import draw, row
from managers.node.views import StateLogs


def _read(logs: StateLogs, piece: Any, core: Core, running: Any, since: str = "") -> DropStates:
    live: Any = SimpleNamespace(core=core)
    session: Any = SimpleNamespace(call=lambda function: function(live))
    return logs.read(session, piece, since, running)


def test_an_application_that_runs_and_one_that_is_queued_have_signs() -> None:
    """A change from queued to running is sent although the state stays WRITING; as states, both are WRITING."""
    piece = slice_by_place(replace(draw("A -> x, B -> y"), places=("n1",)))["n1"]
    core, logs = Core(piece.graph), StateLogs()
    core.handle([Begin()])
    first, second = row(piece.graph, "A"), row(piece.graph, "B")
    before = _read(logs, piece, core, {first})
    after = _read(logs, piece, core, {first, second}, before.cursor)

    assert (before.signs[first], before.signs[second]) == (RUNNING, QUEUED)
    assert set(before.values.tolist()) == {DropState.WRITING, DropState.INITIALIZED}
    assert (after.rows.tolist(), after.signs.tolist()) == ([second], [RUNNING])
    over = _read(StateLogs(), piece, core, None)
    assert np.array_equal(over.signs, over.values)
