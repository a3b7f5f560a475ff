"""Which managers run on this host, and which of them a command asks."""

import os
import socket
import stat
from pathlib import Path

import msgspec
import psutil
import pytest

from dropflow.cli.connection import ConnectionOptions, connect_to, manager_url
from dropflow.cli.manager_records import ManagerRecord, record_for, records_here, remove_record, write_record
from dropflow.cli.paths import token_directory
from dropflow.errors import UsageError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which no manager runs and no key lies."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


def start(url: str, role: str = "node", *, token: str = "", everywhere: bool = False, group: str = "") -> Path:
    """The record of a manager in this process."""
    return write_record(url, role=role, name=f"{role}-x", token=token or "secret", everywhere=everywhere, group=group)


def test_a_record_is_for_its_owner_only() -> None:
    """The file has mode 0600, in a directory of mode 0700."""
    path = start("http://127.0.0.1:8000")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_record_does_not_show_its_token() -> None:
    """A record in a traceback or a log tells where, and not how to enter."""
    start("http://127.0.0.1:8000")

    assert "secret" not in repr(records_here())


def test_a_manager_is_found_under_all_its_names() -> None:
    """Loopback is one place, whatever it is called."""
    start("http://127.0.0.1:8000")

    for url in ("http://127.0.0.1:8000", "http://localhost:8000/", "http://[::1]:8000"):
        found = record_for(url)
        assert found is not None
        assert found.token == "secret"  # noqa: S105


def test_another_port_or_address_is_another_manager() -> None:
    """The token of one manager is not sent to another one, not even to another address of loopback."""
    start("http://127.0.0.1:8000")

    assert record_for("http://127.0.0.1:8001") is None
    assert record_for("http://127.0.0.2:8000") is None
    assert record_for("http://elsewhere:8000") is None


def test_a_server_on_all_addresses_is_reached_by_loopback_too() -> None:
    """It advertises its name, but on its host loopback does as well."""
    start("http://some-name:8000", everywhere=True)

    assert record_for("http://127.0.0.1:8000") is not None


def test_what_a_killed_manager_left_is_not_believed() -> None:
    """Somebody else may listen on its port by now, and must not be sent its token."""
    path = start("http://127.0.0.1:8000")
    record = msgspec.json.decode(path.read_bytes(), type=ManagerRecord)
    for change in ({"started": record.started - 100.0}, {"process": 2**22 + 1}):
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, **change)))
        assert record_for("http://127.0.0.1:8000") is None
        assert records_here() == ()


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"url": 3}'])
def test_files_that_are_no_records_are_passed_over(content: bytes) -> None:
    """A damaged file does not stop a command."""
    path = start("http://127.0.0.1:8000")
    path.write_bytes(content)

    assert records_here() == ()


def test_a_record_that_others_can_read_is_not_believed() -> None:
    """Whoever could read it may have replaced it."""
    path = start("http://127.0.0.1:8000")
    path.chmod(0o644)

    assert record_for("http://127.0.0.1:8000") is None


def test_the_record_goes_with_its_manager() -> None:
    """Forgetting removes the file, again is no error, and another process's file stays."""
    path = start("http://127.0.0.1:8000")
    other = start("http://127.0.0.1:8001")
    record = msgspec.json.decode(other.read_bytes(), type=ManagerRecord)
    other.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, process=1)))
    for known in (path, path, other):
        remove_record(known)

    assert not path.exists()
    assert other.exists()


def test_a_home_that_hosts_share_serves_them_all() -> None:
    """A manager on another host is found by its name; its loopback address means nothing here."""
    path = start("http://host-a:8000")
    elsewhere = token_directory(host="host-a")
    elsewhere.mkdir(mode=0o700, parents=True)
    path.rename(elsewhere / path.name)

    assert record_for("http://host-a:8000") is not None
    assert records_here() == ()
    (elsewhere / path.name).rename(elsewhere / "127.0.0.1_8000")
    assert record_for("http://127.0.0.1:8000") is None


def test_the_only_manager_is_asked() -> None:
    """Without --to, the manager that runs here is meant; translators and daemons hold no sessions."""
    start("http://127.0.0.1:8000")
    start("http://127.0.0.1:8084", "translator")
    start("http://127.0.0.1:9000", "daemon")

    assert manager_url(ConnectionOptions()) == "http://127.0.0.1:8000"


def test_of_managers_started_together_the_topmost_is_asked() -> None:
    """After dropflow up, the master is meant."""
    for port, role in ((1, "node"), (2, "node"), (3, "island"), (4, "master"), (5, "translator")):
        start(f"http://127.0.0.1:{port}", role, group="up-1")

    assert manager_url(ConnectionOptions()) == "http://127.0.0.1:4"


def test_of_several_managers_none_is_guessed() -> None:
    """All are named, and one is to be chosen."""
    start("http://127.0.0.1:8000")
    start("http://127.0.0.1:8001", "island")

    with pytest.raises(UsageError, match=r"8001.*8000"):
        manager_url(ConnectionOptions())


def test_a_token_by_hand_goes_to_the_manager_that_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its children are asked with their own proof."""
    told: list[tuple[str, str | None, bytes | None]] = []

    def client(url: str, *, token: str | None = None, secret: bytes | None = None, timeout: float) -> None:
        del timeout
        told.append((url, token, secret))

    monkeypatch.setattr("dropflow.cli.connection.Client", client)
    target = ConnectionOptions(url="http://a:1", token="mine")  # noqa: S106
    start("http://127.0.0.1:2", token="its own")  # noqa: S106
    for url in ("http://a:1", "http://127.0.0.1:2", "http://b:3"):
        connect_to(url, target)

    assert told == [("http://a:1", "mine", None), ("http://127.0.0.1:2", "its own", None), ("http://b:3", None, None)]


def test_the_record_says_who_it_is() -> None:
    """Process, start and host are those of the manager."""
    start("http://127.0.0.1:8000")
    (record,) = records_here()

    assert (record.process, record.host) == (os.getpid(), socket.gethostname())
    assert record.started == psutil.Process().create_time()
