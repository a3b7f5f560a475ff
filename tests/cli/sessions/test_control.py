"""Commands about sessions and nodes: ``sessions``, ``pause``, ``cancel``, ``resume``, ``retry``, ``log``, ``nodes``."""

from pathlib import Path

import msgspec
import pytest

from dropflow.api.drop_records import DropQuery
from dropflow.api.logs import LogLine, LogPage, LogQuery
from dropflow.api.node_records import NodeInfo
from dropflow.api.requests import DEFAULT_DRAIN, DrainRequest
from dropflow.api.session_records import UserUse
from dropflow.cli.sessions.control import SessionsReply
from dropflow.cli.sessions.session_replies import SessionChange
from dropflow.errors import LinkError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.templates import Argument
from dropflow.session_options import RunOptions
from dropflow.sessions.local_run import prepare_directory, run
from managers.manager_server import Service
from tests.cli.answers import Command
from tests.cli.graph_documents import document, node
from tests.fake_manager import FakeManager, manager_with_sessions
from tests.regular_graphs import fan


@pytest.mark.slow
def test_sessions_are_listed_the_youngest_first(ask: Command) -> None:
    """The table has one line for each session, with its status."""
    answer = ask("sessions")

    assert answer.status == 0
    assert [line.split()[:2] for line in answer.text.splitlines()[1:]] == [
        ["running", "RUNNING"],
        ["failed", "FAILED"],
        ["finished", "FINISHED"],
        ["cancelled", "CANCELLED"],
    ]


@pytest.mark.slow
def test_sessions_show_their_users(ask: Command, manager: FakeManager) -> None:
    """The list has a column of users if a session has one, and so has what is shown of a session."""
    assert " user " not in ask("sessions").text
    manager.add(fan(2), "hers", user="alice")

    assert [line.split()[-2] for line in ask("sessions").text.splitlines()] == ["user", "alice", "-", "-", "-", "-"]
    assert "  of user alice, on " in ask("watch", "hers", "--once").text


def test_sessions_show_what_users_with_limits_run() -> None:
    """Each of them has a line with the numbers; users without limits have none, and all are in the JSON output."""
    both = UserUse(user="alice", sessions=1, drops=1200, most_sessions=10, most_drops=2_000_000)
    one = UserUse(user="bob", sessions=0, drops=0, most_sessions=1)
    reply = SessionsReply(url="u", sessions=(), users=(both, one, UserUse(user="carol", sessions=3, drops=9)))

    assert [*reply.lines()][1:] == [
        "user alice runs 1 of 10 sessions, 1,200 of 2,000,000 drops",
        "user bob runs 0 of 1 session, 0 drops",
    ]


def test_only_a_session_without_open_drops_is_settled_to_100_percent() -> None:
    """A share is rounded down: 504 drops of 505 are 99 %."""
    known = manager_with_sessions().sessions()[0]
    rows = [msgspec.structs.replace(known, drops=505, settled=settled) for settled in (504, 505)]
    _, *lines = SessionsReply(url="", sessions=tuple(rows)).lines()

    assert [line.partition(" %")[0].split()[-1] for line in lines] == ["99", "100"]


@pytest.mark.slow
def test_json_output_is_one_object(ask: Command) -> None:
    """With --output json there is one object with `ok`, and nothing on standard error."""
    for arguments in (["sessions"], ["nodes"], ["watch", "running", "--once"], ["log", "failed", "fan_a_0-0"]):
        answer = ask(*arguments, "--output", "json")

        assert answer.json["ok"] is True, arguments
        assert answer.err == ""


@pytest.mark.slow
@pytest.mark.parametrize(("session", "status"), [("running", 0), ("finished", 0), ("failed", 1), ("cancelled", 1)])
def test_the_exit_status_depends_on_the_session(ask: Command, session: str, status: int) -> None:
    """It is 1 for a session that FAILED or was CANCELLED."""
    assert ask("watch", session, "--once").status == status


def test_a_session_is_shown_with_its_root_causes(ask: Command, manager: FakeManager) -> None:
    """Each root cause has its text, its hint, and the command that prints its log."""
    failure = manager.failures("failed").failures[0]
    answer = ask("watch", "failed", "--once")

    assert failure.text in answer.text
    assert failure.hint in answer.text
    assert f"dropflow log failed {failure.drop}" in answer.text


@pytest.mark.slow
def test_an_unknown_session_is_bad_input(ask: Command) -> None:
    """The exit status is 2, and the message names the session."""
    for command in ("watch", "watch --once", "cancel", "delete", "fetch"):
        answer = ask(*command.split(), "nowhere")

        assert answer.status == 2, command
        assert "nowhere" in answer.err


def test_a_running_session_has_not_failed(ask: Command) -> None:
    """The exit status of `watch --once` is 0."""
    assert ask("watch", "running", "--once").status == 0


@pytest.mark.slow
def test_a_session_is_paused_and_resumed(ask: Command, manager: FakeManager) -> None:
    """The answers have the state; a session that runs stays as it is, so that the command may be repeated."""
    assert ask("pause", "running").text == "running: PAUSED\n"
    assert manager.session("running").status == "PAUSED"
    for _ in range(2):
        assert ask("resume", "running").text.startswith("running  RUNNING  ")


@pytest.mark.slow
def test_a_session_is_rebalanced(ask: Command, manager: FakeManager) -> None:
    """The manager is asked once; one that is over is refused."""
    assert ask("rebalance", "running").text == "running: RUNNING\n"
    assert manager.rebalanced == ["running"]
    refused = ask("rebalance", "finished")
    assert refused.status != 0
    assert "session 'finished' is FINISHED" in refused.err


def test_a_node_is_drained(ask: Command, manager: FakeManager) -> None:
    """The answer tells what happens to each session, also when the command is repeated."""
    for _ in range(2):
        answer = ask("drain", manager.name, "--grace", "2m")
        assert answer.text.startswith(f"node {manager.name} takes no sessions any more, and ends within 120 s\n")
        assert "session running: it goes to others\n" in answer.text
        assert "3 sessions that ended before: their files on this node stay in its directory" in answer.text
    assert manager.drained == [(manager.name, DrainRequest(grace=120.0))] * 2
    ask("drain", manager.name)
    assert manager.drained[-1] == (manager.name, DEFAULT_DRAIN)
    assert manager.nodes()[0].state == "draining"
    unknown = ask("drain", "nowhere")
    assert unknown.status == 2
    assert "there is no node 'nowhere'" in unknown.err


def test_a_session_with_a_majority_is_not_forced(ask: Command) -> None:
    """The manager refuses to have it go on without one."""
    refused = ask("resume", "running", "--force")
    assert refused.status != 0
    assert "session 'running' has a majority" in refused.err


@pytest.mark.slow
def test_single_drops_can_be_cancelled(ask: Command, manager: FakeManager) -> None:
    """The session goes on, and the answer has the state of each drop."""
    open_drops = manager.drops("running", DropQuery(state="INITIALIZED")).drops[:2]
    reply = ask("cancel", "running", *(drop.oid for drop in open_drops), "--output", "json").json

    assert reply["drops"] == {drop.oid: "CANCELLED" for drop in open_drops}
    assert manager.session("running").status == "RUNNING"


@pytest.mark.slow
def test_drops_whose_node_does_not_answer_are_named(
    ask: Command, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are cancelled all the same, and the exit status is 3."""
    first, second = (drop.oid for drop in manager.drops("running", DropQuery(state="INITIALIZED")).drops[:2])
    cancel_drop = manager.cancel_drop

    def cancel(session: str, drop: str, **more: object) -> object:
        if drop == first:
            raise LinkError("n2 does not answer")
        return cancel_drop(session, drop, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(manager, "cancel_drop", cancel)
    answer = ask("cancel", "running", first, second)

    assert answer.status == 3
    assert answer.text.splitlines()[0] == f"{second}: CANCELLED"
    assert answer.text.splitlines()[1].startswith(f"{first}: UNKNOWN (")
    assert "n2 does not answer" in answer.text


@pytest.mark.slow
def test_sessions_can_be_cancelled_and_deleted(ask: Command, manager: FakeManager) -> None:
    """The answer to `cancel` has the reason; a deleted session is not listed."""
    cancelled = ask("cancel", "running", "--reason", "it rains")
    ask("delete", "running")

    assert cancelled.text == "running: CANCELLED (it rains)\n"
    assert "running" not in [info.session for info in manager.sessions()]


@pytest.mark.parametrize(
    ("text", "line"), [("cancelled: enough", "s: CANCELLED (enough)"), ("cancelled", "s: CANCELLED")]
)
def test_the_status_is_not_repeated_before_the_reason(text: str, line: str) -> None:
    """Nodes report "cancelled" and the reason, which is also the text of a session that is still being cancelled."""
    assert list(SessionChange(session="s", status="CANCELLED", text=text).lines()) == [line]
    assert list(SessionChange(session="s", status="RUNNING", text=text).lines()) == [f"s: RUNNING ({text})"]


@pytest.mark.slow
def test_cancel_reports_nodes_that_do_not_answer(ask: Command, manager: FakeManager) -> None:
    """Their drops may still run, so the exit status is 3, as with `watch`."""
    manager.hide("running", "n2 does not answer")
    answer = ask("cancel", "running", "--output", "json")

    assert (answer.status, answer.json["ok"], answer.json["status"]) == (3, False, "UNKNOWN")
    assert "n2 does not answer" in answer.json["text"]


# ``dropflow nodes``.


@pytest.mark.slow
def test_nodes_are_listed_with_their_load(ask: Command) -> None:
    """There is one line a node; the exit status is 0 if all are alive."""
    answer = ask("nodes")

    assert answer.status == 0
    lines = answer.text.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["node-1", "node-2"]
    assert lines[3] == "2 nodes on 1 host with 2 cores"  # they share its two processors


@pytest.mark.slow
def test_a_node_that_does_not_answer_keeps_its_address(ask: Command, manager: FakeManager) -> None:
    """The reason is behind the address, which is needed to start the node again."""
    url = "http://node-2:18002"
    manager.set_node(NodeInfo(name="node-2", url=url, state="suspect", text="nothing listens there"))

    assert ask("nodes").text.splitlines()[2].endswith(f"{url}  nothing listens there")


def test_components_of_nodes_are_listed(ask: Command, tmp_path: Path) -> None:
    """Without a graph there is one line a node; with one, also what of it each node cannot run."""
    graph = tmp_path / "g.graph"
    graph.write_bytes(
        document(
            [
                node("image", "BashShellApp", command="wsclean -h"),
                node("copy", "DALiuGEApp", dropclass="dlg.apps.simple.CopyApp"),
            ],
            [],
        )
    )

    alone, lacking = ask("nodes", "--components"), ask("nodes", "--components", graph)

    assert alone.status == 0
    assert [line.split()[0] for line in alone.text.splitlines()] == ["node", "node-1", "node-2"]
    assert lacking.status == 1
    assert [line.split()[:2] for line in lacking.text.splitlines()[-2:]] == [["image", "node-1"], ["image", "node-2"]]


# ``dropflow resume`` and ``retry`` with a session of a manager, or with the directory of a run.


@pytest.mark.slow
def test_a_cancelled_session_is_resumed(ask: Command, manager: FakeManager) -> None:
    """The answer is that of submit: name, status, and where to look."""
    answer = ask("resume", "cancelled")

    assert answer.status == 0
    assert answer.text.startswith("cancelled  RUNNING  41 drops")
    assert "dropflow watch cancelled" in answer.text
    assert manager.session("cancelled").status == "RUNNING"


@pytest.mark.slow
def test_failed_drops_are_tried_again(ask: Command, manager: FakeManager) -> None:
    """All of them, or those that are named; others are refused."""
    refused = ask("retry", "failed", "fan_a_0-2")
    assert refused.status == 2
    assert "did not fail" in refused.err
    assert ask("retry", "failed", "fan_a_0-0").status == 0
    assert manager.session("failed").status == "RUNNING"


def test_a_session_runs_again_from_a_drop(ask: Command, manager: FakeManager) -> None:
    """The drop and what depends on it run, and nothing else; drops that failed are not named at the same time."""
    refused = ask("retry", "finished", "fan_a_0-1", "--from", "fan_a_0-0")
    assert refused.status == 2
    assert "DROP (fan_a_0-1) and --from cannot be given together" in refused.err
    assert manager.session("finished").status == "FINISHED"
    assert ask("retry", "finished", "--from", "fan_a_0-0", "--from", "fan_d_0-1").status == 0
    assert manager.session("finished").states["INITIALIZED"] == 4


@pytest.mark.slow
def test_a_run_starts_again_from_a_drop(ask: Command, tmp_path: Path) -> None:
    """In its directory, with a parameter that is changed; a name stands for all drops of a node."""
    builder = GraphBuilder("g").data("out")
    arguments = (Argument(name="command", value="echo {word} > %o0"), Argument(name="word", value="old"))
    builder.app("SAY", component="dlg.apps.bash_shell_app.BashShellApp", arguments=arguments)
    run(builder.connect("SAY", "out").build(), prepare_directory(tmp_path / "run"), RunOptions(runner="inline"))
    command = ("retry", str(tmp_path / "run"), "--runner", "inline", "--from")
    answer = ask(*command, "say", "--set", "word=new")
    refused = ask(*command, "none")

    assert (answer.status, refused.status) == (0, 2)
    assert "2 drops run again as was asked for" in answer.text
    assert (tmp_path / "run" / "results" / "g_out_0.txt").read_text() == "new\n"
    assert "there is no drop 'none'" in refused.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("retry", "running", "--from", "fan_a_0-0"), "session 'running' is not over: it is RUNNING"),
        (("resume", "finished"), "nothing is left to run"),
        (("retry", "finished"), "no drop of this session failed"),
        (("resume", "nowhere"), "there is no session 'nowhere'"),
    ],
)
def test_what_cannot_be_continued_is_refused(ask: Command, arguments: tuple[str, ...], why: str) -> None:
    """The exit status is 2, and the message says what the session is doing."""
    answer = ask(*arguments)

    assert answer.status == 2
    assert why in answer.err


@pytest.mark.slow
def test_a_path_is_a_directory(ask: Command, tmp_path: Path) -> None:
    """It never reaches a manager, and a name without a directory does."""
    missing = ask("resume", f"{tmp_path}/none")
    assert missing.status == 2
    assert "there is no such directory" in missing.err


def test_options_of_the_other_kind_are_refused(ask: Command, tmp_path: Path) -> None:
    """The message names the option, and what RUN was taken for."""
    (tmp_path / "graph.dfg").touch()
    of_session = ask("resume", "cancelled", "--runner", "threads")
    of_directory = ask("retry", str(tmp_path), "--wait")

    assert (of_session.status, of_directory.status) == (2, 2)
    assert "--runner cannot be used: cancelled is a session of a manager" in of_session.err
    assert "--wait cannot be used" in of_directory.err
    assert "is the directory of a run" in of_directory.err


# ``dropflow log``.


def test_the_log_is_printed_unchanged(ask: Command, manager: FakeManager) -> None:
    """Standard output has the bytes of the log and nothing else."""
    wanted = b"".join(manager.log("failed", "fan_a_0-0").chunks)

    assert ask("log", "failed", "fan_a_0-0").out == wanted


@pytest.mark.slow
def test_the_log_of_a_run_is_read_from_its_directory(ask: Command, tmp_path: Path) -> None:
    """Filters, the log of one drop and --follow are those of a session. No manager is asked."""
    builder = GraphBuilder("said")
    for name, text in (("first", "one; echo two >&2"), ("second", "three")):
        command = Argument(name="command", value=f"echo {text}", parameter_type="ComponentParameter")
        builder.app(
            name, component="dlg.apps.bash_shell_app.BashShellApp", category="BashShellApp", arguments=[command]
        )
    found = str(tmp_path / "run")
    run(builder.build(), prepare_directory(tmp_path / "run"), RunOptions(runner="inline"))

    def texts(*options: str) -> list[str]:
        answer = ask("log", found, *options, "--output", "json")
        return [line["text"] for line in answer.json["records"] if not line["text"].startswith("$ ")]

    assert sorted(texts()) == ["one", "three", "two"]
    assert (sorted(texts("--drops", "first")), texts("--text", "THREE")) == (["one", "two"], ["three"])
    assert [sorted(texts(drop, "--last", "9")) for drop in ("first", "second")] == [["one", "two"], ["three"]]
    assert ask("log", found, "second").out == b"".join(path.read_bytes() for path in tmp_path.glob("run/logs/*second*"))
    assert ask("log", found, "--follow").text.count("\n") == 5
    assert [ask("log", found, *wrong).status for wrong in (["third"], ["--node", "a"], ["--manager", "a"])] == [2, 2, 2]


def _lines(*texts: str, level: str = "INFO", drop: str = "fan_a_0-0", node: str = "node-1") -> list[LogLine]:
    return [
        LogLine(time=1_800_000_000.5 + place, node=node, drop=drop, name="app", level=level, text=text, at=0)
        for place, text in enumerate(texts)
    ]


@pytest.mark.slow
def test_the_log_of_a_session_has_time_level_node_and_drop(ask: Command, manager: FakeManager) -> None:
    """Each line, the oldest first, in as many requests as it takes."""
    manager.print_lines("finished", _lines(*(str(number) for number in range(4_500))))
    printed = ask("log", "finished").out.decode().splitlines()

    assert printed[0] == "2027-01-15T08:00:00.500 INFO    node-1 fan_a_0-0: 0"
    assert [line.rpartition(" ")[2] for line in printed] == [str(number) for number in range(4_500)]


@pytest.mark.slow
def test_lines_are_selected(ask: Command, manager: FakeManager) -> None:
    """By text, level, drops, node, the drop, and their number from the end."""
    manager.print_lines("finished", [*_lines("one", "two"), *_lines("three", level="ERROR", drop="fan_a_0-1")])

    def texts(*options: str) -> list[str]:
        return [line.rpartition(" ")[2] for line in ask("log", "finished", *options).out.decode().splitlines()]

    assert texts("--text", "O") == ["one", "two"]
    assert texts("--level", "warning") == ["three"]
    assert texts("--drops", "0-1") == ["three"]
    assert texts("--node", "other") == []
    assert texts("-n", "2") == ["two", "three"]
    assert texts("-n", "0") == []
    assert texts("fan_a_0-0", "-n", "5") == ["one", "two"]


@pytest.mark.slow
def test_following_ends_with_the_session(ask: Command, manager: FakeManager) -> None:
    """What was written until the end of the session is printed; as JSON, each line is an object of its own."""
    manager.print_lines("finished", _lines("one", "two"))
    answer = ask("log", "finished", "--follow", "--output", "json")

    assert answer.status == 0
    assert [msgspec.json.decode(line)["text"] for line in answer.out.splitlines()] == ["one", "two"]


@pytest.mark.slow
def test_following_goes_on_while_the_manager_is_away(
    ask: Command, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manager that answered is asked again, for the patience of the user; without --follow it is not."""
    manager.print_lines("finished", _lines("one", "two"))
    answers, is_away = manager.session_log, [True, True]

    def answer_later(session: str, query: LogQuery) -> LogPage:
        if is_away:
            is_away.pop()
            raise LinkError("it is away")
        return answers(session, query)

    monkeypatch.setattr(manager, "session_log", answer_later)

    assert ask("log", "finished").status == 3
    assert ask("log", "finished", "--follow", "--patience", "0").status == 3
    assert not is_away
    is_away += [True, True]
    assert ask("log", "finished", "--follow").out.decode().split()[-1] == "two"
    assert not is_away


@pytest.mark.slow
def test_an_answer_in_json_is_one_object(ask: Command, manager: FakeManager) -> None:
    """It has all lines as records, of a session or a manager; also no lines are an answer."""
    manager.print_lines("finished", _lines(*(str(number) for number in range(4_500))))
    _manager_lines(manager)
    whole = ask("log", "finished", "--output", "json").json
    last = ask("log", "finished", "--last", "2", "--output", "json").json
    none = ask("log", "finished", "--text", "nothing", "--output", "json").json
    own = ask("log", "--manager", manager.name, "--output", "json").json

    assert (whole["ok"], whole["session"], whole["missing"]) == (True, "finished", [])
    assert [record["text"] for record in whole["records"]] == [str(number) for number in range(4_500)]
    assert [record["text"] for record in last["records"]] == ["4498", "4499"]
    assert (none["ok"], none["records"]) == (True, [])
    assert (own["manager"], [record["text"] for record in own["records"]]) == (manager.name, ["listens", "slow"])


def test_an_answer_in_json_names_nodes_that_do_not_answer(ask: Command, manager: FakeManager) -> None:
    """It has the lines of the others, is not ok, and the exit status is 1."""
    page = LogPage(lines=tuple(_lines("one")), newer="a:1", missing=("far",))
    manager.session_log = lambda *_: page  # type: ignore[method-assign]
    answer = ask("log", "finished", "--output", "json")

    assert (answer.status, answer.json["ok"], answer.json["missing"]) == (1, False, ["far"])
    assert [record["text"] for record in answer.json["records"]] == ["one"]


@pytest.mark.slow
def test_nodes_that_do_not_answer_are_named(ask: Command, manager: FakeManager) -> None:
    """The lines of the others are printed, and the exit status is 1."""
    page = LogPage(lines=tuple(_lines("one")), newer="a:1", missing=("far",))
    manager.session_log = lambda *_: page  # type: ignore[method-assign]
    answer = ask("log", "finished")

    assert answer.status == 1
    assert answer.out.decode().endswith("one\n")
    assert "far did not answer" in answer.err


def _manager_lines(manager: FakeManager) -> None:
    made = [
        LogLine(time=at, node=manager.name, drop="", name="dropflow.api", level=level, text=text, at=0)
        for at, (level, text) in enumerate((("INFO", "listens"), ("WARNING", "slow")))
    ]
    manager.print_lines(manager.name, made)


def test_the_log_of_a_manager_is_printed(ask: Command, manager: FakeManager) -> None:
    """With --manager, the lines of its own log, with the same filters; a session cannot be named as well."""
    _manager_lines(manager)
    whole = ask("log", "--manager", manager.name)

    assert whole.status == 0
    assert [line.split(" ", 1)[1] for line in whole.text.splitlines()] == [
        f"INFO    {manager.name} dropflow.api: listens",
        f"WARNING {manager.name} dropflow.api: slow",
    ]
    assert ask("log", "--manager", manager.name, "--level", "warning").text.count("\n") == 1
    assert ask("log", "--manager", manager.name, "--last", "1").text.endswith("slow\n")
    assert ask("log", "--manager", "elsewhere").status != 0
    neither, both = ask("log"), ask("log", "finished", "--manager", manager.name)
    assert (neither.status, "give either RUN or --manager NAME" in neither.err) == (2, True)
    assert (both.status, "give either RUN or --manager NAME" in both.err) == (2, True)


# The manager that a command connects to.


@pytest.mark.slow
def test_a_wrong_token_is_bad_input(ask: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit status is 2, and the message is about the token."""
    monkeypatch.setenv("DROPFLOW_TOKEN", "wrong")
    answer = ask("sessions")

    assert answer.status == 2
    assert "token" in answer.err


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://h:port", "http://h/path"])
def test_malformed_addresses_are_bad_input(ask: Command, url: str) -> None:
    """Nothing is sent."""
    answer = ask("sessions", "--to", url)

    assert answer.status == 2
    assert "not a manager URL" in answer.err
