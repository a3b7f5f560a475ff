"""Addresses of engines that are wrong, or where no engine answers."""

import socket
import threading
from collections.abc import Iterator

import pytest

from dropflow.errors import BadParameterError, LinkError
from dropflow.runners.external import check_address, refuse_silent


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        ("dask", "tcp://host:8786"),
        ("dask", "tls://[::1]:8786"),
        ("dask", "host:8786"),
        ("ray", "auto"),
        ("ray", "host:6379"),
    ],
)
def test_addresses_of_engines_are_accepted(kind: str, address: str) -> None:
    """These are what the engines print."""
    check_address(kind, address)


@pytest.mark.parametrize(
    ("kind", "address", "problem"),
    [
        ("dask", "http://host:8786", "has the scheme 'http'"),
        ("dask", "auto", "is not a host and a port"),
        ("dask", "tcp://host", "is not a host and a port"),
        ("dask", "tcp://host:99999", "is not a host and a port"),
        ("dask", "tcp://:8786", "is not a host and a port"),
        ("ray", "ray://host:10001", "cannot be used through a Ray Client server"),
        ("ray", "tcp://host:6379", "has the scheme 'tcp'"),
        ("ray", "host", "is not a host and a port"),
        ("ray", "host:x", "is not a host and a port"),
    ],
)
def test_others_are_refused_with_an_example(kind: str, address: str, problem: str) -> None:
    """The error has the address, what is wrong with it, and one that would do."""
    with pytest.raises(BadParameterError, match=problem) as caught:
        check_address(kind, address)

    assert repr(address) in caught.value.text
    assert f"--runner {kind}=" in caught.value.hint


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def at(listener: socket.socket) -> str:
    """The address of a socket."""
    return f"127.0.0.1:{listener.getsockname()[1]}"


def test_an_address_without_a_process_is_refused_at_once(listener: socket.socket) -> None:
    """The connection is refused; so is a host that does not exist."""
    address = at(listener)
    listener.close()
    for kind, what in (("dask", "Dask scheduler"), ("ray", "Ray cluster")):
        with pytest.raises(LinkError, match=f"no {what} that answers: Connection refused") as caught:
            refuse_silent(kind, address, 5.0)
        assert caught.value.where == address


def test_a_process_that_does_not_greet_is_no_scheduler_of_dask(listener: socket.socket) -> None:
    """Another service may wait for the client to speak, or close the connection. That of Ray waits, too."""
    with pytest.raises(LinkError, match=r"nothing was received in 0\.05 s"):
        refuse_silent("dask", f"tcp://{at(listener)}", 0.05)
    refuse_silent("ray", at(listener), 5.0)
    closing = threading.Thread(target=lambda: [listener.accept()[0].close() for _ in range(3)])
    closing.start()
    with pytest.raises(LinkError, match="the connection was closed"):
        refuse_silent("dask", f"tcp://{at(listener)}", 5.0)
    closing.join()


def test_a_process_that_greets_is_accepted(listener: socket.socket) -> None:
    """What it sends is not looked at. Addresses with encryption and of other networks are left to the engine."""

    def greet() -> None:
        with listener.accept()[0] as connection:
            connection.sendall(b"x")

    greeting = threading.Thread(target=greet)
    greeting.start()
    refuse_silent("dask", f"tcp://{at(listener)}", 5.0)
    greeting.join()
    refuse_silent("dask", f"tls://{at(listener)}", 5.0)
    refuse_silent("dask", "ucx://no-such-host:1", 5.0)
