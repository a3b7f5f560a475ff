"""The commands that ask a manager, against one in memory that is served for real."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dropflow.cli import watch
from dropflow.cli.main import main
from dropflow.cli.manager_records import write_record
from dropflow.cli.output import TableOutput
from dropflow.errors import LinkError
from dropflow.rest.operation_records import ResultList
from dropflow.rest.schema import SessionDetail
from dropflow.testing.fake_manager import FakeManager, manager_with_sessions
from managers.service import Service

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TOKEN = "a-token-of-this-test"  # noqa: S105 - of a server that lives as long as its test

Ask = Callable[..., "Answer"]


class Answer:
    """What a command left."""

    def __init__(self, status: int, out: bytes, err: bytes) -> None:
        self.status = status
        self.out = out
        self.text = out.decode(errors="replace")
        self.err = err.decode()

    @property
    def json(self) -> dict[str, Any]:
        """The one object on standard output."""
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which no manager runs and no key lies."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home" / name))
    for name in ("DROPFLOW_URL", "DROPFLOW_TOKEN", "DROPFLOW_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def manager() -> FakeManager:
    """A manager with sessions called running, failed, finished and cancelled."""
    return manager_with_sessions(nodes=("node-1", "node-2"), role="island")


@pytest.fixture
def service(manager: FakeManager) -> Iterator[Service]:
    """The manager, served."""
    served = Service(manager, token=TOKEN)
    served.start()
    yield served
    manager.close()
    served.close()


@pytest.fixture
def ask(service: Service, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Call ``dropflow`` with arguments; the manager and its token are in the environment."""
    monkeypatch.setenv("DROPFLOW_URL", service.url)
    monkeypatch.setenv("DROPFLOW_TOKEN", TOKEN)

    def call(*arguments: object) -> Answer:
        with pytest.raises(SystemExit, match=r"^\d+$") as ended:
            main([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        return Answer(int(ended.value.code or 0), out, err)

    return call


def test_sessions_are_listed_the_youngest_first(ask: Ask) -> None:
    """The table has one line for each session, with its status."""
    answer = ask("sessions")

    assert answer.status == 0
    assert [line.split()[:2] for line in answer.text.splitlines()[1:]] == [
        ["running", "RUNNING"],
        ["failed", "FAILED"],
        ["finished", "FINISHED"],
        ["cancelled", "CANCELLED"],
    ]


def test_every_command_answers_json(ask: Ask) -> None:
    """With --output json there is one object with an ok, and nothing beside it."""
    for arguments in (["sessions"], ["nodes"], ["status", "running"], ["log", "failed", "fan_a_0-0"]):
        answer = ask(*arguments, "--output", "json")

        assert answer.json["ok"] is True, arguments
        assert answer.err == ""


@pytest.mark.parametrize(("session", "status"), [("running", 0), ("finished", 0), ("failed", 1), ("cancelled", 1)])
def test_status_tells_by_its_exit_status(ask: Ask, session: str, status: int) -> None:
    """A session that FAILED or was CANCELLED gives 1."""
    assert ask("status", session).status == status


def test_status_names_root_causes_and_the_way_to_their_logs(ask: Ask, manager: FakeManager) -> None:
    """For each cause: the drop, the text, the hint, and the command that shows its log."""
    failure = manager.failures("failed").failures[0]
    answer = ask("status", "failed")

    assert failure.text in answer.text
    assert failure.hint in answer.text
    assert f"dropflow log failed {failure.drop}" in answer.text


def test_a_session_that_nobody_knows_is_told(ask: Ask) -> None:
    """The status is 2, and the message names the session."""
    for command in ("status", "watch", "cancel", "delete", "fetch"):
        answer = ask(command, "nowhere")

        assert answer.status == 2, command
        assert "nowhere" in answer.err


def test_watch_follows_a_session_to_its_end(ask: Ask, manager: FakeManager) -> None:
    """It ends when the session ends, with the status that the session deserves."""
    timer = threading.Timer(0.2, manager.complete, ["running"])
    timer.start()
    answer = ask("watch", "running", "--output", "json")
    timer.join()

    assert answer.status == 0
    assert answer.json["session"]["status"] == "FINISHED"


def test_watching_outlives_its_manager(
    ask: Ask, manager: FakeManager, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manager that is gone for a while is asked again, and the session is followed to its end."""
    again: list[Service] = []
    note = TableOutput.note

    def restart(output: TableOutput, text: str) -> None:
        note(output, text)
        if not again:
            again.append(Service(manager, port=service.port, token=TOKEN))
            again[0].start()
            manager.complete("running")

    monkeypatch.setattr(TableOutput, "note", restart)
    timer = threading.Timer(0.3, service.close)
    timer.start()
    answer = ask("watch", "running")
    timer.join()
    again[0].close()

    assert answer.status == 0
    assert "nothing listens there; asking again" in answer.err
    assert "known again" in answer.err
    assert answer.text.startswith("FINISHED")


def test_watching_begins_while_the_manager_is_away(
    ask: Ask, manager: FakeManager, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manager that is away at the first question is asked again, and the session is followed to its end."""
    service.close()
    again: list[Service] = []
    note = TableOutput.note

    def start(output: TableOutput, text: str) -> None:
        note(output, text)
        if not again:
            again.append(Service(manager, port=service.port, token=TOKEN))
            again[0].start()
            manager.complete("running")

    monkeypatch.setattr(TableOutput, "note", start)
    answer = ask("watch", "running")
    again[0].close()

    assert answer.status == 0
    assert "nothing listens there; asking again for up to 60 s" in answer.err
    assert answer.text.startswith("FINISHED")


def test_watching_a_manager_that_is_never_there_ends_with_3(ask: Ask, service: Service) -> None:
    """It is asked again for as long as was wished; its end is not known."""
    service.close()
    answer = ask("watch", "running", "--patience", "0.5", "--output", "json")

    assert answer.status == 3
    assert "away for 0.5 s: nothing listens there" in answer.json["error"]["text"]


def test_waiting_after_a_submission_asks_a_manager_that_is_away_again(
    ask: Ask, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manager took the graph and ended: the status says that the end is not known, and people were told at once."""
    follow = watch.follow

    def end(*arguments: Any, **options: Any) -> SessionDetail:
        service.close()
        return follow(*arguments, **options)

    monkeypatch.setattr(watch, "follow", end)
    answer = ask("submit", EXAMPLES / "hello.graph", "--wait", "--patience", "0.5")

    assert answer.status == 3
    assert "asking again for up to 0.5 s" in answer.err
    assert "away for 0.5 s" in answer.err


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--to", "http://no-such-host.invalid:8000"], "DF220"),
        (["--token", "wrong"], "DF300"),
        (["--to", "no address"], "DF100"),
    ],
)
def test_a_mistake_in_the_address_or_token_ends_watching_at_once(
    ask: Ask, options: list[str], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking again would give the same refusal."""
    monkeypatch.setattr(TableOutput, "note", lambda *_: pytest.fail("it is asked again"))
    answer = ask("watch", "running", *options)

    assert answer.status != 0
    assert f"error {code}" in answer.err


_STATUSES = {"finished": 0, "failed": 1, "cancelled": 1, "running": 3, "nowhere": 2}
"""Exit statuses by session; the nodes of ``running`` do not answer."""


@pytest.mark.parametrize("command", [("status",), ("watch", "--patience", 0)], ids=["status", "watch"])
@pytest.mark.parametrize(("session", "status"), _STATUSES.items())
def test_the_exit_status_says_how_a_session_is(
    session: str, status: int, command: tuple[object, ...], ask: Ask, manager: FakeManager
) -> None:
    """0 finished, 1 failed or cancelled, 2 no such session, 3 not known because nodes do not answer."""
    manager.hide("running", "n2 does not answer")
    answer = ask(command[0], session, *command[1:], "--output", "json")

    assert answer.status == status
    assert answer.json["ok"] == (status == 0)


def test_a_session_that_runs_has_not_failed(ask: Ask) -> None:
    """`status` of one that is not over is no failure."""
    assert ask("status", "running").status == 0


def test_people_are_told_at_once_that_the_state_is_not_known(ask: Ask, manager: FakeManager) -> None:
    """Standard error says why; when the nodes answer again the session is followed to its end."""
    manager.hide("running", "n2 does not answer")
    timer = threading.Timer(1.0, manager.complete, ["running"])
    timer.start()
    answer = ask("watch", "running")
    timer.join()

    assert answer.status == 0
    assert "the state of session running is not known: n2 does not answer; asking again for up to 60 s" in answer.err
    assert answer.text.startswith("FINISHED")


@pytest.mark.slow
def test_a_manager_that_stays_away_is_no_failure_of_the_session(
    ask: Ask, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time that was wished for, the status says that the end is not known, and the message how to go on."""
    monkeypatch.setenv("DROPFLOW_PATIENCE", "0.5")
    timer = threading.Timer(0.3, service.close)
    timer.start()
    answer = ask("watch", "running", "--output", "json")
    timer.join()

    assert answer.status == 3
    assert answer.json["error"]["code"] == "DF220"
    assert "away for 0.5 s: nothing listens there" in answer.json["error"]["text"]
    assert "dropflow watch running" in answer.json["error"]["hint"]


def test_a_manager_that_was_started_again_with_another_token_is_followed(
    ask: Ask, manager: FakeManager, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token on this host is looked up again; that the old one is refused is no bad input."""
    monkeypatch.delenv("DROPFLOW_TOKEN")
    write_record(service.url, role="island", name="i", token=TOKEN, everywhere=False)
    again: list[Service] = []
    note = TableOutput.note

    def restart(output: TableOutput, text: str) -> None:
        note(output, text)
        if not again:
            again.append(Service(manager, port=service.port, token="another-token"))  # noqa: S106 - as above
            again[0].start()
        elif len(again) == 1 and "token" in text:
            again.append(again[0])
            write_record(service.url, role="island", name="i", token="another-token", everywhere=False)  # noqa: S106
            manager.complete("running")

    monkeypatch.setattr(TableOutput, "note", restart)
    timer = threading.Timer(0.3, service.close)
    timer.start()
    answer = ask("watch", "running")
    timer.join()
    again[0].close()

    assert answer.status == 0, answer.err
    assert answer.text.startswith("FINISHED")


def test_a_session_that_is_deleted_while_it_is_followed_has_no_known_end(ask: Ask, manager: FakeManager) -> None:
    """It was there when the command began, so this is no bad input."""
    timer = threading.Timer(0.5, manager.delete, ["running"])
    timer.start()
    answer = ask("watch", "running")
    timer.join()

    assert answer.status == 3
    assert "was deleted" in answer.err


def test_cancel_and_delete_do_so(ask: Ask, manager: FakeManager) -> None:
    """What is cancelled says why; what is deleted is gone."""
    cancelled = ask("cancel", "running", "--reason", "it rains")
    ask("delete", "running")

    assert "CANCELLED" in cancelled.text
    assert "it rains" in cancelled.text
    assert "running" not in [info.session for info in manager.sessions()]


def test_a_session_that_may_go_on_is_not_told_as_cancelled(ask: Ask, manager: FakeManager) -> None:
    """Where nodes do not answer, `cancel` says so and ends with 3, as `status` does."""
    manager.hide("running", "n2 does not answer")
    answer = ask("cancel", "running", "--output", "json")

    assert (answer.status, answer.json["ok"], answer.json["status"]) == (3, False, "UNKNOWN")
    assert "n2 does not answer" in answer.json["text"]


def test_the_log_comes_as_it_is(ask: Ask, manager: FakeManager) -> None:
    """Standard output has the bytes of the log and nothing else."""
    wanted = b"".join(manager.log("failed", "fan_a_0-0").chunks)

    assert ask("log", "failed", "fan_a_0-0").out == wanted


def test_explain_tells_the_reasons(ask: Ask, manager: FakeManager) -> None:
    """The reasons are those that the node gives."""
    drop = manager.drop("failed", "fan_a_0-0")
    answer = ask("explain", "failed", drop.oid, "--output", "json")

    assert (answer.json["drop"], answer.json["state"]) == (drop.oid, "ERROR")
    assert answer.json["reasons"][: len(drop.reasons)] == list(drop.reasons)
    assert "DF105 no value 1" in answer.json["reasons"]


def test_results_are_fetched_with_their_bytes(ask: Ask, manager: FakeManager, tmp_path: Path) -> None:
    """Every result lands under its path below the directory, as it was."""
    answer = ask("fetch", "finished", "-o", "here", "--output", "json")
    results = {
        result.path: b"".join(manager.data("finished", result.oid).chunks)
        for result in manager.results("finished").results
    }

    assert answer.status == 0
    assert {path: (tmp_path / "here" / path).read_bytes() for path in results} == results
    assert {file["path"] for file in answer.json["files"]} == set(results)


def test_one_drop_is_fetched_alone(ask: Ask, manager: FakeManager, tmp_path: Path) -> None:
    """With DROP, only its content comes."""
    answer = ask("fetch", "finished", "fan_d_0-0", "-o", "here")
    files = [path for path in (tmp_path / "here").rglob("*") if path.is_file()]

    assert answer.status == 0
    assert [path.read_bytes() for path in files] == [b"".join(manager.data("finished", "fan_d_0-0").chunks)]


def test_what_cannot_be_fetched_is_named(ask: Ask, manager: FakeManager, tmp_path: Path) -> None:
    """The other results come all the same, everything that is missing is told at once, and the status is 1."""
    manager.write("finished", 22, b"another")
    wanted = manager.results("finished").results
    lost = wanted[0]
    manager.advance("finished", {lost.drop: "EXPIRED"})
    manager.results = lambda _: ResultList(results=wanted, missing=("far",))  # type: ignore[method-assign]
    answer = ask("fetch", "finished", "-o", "here", "--output", "json")
    told = ask("fetch", "finished", "-o", "here")

    assert answer.status == told.status == 1
    assert [(one["drop"], one["code"]) for one in answer.json["missing"]] == [(lost.oid, "DF121")]
    assert (answer.json["fetched"], answer.json["missed"], answer.json["silent"]) == (len(wanted) - 1, 1, ["far"])
    assert f"missing: {lost.path} of {lost.oid}" in told.text
    assert "node far, which could not be asked" in told.text
    assert not (tmp_path / "here" / lost.path).exists()


def test_a_node_that_breaks_off_is_a_miss(ask: Ask, manager: FakeManager) -> None:
    """Results that a manager refuses as a whole are missing, each with the reason."""
    manager.refuse("contents", LinkError("nothing listens there"))
    answer = ask("fetch", "finished", "-o", "here", "--output", "json")

    assert answer.status == 1
    assert {one["drop"] for one in answer.json["missing"]} == {one.oid for one in manager.results("finished").results}
    assert all("nothing listens there" in one["text"] for one in answer.json["missing"])


def test_what_is_there_is_not_fetched_again(ask: Ask, manager: FakeManager, tmp_path: Path) -> None:
    """A second fetch brings only what is missing or another content."""
    manager.write("finished", 22, b"another")
    first, second, *_ = manager.results("finished").results
    ask("fetch", "finished", "-o", "here")
    (tmp_path / "here" / first.path).unlink()
    damaged = tmp_path / "here" / second.path
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1] + b"?")
    answer = ask("fetch", "finished", "-o", "here", "--output", "json")

    total = len(manager.results("finished").results)
    assert (answer.status, answer.json["fetched"], answer.json["were_there"]) == (0, 2, total - 2)
    assert damaged.read_bytes() == whole
    assert {file["path"] for file in answer.json["files"] if not file["was_there"]} == {first.path, second.path}


def test_nodes_are_listed_with_their_load(ask: Ask) -> None:
    """One line a node; all alive gives 0."""
    answer = ask("nodes")

    assert answer.status == 0
    assert [line.split()[0] for line in answer.text.splitlines()[1:]] == ["node-1", "node-2"]


def test_submit_places_one_part_on_each_node(ask: Ask, manager: FakeManager) -> None:
    """The graph is cut into as many parts as nodes are alive, and each node gets one."""
    answer = ask("submit", EXAMPLES / "nested-scatter-gather.graph", "--session", "mine", "--output", "json")

    assert (answer.status, answer.json["session"], answer.json["parts"]) == (0, "mine", 2)
    assert set(manager.graph("mine").places) == {"node-1", "node-2"}


def test_submit_at_random_is_the_same_for_the_same_seed(ask: Ask, manager: FakeManager) -> None:
    """--random gives each drop a part by its seed."""
    graph = EXAMPLES / "nested-scatter-gather.graph"
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        ask("submit", graph, "--session", name, "--random", seed, "-n", 5)
    first, again, other = (manager.graph(name).part.tolist() for name in "abc")

    assert first == again != other
    assert set(first) == set(range(5))


def test_submit_and_wait_ends_as_run_does(ask: Ask, manager: FakeManager) -> None:
    """--wait follows the session and answers with the fields of run."""
    threading.Timer(0.5, lambda: manager.complete("mine")).start()
    answer = ask("submit", EXAMPLES / "hello.graph", "--session", "mine", "--wait", "--output", "json")
    wanted = {"ok", "session", "status", "drops", "states", "seconds", "failures", "notes", "output"}

    assert answer.status == 0
    assert wanted <= answer.json.keys()
    assert answer.json["states"] == {"COMPLETED": 2, "ERROR": 0, "SKIPPED": 0}


def test_a_session_that_fails_gives_one(ask: Ask, manager: FakeManager) -> None:
    """--wait ends with 1 when the session FAILED."""
    threading.Timer(0.5, lambda: (manager.fail("mine", 0, "no sky"), manager.complete("mine"))).start()
    answer = ask("submit", EXAMPLES / "hello.graph", "--session", "mine", "--wait")

    assert answer.status == 1
    assert "no sky" in answer.text


def test_a_bad_session_name_is_refused_before_anything_is_sent(ask: Ask, manager: FakeManager) -> None:
    """A name that is no safe path segment is refused in words."""
    before = len(manager.sessions())
    answer = ask("submit", EXAMPLES / "hello.graph", "--session", "../up")

    assert answer.status == 2
    assert "--session" in answer.err
    assert len(manager.sessions()) == before


def test_without_a_token_the_manager_refuses(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong token is told as such, with status 2."""
    monkeypatch.setenv("DROPFLOW_TOKEN", "wrong")
    answer = ask("sessions")

    assert answer.status == 2
    assert "token" in answer.err


def test_a_manager_that_is_not_there_is_told(ask: Ask, service: Service) -> None:
    """The address is named, with what to do; the status is that of trouble with managers."""
    service.close()
    answer = ask("sessions")

    assert answer.status == 3
    assert service.url in answer.err


def test_without_any_manager_the_way_to_one_is_told(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither named nor found: the message says how to start one."""
    monkeypatch.delenv("DROPFLOW_URL")
    answer = ask("sessions")

    assert answer.status == 2
    assert "dropflow up" in answer.err


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://h:port", "http://h/path"])
def test_addresses_that_are_none_are_refused(ask: Ask, url: str) -> None:
    """What is no address of a manager is refused before anything is sent."""
    answer = ask("sessions", "--to", url)

    assert answer.status == 2
    assert "not a manager URL" in answer.err
