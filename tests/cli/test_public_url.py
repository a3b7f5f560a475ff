"""The option ``--public-url``: addresses that cannot be used are refused before anything is started."""

import pytest

from tests.cli.answers import Command


@pytest.mark.parametrize(
    ("role", "address", "reason"),
    [
        ("node", "hub.example.org/{port}", "is not an address"),
        ("node", "https://hub.example.org/a?b=c", "is not an address"),
        ("node", "https://hub-{port}.example.org/", "is not an address"),
        ("node", "https://hub.example.org/; script-src *", "is not an address"),
        ("up", "https://hub.example.org/dropflow/", "needs {port}"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(command: Command, role: str, address: str, reason: str) -> None:
    """The message names the address, and what it lacks."""
    answer = command(role, "--public-url", address)

    assert answer.status == 2
    assert address in answer.err
    assert reason in answer.err
