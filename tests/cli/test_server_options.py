"""Options of commands that start servers: what cannot be used is refused before anything is started."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dropflow.cli.local_cluster import UpOptions, run
from managers.child_processes import ChildProcesses
from tests.cli.answers import Command


@pytest.mark.parametrize(
    ("role", "address", "reason"),
    [
        ("node", "hub.example.org/{port}", "is not an address"),
        ("node", "https://hub.example.org/a?b=c", "is not an address"),
        ("node", "https://hub-{port}.example.org/", "is not an address"),
        ("node", "https://hub.example.org/; script-src *", "is not an address"),
        ("up", "https://hub.example.org/dropflow/", "needs {port}"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(command: Command, role: str, address: str, reason: str) -> None:
    """The message names the address, and what it lacks."""
    answer = command(role, "--public-url", address)

    assert answer.status == 2
    assert address in answer.err
    assert reason in answer.err


@pytest.mark.parametrize("text", ["much", "-1 GB", "0", "inf", "2 GiB/s"])
@pytest.mark.parametrize("role", ["node", "up"])
def test_what_is_no_memory_is_refused(command: Command, role: str, text: str) -> None:
    """The error has the value, and a form that is right; the exit status is 2."""
    answer = command(role, "--memory", text)

    assert answer.status == 2
    assert text in answer.err
    assert "2 GiB" in answer.err


@pytest.mark.usefixtures("home")
def test_the_nodes_of_one_host_share_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``up --nodes 4 --memory '8 GiB'`` gives each node 2 GiB."""
    started = list[list[str]]()

    class Enough(Exception):  # noqa: N818 - ends the command when all nodes are started
        pass

    def launch(_: ChildProcesses, __: str, ___: str, command: Callable[[int], list[str]], ____: object) -> None:
        started.append(command(0))

    def wait_ready(*_: object) -> Any:
        raise Enough("all nodes are started")

    monkeypatch.setattr(ChildProcesses, "launch", launch)
    monkeypatch.setattr(ChildProcesses, "wait_ready", wait_ready)
    options = functools.partial(UpOptions, nodes=4, port=0, no_auth=True, new_token=False, workers=None, key=None)
    with pytest.raises(Enough, match="all nodes"):
        run(options(root=str(tmp_path / "up"), memory=8 << 30, lost_after=10.0, log_level="info"))

    assert [line[line.index("--memory") + 1] for line in started] == [f"{2 << 30}"] * 4
