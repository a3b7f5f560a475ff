"""The states of the drops of sessions that node managers run."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event as Signal

import numpy as np
import pytest

from dropflow.api.error_body import read_events
from dropflow.api.records import SubmitQuery
from dropflow.states import DropState
from dropflow.testing.drawing import triples
from managers.node.manager import NodeManager
from managers.routes.streams import state_events
from managers.state_hub import StateHub
from tests.managers.node.conftest import Cluster, settle

pytestmark = pytest.mark.slow


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes what a test opens."""
    with ExitStack() as opened:
        yield opened


def test_each_node_has_the_states_of_its_own_drops(make_cluster: Callable[..., Cluster]) -> None:
    """Those of all nodes together are all drops; without a change an answer is empty."""
    cluster = make_cluster(2)
    cluster.run(triples(300, 2))
    answers = [cluster[name].states("s") for name in "ab"]
    rows = np.concatenate([answer.rows for answer in answers])

    assert sorted(rows.tolist()) == list(range(300))
    assert {state for answer in answers for state in answer.values.tolist()} == {DropState.COMPLETED}
    assert cluster["a"].states("s", since=answers[0].cursor).rows.tolist() == []


def test_a_session_is_followed_to_its_end_and_read_after_a_restart(stack: ExitStack, tmp_path: Path) -> None:
    """All changes together lead from the first states to the last ones; another process of the node has the same."""
    first = stack.enter_context(closing(NodeManager("a", root=tmp_path, runner="threads", workers=2)))
    first.submit(triples(3000, 1), SubmitQuery(session="s"))
    hub = StateHub(first)
    names = [event.name for event in read_events(state_events(hub, "s", Signal()) or iter(()))]
    assert (names[0], names[-1], set(names[1:-1]) <= {"change"}) == ("whole", "end", True)
    assert set(hub.states("s").tolist()) == {DropState.COMPLETED}
    settle(first)
    first.close()

    again = stack.enter_context(closing(NodeManager("a", root=tmp_path, runner="threads", workers=2)))
    answer = again.states("s")
    assert answer.rows.tolist() == list(range(3000))
    assert set(answer.values.tolist()) == {DropState.COMPLETED}
