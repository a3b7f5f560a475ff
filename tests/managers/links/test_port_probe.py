"""Whether hosts refuse connections."""

import socket

from managers.links.probes import refused_ports


def test_only_ports_without_a_process_are_refused() -> None:
    """A port with a listener is not refused, also if the listener accepts nothing; nor is a host that is unknown."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as other:
        open_port, closed_port = (each.getsockname()[1] for each in (listener, other))
        other.close()
        found = refused_ports(
            {
                "alive": f"tcp://127.0.0.1:{open_port}",
                "gone": f"tcp://127.0.0.1:{closed_port}",
                "unknown": "tcp://no-such-host.invalid:1",
            }
        )

    assert found == {"alive": False, "gone": True, "unknown": False}


def test_nothing_to_try_takes_no_time() -> None:
    """Without addresses there is no answer to wait for."""
    assert refused_ports({}) == {}
