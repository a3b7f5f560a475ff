"""The records of the managers that run on this host."""

import os
import socket
import stat
from pathlib import Path

import msgspec
import psutil
import pytest

from dropflow.errors import UsageError
from dropflow.submission.connection import connect_to, manager_url
from dropflow.submission.manager_records import (
    ManagerRecord,
    record_for,
    records_here,
    remove_record,
    token_directory,
    write_record,
)
from dropflow.submission.options import ConnectionOptions

pytestmark = pytest.mark.usefixtures("home")


def start(url: str, role: str = "node", *, token: str = "", everywhere: bool = False, group: str = "") -> Path:
    """Write the record of a manager that runs in this process."""
    return write_record(url, role=role, name=f"{role}-x", token=token or "secret", everywhere=everywhere, group=group)


def test_only_the_owner_can_read_a_record() -> None:
    """The file has mode 0600, in a directory of mode 0700."""
    path = start("http://127.0.0.1:8000")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_record_does_not_show_its_token() -> None:
    """The representation of a record, as in a traceback or a log, has no token."""
    start("http://127.0.0.1:8000")

    assert "secret" not in repr(records_here())


def test_all_names_of_loopback_are_one_address() -> None:
    """A record is found by each of them."""
    start("http://127.0.0.1:8000")

    for url in ("http://127.0.0.1:8000", "http://localhost:8000/", "http://[::1]:8000"):
        found = record_for(url)
        assert found is not None
        assert found.token == "secret"


def test_another_port_or_address_is_another_manager() -> None:
    """The token of one manager is not sent to another one, not even to another address of loopback."""
    start("http://127.0.0.1:8000")

    assert record_for("http://127.0.0.1:8001") is None
    assert record_for("http://127.0.0.2:8000") is None
    assert record_for("http://elsewhere:8000") is None


def test_a_server_on_all_addresses_is_reached_by_loopback_too() -> None:
    """Its record has another address, but it also listens on loopback."""
    start("http://some-name:8000", everywhere=True)

    assert record_for("http://127.0.0.1:8000") is not None


def test_the_record_of_a_killed_manager_is_ignored() -> None:
    """Another process may listen on its port now, and must not get its token."""
    path = start("http://127.0.0.1:8000")
    record = msgspec.json.decode(path.read_bytes(), type=ManagerRecord)
    for change in ({"started": record.started - 100.0}, {"process": 2**22 + 1}):
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, **change)))
        assert record_for("http://127.0.0.1:8000") is None
        assert records_here() == ()


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"url": 3}'])
def test_damaged_records_are_ignored(content: bytes) -> None:
    """A damaged file does not stop a command."""
    path = start("http://127.0.0.1:8000")
    path.write_bytes(content)

    assert records_here() == ()


def test_a_record_that_others_can_read_is_ignored() -> None:
    """Other users may have replaced it."""
    path = start("http://127.0.0.1:8000")
    path.chmod(0o644)

    assert record_for("http://127.0.0.1:8000") is None


def test_a_manager_removes_only_its_own_record() -> None:
    """Removing it twice is no error; the record of another process stays."""
    path = start("http://127.0.0.1:8000")
    other = start("http://127.0.0.1:8001")
    record = msgspec.json.decode(other.read_bytes(), type=ManagerRecord)
    other.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, process=1)))
    for known in (path, path, other):
        remove_record(known)

    assert not path.exists()
    assert other.exists()


def test_hosts_can_share_a_home_directory() -> None:
    """A manager on another host is found by its host name, but not by its loopback address."""
    path = start("http://host-a:8000")
    elsewhere = token_directory(host="host-a")
    elsewhere.mkdir(mode=0o700, parents=True)
    path.rename(elsewhere / path.name)

    assert record_for("http://host-a:8000") is not None
    assert records_here() == ()
    (elsewhere / path.name).rename(elsewhere / "127.0.0.1_8000")
    assert record_for("http://127.0.0.1:8000") is None


def test_a_record_identifies_the_process() -> None:
    """It has the process id, the uptime at its start, and the host."""
    start("http://127.0.0.1:8000")
    (record,) = records_here()

    assert (record.process, record.host) == (os.getpid(), socket.gethostname())
    assert record.started == psutil.Process().create_time() - psutil.boot_time()


def test_a_manager_is_found_after_the_clock_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times of its process and of the start of the host change together."""
    start("http://127.0.0.1:8000")
    created, boot = psutil.Process().create_time(), psutil.boot_time()
    monkeypatch.setattr(psutil.Process, "create_time", lambda _: created + 3600)
    monkeypatch.setattr(psutil, "boot_time", lambda: boot + 3600)

    assert [record.process for record in records_here()] == [os.getpid()]


# The manager that options name, and its credentials.


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

    monkeypatch.setattr("dropflow.submission.connection.Client", client)
    options = ConnectionOptions(url="http://a:1", token="mine")
    record("http://127.0.0.1:2", token="its own")
    for url in ("http://a:1", "http://127.0.0.1:2", "http://b:3"):
        connect_to(url, options)

    assert sent == [("http://a:1", "mine", None), ("http://127.0.0.1:2", "its own", None), ("http://b:3", None, None)]


@pytest.mark.parametrize(
    "address", ["http://[::1", "http://localhost:99999", "ftp://host", "http://a b", "http://host/x", "["]
)
def test_what_is_no_address_of_a_manager_is_refused(address: str) -> None:
    """The error has what was given, and no address ends a command as a bug of dropflow."""
    with pytest.raises(UsageError, match="is not a manager URL"):
        manager_url(ConnectionOptions(url=address))
