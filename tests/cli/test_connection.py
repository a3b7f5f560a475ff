"""The manager that a command connects to, and its credentials."""

from pathlib import Path

import pytest

from dropflow.cli.connection import connect_to, manager_url
from dropflow.cli.manager_options import ConnectionOptions
from dropflow.cli.manager_records import write_record
from dropflow.errors import UsageError
from managers.service import Service
from tests.cli.answers import Command

pytestmark = pytest.mark.usefixtures("home")


def record(url: str, role: str = "node", *, token: str = "", group: str = "") -> Path:
    """Write the record of a manager that runs in this process."""
    return write_record(url, role=role, name=f"{role}-x", token=token or "secret", everywhere=False, group=group)


def test_the_only_manager_of_this_host_is_the_default() -> None:
    """Translators and daemons are not candidates: they have no sessions."""
    record("http://127.0.0.1:8000")
    record("http://127.0.0.1:8084", "translator")
    record("http://127.0.0.1:9000", "daemon")

    assert manager_url(ConnectionOptions()) == "http://127.0.0.1:8000"


def test_the_topmost_of_managers_that_started_together_is_the_default() -> None:
    """After `dropflow up`, it is the master."""
    for port, role in ((1, "node"), (2, "node"), (3, "island"), (4, "master"), (5, "translator")):
        record(f"http://127.0.0.1:{port}", role, group="up-1")

    assert manager_url(ConnectionOptions()) == "http://127.0.0.1:4"


def test_several_managers_need_a_choice() -> None:
    """The error names all of them."""
    record("http://127.0.0.1:8000")
    record("http://127.0.0.1:8001", "island")

    with pytest.raises(UsageError, match=r"8001.*8000"):
        manager_url(ConnectionOptions())


def test_the_token_of_an_option_is_for_one_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other managers get the token of their record, or a signature."""
    sent: list[tuple[str, str | None, bytes | None]] = []

    def client(url: str, *, token: str | None = None, secret: bytes | None = None, timeout: float) -> None:
        del timeout
        sent.append((url, token, secret))

    monkeypatch.setattr("dropflow.cli.connection.Client", client)
    options = ConnectionOptions(url="http://a:1", token="mine")  # noqa: S106
    record("http://127.0.0.1:2", token="its own")  # noqa: S106
    for url in ("http://a:1", "http://127.0.0.1:2", "http://b:3"):
        connect_to(url, options)

    assert sent == [("http://a:1", "mine", None), ("http://127.0.0.1:2", "its own", None), ("http://b:3", None, None)]


def test_a_wrong_token_is_bad_input(ask: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit status is 2, and the message is about the token."""
    monkeypatch.setenv("DROPFLOW_TOKEN", "wrong")
    answer = ask("sessions")

    assert answer.status == 2
    assert "token" in answer.err


def test_a_manager_that_cannot_be_reached(ask: Command, service: Service) -> None:
    """The message names the address; the exit status is 3."""
    service.close()
    answer = ask("sessions")

    assert answer.status == 3
    assert service.url in answer.err


def test_without_any_manager_the_message_says_how_to_start_one(ask: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """No manager is named, and none runs on this host: that has an exit status of its own, 5."""
    monkeypatch.delenv("DROPFLOW_URL")
    answer = ask("sessions")

    assert answer.status == 5
    assert "dropflow up" in answer.err


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://h:port", "http://h/path"])
def test_malformed_addresses_are_bad_input(ask: Command, url: str) -> None:
    """Nothing is sent."""
    answer = ask("sessions", "--to", url)

    assert answer.status == 2
    assert "not a manager URL" in answer.err
