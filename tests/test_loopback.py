"""The loopback interface."""

from dropflow.api.error_body import is_loopback


def test_loopback_has_names_and_addresses() -> None:
    """Only localhost, 127.0.0.0/8 and ::1 are loopback."""
    assert all(map(is_loopback, ("localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("", "example.org", "10.0.0.1", "::", "localhost.evil.example")))
