"""Kills ``dropflow daemon`` while a session runs on its node, starts it again, and resumes the session."""

import random
import threading
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from dropflow.api.client import Client
from dropflow.api.drop_records import DropQuery
from dropflow.api.requests import ResumeRequest, SubmitQuery
from dropflow.errors import DropflowError
from dropflow.submission.manager_records import ManagerRecord
from tests.e2e.cluster import until
from tests.e2e.recorded_node import History
from tests.e2e.torture.sessions import CLUSTER_GRAPHS, Figures, Session
from tests.processes import Running, gone

_OVER = ("FINISHED", "FAILED", "CANCELLED")
_COMPLETED = DropQuery(state="COMPLETED", limit=1000)


class TorturedDaemon:
    """A daemon with a node.

    Parameters
    ----------
    home : Path
        For its directories.
    figures : Figures
        Gets what was killed.
    """

    def __init__(self, home: Path, figures: Figures) -> None:
        self._home = home
        self._figures = figures
        self._pause = threading.Event()
        self._daemon = self._start()

    def close(self) -> None:
        """Stop it."""
        self._daemon.__exit__()

    def torture(self, seed: int) -> None:
        """Kill the daemon up to three times during one session, which is resumed each time."""
        chance = random.Random(seed)
        session = Session(chance.choice(CLUSTER_GRAPHS), f"k{seed}", self._home)
        history = History(self._home / "history")
        with self._client() as client:
            client.submit(session.graph, SubmitQuery(session=session.name))
        kept: dict[str, int] = {}
        for _ in range(chance.choice((1, 2, 3))):
            self._pause.wait(chance.uniform(0.0, 2.0))
            self._kill(with_managers=chance.random() < 0.5)
            self._daemon = self._start()
            kept |= self._resume(session)
        with self._client() as client:
            session.check_end(client, history, self._figures, is_recorded=False)
            again = {name: session.begun[name] for name, count in kept.items() if session.begun[name] > count}
            assert not again or session.kind == "streams", (
                f"{session.kind} {session.name}: ran again: {again} of {kept}"
            )
            session.check_history(client, history, self._figures)
            session.delete(client)

    def _kill(self, *, with_managers: bool) -> None:
        """Kill the daemon; its managers end with it, if they are not killed as well."""
        family = self._daemon.family()
        for process in family if with_managers else family[:1]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._daemon.process.wait()
        assert gone(family[1:]), "processes are left"
        self._figures.kills["daemon and its managers" if with_managers else "daemon"] += 1

    def _resume(self, session: Session) -> dict[str, int]:
        """Continue the session if it was not over; return how often what had completed with its contents had begun."""
        with self._client() as client:
            assert until(lambda: self._is_over(client, session), 60.0), client.sessions()
            begun = session.begun
            done = [drop.name for drop in client.drops(session.name, _COMPLETED).drops if drop.is_app]
            if not self._is_whole(client, session):
                client.resume(session.name, ResumeRequest())
                again = client.session(session.name).recomputed
                return {name: begun[name] for name in done} if not again else {}
            return {name: begun[name] for name in done}

    def _is_over(self, client: Client, session: Session) -> bool:
        with suppress(DropflowError):
            return client.session(session.name).status in _OVER
        return False

    def _is_whole(self, client: Client, session: Session) -> bool:
        """Return whether the session ended by itself: the graph with thresholds ends as FAILED."""
        detail = client.session(session.name)
        return detail.settled == detail.drops and "CANCELLED" not in detail.states

    def _start(self) -> Running:
        return Running(self._home, "daemon", "--name", "d", "--port", 0, "--start", "node")

    def _client(self) -> Client:
        """Return a client of the node, which may be starting."""
        found: list[ManagerRecord] = []

        def is_there() -> bool:
            pids = {process.pid for process in self._daemon.family()}
            for path in self._home.glob("state/dropflow/tokens/*/*"):
                with suppress(OSError, msgspec.MsgspecError):
                    record = msgspec.json.decode(path.read_bytes(), type=ManagerRecord)
                    if record.role == "node" and record.process in pids:
                        found.append(record)
            return bool(found)

        assert until(is_there, 60.0), self._daemon.errors
        return Client(found[-1].url, token=found[-1].token, timeout=30.0)
