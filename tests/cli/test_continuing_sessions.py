"""``dropflow resume`` and ``retry`` with a session of a manager, or with the directory of a run."""

from pathlib import Path

import pytest

from dropflow.graph.build import GraphBuilder
from dropflow.graph.templates import Argument
from dropflow.sessions.local_run import prepare_directory, run
from dropflow.testing.fake_manager import FakeManager
from tests.cli.answers import Command


def test_a_cancelled_session_is_resumed(ask: Command, manager: FakeManager) -> None:
    """The answer is that of submit: name, status, and where to look."""
    answer = ask("resume", "cancelled")

    assert answer.status == 0
    assert answer.text.startswith("cancelled  RUNNING  41 drops")
    assert "dropflow watch cancelled" in answer.text
    assert manager.session("cancelled").status == "RUNNING"


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


def test_a_run_starts_again_from_a_drop(ask: Command, tmp_path: Path) -> None:
    """In its directory, with a parameter that is changed; a name stands for all drops of a node."""
    builder = GraphBuilder("g").data("out")
    arguments = (Argument(name="command", value="echo {word} > %o0"), Argument(name="word", value="old"))
    builder.app("SAY", component="dlg.apps.bash_shell_app.BashShellApp", arguments=arguments)
    run(builder.connect("SAY", "out").build(), directory=prepare_directory(tmp_path / "run"), runner="inline")
    command = ("retry", str(tmp_path / "run"), "--runner", "inline", "--from")
    answer = ask(*command, "say", "--set", "word=new")
    refused = ask(*command, "none")

    assert (answer.status, refused.status) == (0, 2)
    assert "2 drops run again as was asked for" in answer.text
    assert (tmp_path / "run" / "results" / "g_out_0.txt").read_text() == "new\n"
    assert "there is no drop 'none'" in refused.err


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
