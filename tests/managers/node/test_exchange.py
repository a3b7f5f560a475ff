"""How a node finds the drops that messages of other nodes are about."""

from collections.abc import Callable, Sequence

import pytest

from dropflow.engine.api import Arrival, RemoteEvent
from dropflow.errors import ProtocolError
from dropflow.testing.drawing import relay
from managers.messages import Events
from managers.node.exchange import NodeExchange
from tests.managers.node.conftest import Cluster, hosted


@pytest.fixture
def exchange(make_cluster: Callable[..., Cluster]) -> NodeExchange:
    """Return the exchange of a session on two nodes that has not started."""
    cluster = make_cluster(2)
    deployment = cluster.cut(relay(100, 2), session="s")
    cluster["a"].prepare(deployment, seconds=10.0)
    return hosted(cluster["a"]).exchange


def _events(drops: list[int]) -> Events:
    ones = [1] * len(drops)
    return Events.of("s", 1, 1, drops=drops, states=[2] * len(drops), attempts=ones, causes=[-1] * len(drops))


def _received(exchange: NodeExchange, drops: list[int]) -> Sequence[tuple[RemoteEvent, object]]:
    """Return the events of a message about these drops."""
    arrivals: list[Arrival] = []
    exchange.attach(arrivals.extend, lambda _drop, _producer: True)
    exchange.receive("b", _events(drops))
    (arrival,) = arrivals
    return arrival.open()


@pytest.mark.parametrize("count", [0, 1, 16, 17, 40])
def test_rows_are_those_of_the_slice(exchange: NodeExchange, count: int) -> None:
    """Each drop of a message is found under its row of the slice, for messages of any size."""
    ghosts = exchange.remote.tolist()[:count]
    received_rows = [int(exchange.rows[ghost]) for ghost in ghosts]

    assert [event.drop for event, _ in _received(exchange, received_rows)] == ghosts


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("stranger", [-1, 10**6])
def test_drops_that_are_not_in_the_slice_are_refused(exchange: NodeExchange, count: int, stranger: int) -> None:
    """A drop that is not in the slice is a `ProtocolError`, in a short message and in a long one."""
    received_rows = [int(exchange.rows[ghost]) for ghost in exchange.remote.tolist()[: count - 1]]

    with pytest.raises(ProtocolError, match="not in this slice"):
        _received(exchange, [*received_rows, stranger])
