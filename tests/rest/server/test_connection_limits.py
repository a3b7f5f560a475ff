"""Which connections are closed because they are too slow or too many."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.http_server import ConnectionLimits, ConnectionState, is_overdue, surplus

LIMITS = ConnectionLimits(most=6, per_address=4, head=15, body=300, still=60, kept=120)

TIMES = {
    # what the connection does           seconds that are allowed
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
def test_each_stage_has_its_time_limit(fields: dict[str, object], seconds: float | None) -> None:
    """A connection is closed after the time limit of its stage; computing an answer has no limit."""
    connection = ConnectionState(address="a", **fields)  # type: ignore[arg-type]
    ages = [age for age in (1, 14, 16, 59, 61, 119, 121, 299, 301, 10**6) if is_overdue(connection, age, LIMITS)]

    assert ages == [age for age in (1, 14, 16, 59, 61, 119, 121, 299, 301, 10**6) if seconds and age > seconds]


def test_the_oldest_idle_connection_is_closed() -> None:
    """Among those of one address, those with a credential come last and those with a running request never."""
    connections = [
        ConnectionState(address="a", is_known=True, since=1),
        ConnectionState(address="a", is_running=True, since=2),
        ConnectionState(address="a", since=4),
        ConnectionState(address="a", since=3),
        ConnectionState(address="a", since=9),
    ]

    assert set(surplus(connections, LIMITS)) == {3}
    assert set(surplus([*connections, ConnectionState(address="a", since=10)], LIMITS)) == {2, 3}
    assert set(surplus([*connections[:2], *connections[:3]], LIMITS)) == {0}


def test_a_busy_address_does_not_exclude_others() -> None:
    """The newest connections of the busy address are closed; one of another address is kept."""
    busy = [ConnectionState(address="a", is_running=True, since=number) for number in range(6)]

    assert set(surplus(busy, LIMITS)) == {4, 5}
    assert set(surplus([*busy, ConnectionState(address="b", since=9)], LIMITS)) == {4, 5}


_CONNECTIONS = st.lists(
    st.builds(
        ConnectionState,
        address=st.sampled_from("abc"),
        is_known=st.booleans(),
        is_running=st.booleans(),
        since=st.integers(0, 9).map(float),
    ),
    max_size=12,
)


@given(_CONNECTIONS)
def test_the_limits_hold_and_no_more_is_closed(connections: list[ConnectionState]) -> None:
    """The limits in total and per address hold, and no more connections are closed than necessary."""
    chosen = surplus(connections, LIMITS)
    left = [connection for place, connection in enumerate(connections) if place not in chosen]
    fit = {address: min(4, sum(connection.address == address for connection in connections)) for address in "abc"}

    assert len(left) == min(6, sum(fit.values()))
    assert all(sum(connection.address == address for connection in left) <= 4 for address in "abc")


_RACE = """
import sys, threading
import msgspec
from dropflow.api.rest_server import prepare_records

sys.setswitchinterval(1e-5)
records = []
for _ in range(40):
    inner = msgspec.defstruct("Inner", [(f"a{k}", int, 0) for k in range(20)])
    record = msgspec.defstruct("Record", [(f"f{k}", list[inner] | None, None) for k in range(20)])
    records.append((record, msgspec.msgpack.encode(record([inner()]))))
prepare_records()
for record, data in records:
    ready = threading.Barrier(4)
    def decode():
        ready.wait()
        msgspec.msgpack.decode(data, type=record)
    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@pytest.mark.slow
def test_records_are_prepared_before_threads_decode_them() -> None:
    """Without that, the process ends with a segmentation fault within the first ten records."""
    done = subprocess.run([sys.executable, "-c", _RACE], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
