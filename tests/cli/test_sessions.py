"""``dropflow sessions``, ``watch --once``, ``pause``, ``cancel`` and ``delete``."""

import msgspec
import pytest

from dropflow.api.records import DropQuery
from dropflow.api.requests import DrainRequest
from dropflow.cli.session_replies import SessionChange
from dropflow.cli.sessions import SessionsReply
from dropflow.errors import LinkError
from dropflow.testing.fake_manager import FakeManager, manager_with_sessions
from tests.cli.answers import Command


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


def test_only_a_session_without_open_drops_is_settled_to_100_percent() -> None:
    """A share is rounded down: 504 drops of 505 are 99 %."""
    known = manager_with_sessions().sessions()[0]
    rows = [msgspec.structs.replace(known, drops=505, settled=settled) for settled in (504, 505)]
    _, *lines = SessionsReply(url="", sessions=tuple(rows)).lines()

    assert [line.partition(" %")[0].split()[-1] for line in lines] == ["99", "100"]


def test_json_output_is_one_object(ask: Command) -> None:
    """With --output json there is one object with `ok`, and nothing on standard error."""
    for arguments in (["sessions"], ["nodes"], ["watch", "running", "--once"], ["log", "failed", "fan_a_0-0"]):
        answer = ask(*arguments, "--output", "json")

        assert answer.json["ok"] is True, arguments
        assert answer.err == ""


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


def test_an_unknown_session_is_bad_input(ask: Command) -> None:
    """The exit status is 2, and the message names the session."""
    for command in ("watch", "watch --once", "cancel", "delete", "fetch"):
        answer = ask(*command.split(), "nowhere")

        assert answer.status == 2, command
        assert "nowhere" in answer.err


def test_a_running_session_has_not_failed(ask: Command) -> None:
    """The exit status of `watch --once` is 0."""
    assert ask("watch", "running", "--once").status == 0


def test_a_session_is_paused_and_resumed(ask: Command, manager: FakeManager) -> None:
    """The answers have the state; a session that runs stays as it is, so that the command may be repeated."""
    assert ask("pause", "running").text == "running: PAUSED\n"
    assert manager.session("running").status == "PAUSED"
    for _ in range(2):
        assert ask("resume", "running").text.startswith("running  RUNNING  ")


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
        assert "3 sessions that ended before: what this node has of them stays in its directory" in answer.text
    assert manager.drained == [(manager.name, DrainRequest(grace=120.0))] * 2
    assert manager.nodes()[0].state == "draining"
    unknown = ask("drain", "nowhere")
    assert unknown.status == 2
    assert "there is no node 'nowhere'" in unknown.err


def test_a_session_with_a_majority_is_not_forced(ask: Command) -> None:
    """The manager refuses to have it go on without one."""
    refused = ask("resume", "running", "--force")
    assert refused.status != 0
    assert "session 'running' has a majority" in refused.err


def test_single_drops_can_be_cancelled(ask: Command, manager: FakeManager) -> None:
    """The session goes on, and the answer has the state of each drop."""
    open_drops = manager.drops("running", DropQuery(state="INITIALIZED")).drops[:2]
    reply = ask("cancel", "running", *(drop.oid for drop in open_drops), "--output", "json").json

    assert reply["drops"] == {drop.oid: "CANCELLED" for drop in open_drops}
    assert manager.session("running").status == "RUNNING"


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


def test_cancel_reports_nodes_that_do_not_answer(ask: Command, manager: FakeManager) -> None:
    """Their drops may still run, so the exit status is 3, as with `watch`."""
    manager.hide("running", "n2 does not answer")
    answer = ask("cancel", "running", "--output", "json")

    assert (answer.status, answer.json["ok"], answer.json["status"]) == (3, False, "UNKNOWN")
    assert "n2 does not answer" in answer.json["text"]
