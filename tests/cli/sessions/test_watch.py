"""``dropflow watch``: it follows a session to its end, also while the manager is away."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pytest

from dropflow.cli.output import CommandOutput
from dropflow.cli.sessions import watch
from dropflow.submission.manager_records import write_record
from managers.manager_server import Service
from tests.cli.answers import Command
from tests.cli.conftest import TOKEN
from tests.fake_manager import FakeManager
from tests.virtual_clock import VirtualClock

OTHER_TOKEN = "another-token"
STATUSES = {"finished": 0, "failed": 1, "cancelled": 1, "running": 3, "nowhere": 2}
"""Exit statuses by session; the nodes of ``running`` do not answer."""


class Cluster:
    """The manager of a test, which can be stopped and started again while a command runs."""

    def __init__(self, manager: FakeManager, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        self.manager = manager
        self.service = service
        self._monkeypatch = monkeypatch
        self._restarted: list[Service] = []
        self._timers: list[threading.Timer] = []

    def stop(self) -> None:
        """Stop the service of the manager."""
        self.service.close()

    def restart(self, token: str = TOKEN) -> None:
        """Start the service again, on the same port and with a token."""
        self._restarted.append(Service(self.manager, port=self.service.port, token=token))
        self._restarted[-1].start()

    def later(self, seconds: float, function: Callable[..., object], *arguments: object) -> None:
        """Call a function after some seconds, when the command is under way."""
        self._timers.append(threading.Timer(seconds, function, arguments))
        self._timers[-1].start()

    def on_note(self, function: Callable[[str], None]) -> None:
        """Call a function with each note that the command prints."""
        note = CommandOutput.note

        def noted(output: CommandOutput, text: str) -> None:
            note(output, text)
            function(text)

        self._monkeypatch.setattr(CommandOutput, "note", noted)

    def close(self) -> None:
        """Wait for the timers, and stop what was started again."""
        for timer in self._timers:
            timer.join()
        for service in self._restarted:
            service.close()


@pytest.fixture
def cluster(manager: FakeManager, service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The manager of the test."""
    with closing(Cluster(manager, service, monkeypatch)) as made:
        yield made


@pytest.mark.slow
def test_a_session_is_followed_to_its_end(ask: Command, cluster: Cluster) -> None:
    """The command ends when the session ends, with the exit status for the session."""
    cluster.later(0.2, cluster.manager.complete, "running")
    answer = ask("watch", "running", "--output", "json")

    assert answer.status == 0
    assert answer.json["session"]["status"] == "FINISHED"


@pytest.mark.slow
@pytest.mark.parametrize("is_away_at_start", [False, True])
def test_a_manager_that_is_away_is_asked_again(ask: Command, cluster: Cluster, *, is_away_at_start: bool) -> None:
    """The session is followed to its end, also if the manager is away at the first request."""
    notes: list[str] = []

    def bring_back(text: str) -> None:
        if not notes:
            cluster.restart()
            cluster.manager.complete("running")
        notes.append(text)

    cluster.on_note(bring_back)
    if is_away_at_start:
        cluster.stop()
    else:
        cluster.later(0.3, cluster.stop)
    answer = ask("watch", "running")

    assert answer.status == 0
    # One that is being stopped may still say so.
    reason = "nothing listens there" if is_away_at_start else "(nothing listens there|the server is closing)"
    assert re.search(rf"{reason}; asking again for up to 60 s", answer.err)
    assert "known again" in answer.err
    assert answer.text.startswith("FINISHED")


@pytest.mark.slow
def test_a_manager_that_was_never_there(ask: Command, cluster: Cluster) -> None:
    """It is asked again for the patience of the caller; then the exit status is 3."""
    cluster.stop()
    answer = ask("watch", "running", "--patience", "0.5", "--output", "json")

    assert answer.status == 3
    assert "away for 0.5 s: nothing listens there" in answer.json["error"]["text"]


@pytest.mark.slow
def test_a_manager_that_stays_away(ask: Command, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session has not failed: the exit status is 3, and the hint has the command that watches it again."""
    monkeypatch.setenv("DROPFLOW_PATIENCE", "0.5s")
    cluster.later(0.3, cluster.stop)
    answer = ask("watch", "running", "--output", "json")

    assert answer.status == 3
    assert answer.json["error"]["code"] == "DF220"
    assert "away for 0.5 s: nothing listens there" in answer.json["error"]["text"]
    assert "dropflow watch running" in answer.json["error"]["hint"]


@pytest.mark.slow
def test_a_manager_that_was_started_again_with_another_token(
    ask: Command, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is read again from the record of the manager, and the session is followed to its end."""
    monkeypatch.delenv("DROPFLOW_TOKEN")
    write_record(cluster.service.url, role="island", name="i", token=TOKEN, everywhere=False)
    notes: list[str] = []

    def bring_back(text: str) -> None:
        if not notes:
            cluster.restart(OTHER_TOKEN)
        elif "token" in text:
            write_record(cluster.service.url, role="island", name="i", token=OTHER_TOKEN, everywhere=False)
            cluster.manager.complete("running")
        notes.append(text)

    cluster.on_note(bring_back)
    cluster.later(0.3, cluster.stop)
    answer = ask("watch", "running")

    assert answer.status == 0, answer.err
    assert answer.text.startswith("FINISHED")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--to", "http://no-such-host.invalid:8000"], "DF220"),
        (["--token", "wrong"], "DF300"),
        (["--to", "no address"], "DF100"),
    ],
)
def test_a_wrong_address_or_token_ends_the_command(
    ask: Command, options: list[str], code: str, cluster: Cluster
) -> None:
    """The manager is not asked again, because the answer would be the same."""
    cluster.on_note(lambda _: pytest.fail("it is asked again"))
    answer = ask("watch", "running", *options)

    assert answer.status != 0
    assert f"error {code}" in answer.err


@pytest.mark.slow
@pytest.mark.parametrize("command_line", [("watch", "--once"), ("watch", "--patience", 0)], ids=["once", "watch"])
@pytest.mark.parametrize(("session", "status"), STATUSES.items())
def test_the_exit_status_depends_on_the_session(
    session: str, status: int, command_line: tuple[object, ...], ask: Command, cluster: Cluster
) -> None:
    """0 finished, 1 failed or cancelled, 2 no such session, 3 not known because nodes do not answer."""
    cluster.manager.hide("running", "n2 does not answer")
    name, *options = command_line
    answer = ask(name, session, *options, "--output", "json")

    assert answer.status == status
    assert answer.json["ok"] == (status == 0)


@pytest.mark.slow
def test_an_unknown_state_is_reported(ask: Command, cluster: Cluster) -> None:
    """Standard error says why; when the nodes answer again, the session is followed to its end."""
    cluster.manager.hide("running", "n2 does not answer")
    cluster.later(1.0, cluster.manager.complete, "running")
    answer = ask("watch", "running")

    assert answer.status == 0
    assert "the state of session running is not known: n2 does not answer; asking again for up to 60 s" in answer.err
    assert answer.text.startswith("FINISHED")


@pytest.mark.slow
def test_what_a_session_waits_for_is_printed_once(ask: Command, cluster: Cluster) -> None:
    """A session that cannot go on, such as without a majority of its nodes, says why while it runs."""
    cluster.manager.hold("running", "1 of 3 voters answer, 2 are needed")
    cluster.on_note(lambda _: cluster.later(0.2, cluster.manager.complete, "running"))
    answer = ask("watch", "running")

    assert (answer.status, answer.err.count("session running: 1 of 3 voters answer, 2 are needed")) == (0, 1)


@pytest.mark.slow
def test_a_session_that_is_deleted_meanwhile(ask: Command, cluster: Cluster) -> None:
    """It existed when the command began, so this is not bad input, but an unknown end."""
    cluster.later(0.5, cluster.manager.delete, "running")
    answer = ask("watch", "running")

    assert answer.status == 3
    assert "was deleted" in answer.err


def test_an_answer_ends_an_outage_that_begins_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A timer that has fired cannot be cancelled: its note comes before that of the answer."""

    class FiredTimer:
        """A timer whose thread is about to call its function."""

        def __init__(self, _: float, function: Callable[..., object], arguments: list[str]) -> None:
            self.call: Callable[[], object] | None = partial(function, *arguments)
            made.append(self)

        def start(self) -> None:
            pass

        def cancel(self) -> None:
            pass

        def join(self) -> None:
            if self.call is not None:
                self.call()
            self.call = None

    made: list[FiredTimer] = []
    monkeypatch.setattr(watch.threading, "Timer", FiredTimer)
    outage = watch._Outage(CommandOutput(), 60.0, VirtualClock())

    with outage.watching("http://m:1"):
        pass
    outage.end()
    made[0].join()

    assert capsys.readouterr().err.rstrip().endswith("the state of the session is known again")
