"""Commands in tests: in this process, in a process of their own, and against a manager that is served."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dropflow.cli.main import main
from managers.manager_server import Service
from tests.cli.answers import Answer, Command
from tests.fake_manager import FakeManager, manager_with_sessions

TOKEN = "a-token-of-this-test"


@pytest.fixture(autouse=True)
def _short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan in a hundred steps of the local search, not in 1,500: tests of commands are not about its last percent."""
    monkeypatch.setattr("translator.plan.auto._MOST_STEPS", 100)


@pytest.fixture
def process(tmp_path: Path) -> Command:
    """Run ``dropflow`` in a process of its own, in an empty directory. It never prints a traceback."""

    def start(*arguments: object, stdin: bytes = b"", timeout: float = 60) -> Answer:
        done = subprocess.run(
            [sys.executable, "-m", "dropflow", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            cwd=tmp_path,
            timeout=timeout,
            check=False,
        )
        answer = Answer(done.returncode, done.stdout, done.stderr)
        assert "Traceback (most recent call last)" not in answer.err
        return answer

    return start


@pytest.fixture
def command(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run ``dropflow`` in this process. It prints a traceback only with ``--debug``."""

    def call(*arguments: object, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit, match=r"^\d+$") as ended:
            main([str(argument) for argument in arguments])
        answer = Answer(int(ended.value.code or 0), *capfdbinary.readouterr())
        assert "--debug" in arguments or "Traceback (most recent call last)" not in answer.err
        return answer

    return call


@pytest.fixture
def dropflow(command: Command, home: Path) -> Command:  # noqa: ARG001 - for its variables
    """Run ``dropflow`` in this process, in an empty directory. Managers that run on this host are not seen."""
    return command


@pytest.fixture
def manager() -> FakeManager:
    """A manager with sessions called running, failed, finished and cancelled."""
    return manager_with_sessions(nodes=("node-1", "node-2"), role="island")


@pytest.fixture
def service(manager: FakeManager) -> Iterator[Service]:
    """The REST service of the manager."""
    served = Service(manager, token=TOKEN)
    served.start()
    yield served
    manager.close()
    served.close()


@pytest.fixture
def ask(command: Command, service: Service, home: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run ``dropflow`` in this process, with the address and the token of the manager in the environment."""
    del home
    monkeypatch.setenv("DROPFLOW_URL", service.url)
    monkeypatch.setenv("DROPFLOW_TOKEN", TOKEN)
    return command


@pytest.fixture
def examples() -> Path:
    """The directory of the example graphs."""
    return Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def broken(tmp_path: Path, examples: Path) -> Path:
    """A graph with an edge to a node that does not exist."""
    path = tmp_path / "broken.graph"
    document = json.loads((examples / "nested-scatter-gather.graph").read_bytes())
    document["linkDataArray"][0]["to"] = "nowhere"
    path.write_text(json.dumps(document))
    return path
