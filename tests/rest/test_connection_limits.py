"""Which connections are closed: too slow, or too many."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.rest.connection_limits import ConnectionLimits, ConnectionState, is_overdue, surplus

CROWD = ConnectionLimits(most=6, per_address=4, head=15, body=300, still=60, kept=120)

TIMES = {
    # what it does                      seconds that are allowed
    "waits with its first request": ({"stage": "first"}, 15),
    "sends a head byte by byte": ({"stage": "head", "moved": 1e6}, 15),
    "waits with its next request": ({"stage": "next"}, 120),
    "sends no more of its body": ({"stage": "body"}, 60),
    "sends a body byte by byte": ({"stage": "body", "moved": 1e6}, 300),
    "sends a body with a credential": ({"stage": "body", "moved": 1e6, "is_known": True}, None),
    "is answered": ({"is_running": True}, None),
    "does not read its answer": ({"is_running": True, "has_output": True}, 60),
    "reads its answer slowly": ({"is_running": True, "has_output": True, "moved": 1e6}, None),
}


@pytest.mark.parametrize(("fields", "seconds"), TIMES.values(), ids=TIMES)
def test_every_way_to_take_long_has_an_end(fields: dict[str, object], seconds: float | None) -> None:
    """A connection is closed after the time for what it does, and not before; answers take as long as they take."""
    connection = ConnectionState(address="a", **fields)  # type: ignore[arg-type]
    ages = [age for age in (1, 14, 16, 59, 61, 119, 121, 299, 301, 10**6) if is_overdue(connection, age, CROWD)]

    assert ages == [age for age in (1, 14, 16, 59, 61, 119, 121, 299, 301, 10**6) if seconds and age > seconds]


def test_the_oldest_idle_connection_makes_room() -> None:
    """Of one address; those that showed a credential go after the others, and those that are answered do not go."""
    connections = [
        ConnectionState(address="a", is_known=True, since=1),
        ConnectionState(address="a", is_running=True, since=2),
        ConnectionState(address="a", since=4),
        ConnectionState(address="a", since=3),
        ConnectionState(address="a", since=9),
    ]

    assert set(surplus(connections, CROWD)) == {3}
    assert set(surplus([*connections, ConnectionState(address="a", since=10)], CROWD)) == {2, 3}
    assert set(surplus([*connections[:2], *connections[:3]], CROWD)) == {0}


def test_an_address_that_is_busy_keeps_nobody_else_out() -> None:
    """Its newest connections go; another address finds room."""
    busy = [ConnectionState(address="a", is_running=True, since=number) for number in range(6)]

    assert set(surplus(busy, CROWD)) == {4, 5}
    assert set(surplus([*busy, ConnectionState(address="b", since=9)], CROWD)) == {4, 5}


_GUESTS = st.lists(
    st.builds(
        ConnectionState,
        address=st.sampled_from("abc"),
        is_known=st.booleans(),
        is_running=st.booleans(),
        since=st.integers(0, 9).map(float),
    ),
    max_size=12,
)


@given(_GUESTS)
def test_what_is_left_fits(connections: list[ConnectionState]) -> None:
    """Never more than allowed, in all and from one address, and no more is closed than must be."""
    chosen = surplus(connections, CROWD)
    left = [connection for place, connection in enumerate(connections) if place not in chosen]
    fit = {address: min(4, sum(connection.address == address for connection in connections)) for address in "abc"}

    assert len(left) == min(6, sum(fit.values()))
    assert all(sum(connection.address == address for connection in left) <= 4 for address in "abc")
