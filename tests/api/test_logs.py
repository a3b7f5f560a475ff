"""The log of a manager: the file is bounded, and its lines are read by pages as those of a session."""

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api import logs
from dropflow.api.auth import AccessRules
from dropflow.api.bottle_app import make_app
from dropflow.api.client import Client
from dropflow.api.logs import MANAGER_LOG, LogLine, LogQuery, ManagerLog
from dropflow.api.routes import Limits, Request, Response
from dropflow.cli.servers import server_process
from dropflow.cli.servers.server_process import start_logging
from dropflow.errors import NotFoundError, UsageError
from managers.manager_server import Service
from managers.web.page_templates import manager_templates
from managers.web.pages import ManagerLogView, log_routes
from tests.fake_manager import FakeManager, manager_with_sessions
from tests.regular_graphs import fan
from tests.virtual_clock import VirtualClock

_log = logging.getLogger("dropflow.here")


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    yield
    for handler in {*root.handlers} - {*handlers}:
        handler.close()
    root.handlers, root.level = handlers, level


def _path(root: Path) -> Path:
    """Let this process log as a manager does, and return its log."""
    path = root / MANAGER_LOG
    start_logging(level="info", file=str(path), as_json=False, own=path, secrets=["s3cret"])
    return path


def _texts(log: ManagerLog, **query: object) -> list[str]:
    return [line.text for line in log.page(msgspec.convert(query, LogQuery)).lines]


def test_lines_have_their_time_level_logger_and_text(tmp_path: Path) -> None:
    """A traceback belongs to its record; secrets are not shown, and control characters as escapes."""
    log = ManagerLog("n1", _path(tmp_path))
    _log.warning("node %s did not answer\nfor s3cret\x1b[31m", "n2")
    try:
        int("broken")
    except ValueError:
        _log.exception("failed")
    first, second, third, *rest = log.page(LogQuery()).lines

    assert (first.level, first.name, first.text, first.node, first.drop) == (
        "WARNING", "dropflow.here", "node n2 did not answer", "n1", "",
    )  # fmt: skip
    assert second.text == r"    for ***\x1b[31m"
    assert (third.level, third.text) == ("ERROR", "failed")
    assert rest[-1].text == "    ValueError: invalid literal for int() with base 10: 'broken'"
    assert {line.level for line in rest} == {"ERROR"}


def test_lines_are_selected(tmp_path: Path) -> None:
    """By level, text and logger; a query for another node or a drop finds nothing."""
    log = ManagerLog("n1", _path(tmp_path))
    _log.info("one")
    _log.error("Two")

    assert _texts(log, level="WARNING") == ["Two"]
    assert _texts(log, text="two") == _texts(log, text="two", drop="here", node="n1") == ["Two"]
    assert _texts(log, drop="elsewhere") == _texts(log, node="n2") == _texts(log, oid="x") == []


@pytest.mark.slow
@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    limit=st.integers(1, 20),
    level=st.sampled_from(["", "WARNING"]),
)
def test_pages_have_each_line_once(
    counts: list[int], limit: int, level: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Back to the first line, and forward while lines are added: in their order, none twice and none left out."""
    path = tmp_path_factory.mktemp("log") / MANAGER_LOG
    log, wanted = ManagerLog("n1", path), [f"{number}" for number in range(sum(counts))]
    query = msgspec.convert({"level": level, "limit": limit}, LogQuery)
    forward: list[LogLine] = []
    after = "-:-1"
    with path.open("w") as file:
        numbers = iter(wanted)
        for count in counts:
            for _ in range(count):
                file.write(f"2026-11-22T20:15:04.113Z WARNING dropflow.x: {next(numbers)}\n")
                file.write("2026-11-22T20:15:04.113Z INFO    dropflow.x: other\n" if level else "")
            file.flush()
            is_last = False
            while not is_last:
                page = log.page(msgspec.structs.replace(query, after=after))
                forward, after, is_last = [*forward, *page.lines], page.newer, page.is_last
    back: list[LogLine] = []
    page = log.page(query)
    while True:
        back = [*page.lines, *back]
        if page.is_first:
            break
        page = log.page(msgspec.structs.replace(query, before=page.older))

    assert [line.text for line in forward] == [line.text for line in back] == wanted


def test_the_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most two files are kept, with the last lines; a process that is started again appends."""
    monkeypatch.setattr(server_process, "_MOST_BYTES", 2000)
    path = _path(tmp_path)
    for number in range(100):
        _log.info("line %d", number)
    _path(tmp_path)
    _log.info("again")

    assert {file.name for file in tmp_path.iterdir()} == {MANAGER_LOG, f"{MANAGER_LOG}.1"}
    assert all(file.stat().st_size <= 2000 for file in tmp_path.iterdir())
    texts = _texts(ManagerLog("n1", path))
    assert texts == [*(f"line {number}" for number in range(100 - len(texts) + 1, 100)), "again"]
    assert len(texts) > 20


def test_logs_are_written_beside_the_named_file(tmp_path: Path) -> None:
    """With another file as JSON, the own one has the same records; it cannot be both."""
    own, other = tmp_path / MANAGER_LOG, tmp_path / "other"
    start_logging(level="info", file=str(other), as_json=True, own=own)
    _log.info("hello")

    assert _texts(ManagerLog("n1", own)) == ["hello"]
    assert msgspec.json.decode(other.read_bytes())["text"] == "hello"
    with pytest.raises(UsageError, match="has the log as text"):
        start_logging(level="info", file=str(own), as_json=True, own=own)


def test_the_page_of_a_managers_log() -> None:
    """The page and its JSON have the lines that match, no links to drops, and escape what a line has."""
    manager = FakeManager()
    line = LogLine(time=1, node=manager.name, drop="", name="dropflow.api", level="ERROR", text="<b>bad</b>", at=0)
    manager.print_lines(manager.name, [line, msgspec.structs.replace(line, text="other", level="INFO")])
    routes = {route.path: route for route in log_routes(manager, manager_templates(None))}
    target = f"/nodes/{manager.name}/log"
    call = Request(path={"node": manager.name}, query=LogQuery(level="ERROR"), body=b"", headers={}, target=target)
    page = routes["/nodes/{node}/log"].handler(call)
    twin = routes["/nodes/{node}/log.json"].handler(call)

    assert isinstance(page, Response)
    text = page.body.decode() if isinstance(page.body, bytes) else str(page.body)
    assert "&lt;b&gt;bad&lt;/b&gt;" in text
    assert "other" not in text
    assert "/drops/" not in text
    assert f'data-api="../../api/v1/nodes/{manager.name}"' in text
    assert isinstance(twin, ManagerLogView)
    assert [one.text for one in twin.log.lines] == ["<b>bad</b>"]


def test_a_manager_without_a_log_is_an_error() -> None:
    """The error names the manager."""
    with pytest.raises(NotFoundError, match="manager n1 keeps no log"):
        ManagerLog("n1", None).page(LogQuery())


@pytest.mark.slow
def test_changes_are_logged_with_who_asked_for_them(tmp_path: Path) -> None:
    """Each request that may change something is a line with session, credential, client and status."""
    log = ManagerLog("n1", _path(tmp_path))
    service = Service(manager_with_sessions(), token="t")
    service.start()
    try:
        with Client(service.url, token="t") as client:
            client.sessions()
            client.delete("running")
            made = client.submit(fan(20)).session
    finally:
        service.close()

    assert _texts(log, text="credential=") == [
        "DELETE /api/v1/sessions/running session=running credential=token client=127.0.0.1 status=200",
        f"POST /api/v1/sessions session={made} credential=token client=127.0.0.1 status=201",
    ]


def test_refusals_are_logged_but_cannot_fill_the_log(tmp_path: Path) -> None:
    """A refusal tells its request, reason, client and status; one that repeats is counted, and so are too many."""
    log, clock = ManagerLog("n1", _path(tmp_path)), VirtualClock()
    app = make_app([], AccessRules(token="t"), Limits(), clock=clock)

    def ask(client: str, **more: str) -> None:
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/x", "HTTP_HOST": "localhost", "REMOTE_ADDR": client, **more}
        list(app(environ, lambda *_: None))

    ask("1")
    ask("1", REQUEST_METHOD="DELETE", HTTP_AUTHORIZATION="Bearer wrong")
    for number in range(100):
        ask(f"{number}")
    clock.advance(10)
    ask("1")
    texts = _texts(log, text="credential=refused")

    assert texts[:2] == [
        "GET /x: a token is needed credential=refused client=1 status=401",
        "DELETE /x: the token is wrong credential=refused client=1 status=401",
    ]
    assert len(texts) == 11
    assert texts[-1] == "GET /x: a token is needed (91 more refusals before it) credential=refused client=1 status=401"


def test_a_log_that_grows_while_it_is_read_has_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manager that logs faster than its log is read is answered with the lines of one reading."""
    path, line = tmp_path / MANAGER_LOG, "2026-11-22T20:15:04.113Z INFO    dropflow.x: one\n"
    path.write_text(line)
    read, reads = logs._rows, 0

    def growing(file: Path) -> list[str]:
        nonlocal reads
        reads += 1
        assert reads < 10
        rows = read(file)
        path.write_text(path.read_text() + line)
        return rows

    monkeypatch.setattr(logs, "_rows", growing)
    log = ManagerLog("n1", path)

    assert len(_texts(log)) == 2
    assert len(_texts(log)) > 2


def test_part_of_the_name_of_a_logger_is_found_in_any_case(tmp_path: Path) -> None:
    """Loggers of users' packages may have capital letters."""
    path = tmp_path / MANAGER_LOG
    path.write_text("2026-11-22T20:15:04.113Z INFO    MyPipeline.Clean: one\n")

    assert [_texts(ManagerLog("n1", path), drop=text) for text in ("pipeline", "CLEAN", "other")] == [
        ["one"],
        ["one"],
        [],
    ]
