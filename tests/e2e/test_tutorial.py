"""The tutorial "Three machines", on one machine: what it says about a node that is switched off."""

import shlex
from pathlib import Path

import pytest

from dropflow.api.client import Client
from tests.e2e.cluster import finished, underway
from tests.processes import Running, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def _commands(section: str) -> list[list[str]]:
    """Return the commands of a section of the tutorial as words, without the prompt and the name of the program."""
    text = (ROOT / "docs" / "tutorial" / "three-machines.md").read_text(encoding="utf-8")
    lines = text.split(f"## {section}\n")[1].split("\n## ")[0].replace("\\\n", " ").splitlines()
    return [shlex.split(line.partition("$ ")[2])[1:] for line in lines if "$ dropflow " in line]


def test_a_session_goes_on_when_one_of_three_machines_is_switched_off(tmp_path: Path) -> None:
    """The commands of the page run as it says; its measurements sleep for a shorter time here."""
    submit, status, *_ = _commands("Now switch one off")
    submit = [word.replace("time.sleep(10)", "time.sleep(1)") for word in submit]
    submit[1] = str(ROOT / submit[1])
    more = ("--port", 0, "--workers", 1, "--lost-after", 3)
    with Running(tmp_path, "up", "--nodes", 3, *more) as up:
        submitted = run(tmp_path, *submit)
        with Client(up.ready["master"], token=up.ready["token"]) as client:
            assert underway(client, "second", 8)
            node = [one for one in up.family() if {"--name", "node-3"} <= set(one.cmdline())]
            node[0].kill()
            detail = finished(client, "second", 60.0)
        shown = run(tmp_path, *status)

    assert (submitted.returncode, shown.returncode) == (0, 0), submitted.stderr
    assert (detail.status, detail.states, detail.members) == ("FINISHED", {"COMPLETED": 37}, ("node-1", "node-2"))
    assert "note: node node-3 is lost" in shown.stdout
    assert "FINISHED  37 drops" in shown.stdout
