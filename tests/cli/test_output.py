"""The forms of output of all commands: ``--output``, ``--debug``, errors and pipes."""

import subprocess
import sys
from pathlib import Path

import pytest

from dropflow.cli import graph_files
from tests.cli.answers import Command

NESTED = Path(__file__).resolve().parents[2] / "examples" / "nested-scatter-gather.graph"


def test_quiet_prints_only_errors(command: Command, broken: Path) -> None:
    """They go to standard error; standard output stays empty."""
    assert command("check", NESTED, "--output", "quiet").err == ""
    answer = command("check", broken, "--output", "quiet")

    assert (answer.status, answer.out) == (2, b"")
    assert "LG003" in answer.err


def test_the_environment_can_set_the_form_of_output(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """DROPFLOW_OUTPUT replaces --output, also for mistakes on the command line."""
    monkeypatch.setenv("DROPFLOW_OUTPUT", "json")

    assert command("check", NESTED).json["ok"] is True
    assert command("check").json["ok"] is False


@pytest.mark.parametrize("debug", [False, True])
def test_an_unexpected_exception_is_an_internal_error(
    command: Command, monkeypatch: pytest.MonkeyPatch, *, debug: bool
) -> None:
    """The message for an unexpected exception asks for a report; --debug shows the traceback."""
    monkeypatch.setattr(graph_files, "examine", lambda *_, **__: 1 // 0)
    answer = command("check", NESTED, *["--debug"] * debug)

    assert answer.status == 70
    assert "DF900: internal error: " in answer.err
    assert "please report it" in answer.err
    assert ("Traceback" in answer.err) == debug


@pytest.mark.parametrize("form", ["json", "dfg"])
def test_a_broken_pipe_is_no_error(tmp_path: Path, form: str) -> None:
    """Piping into ``head`` prints nothing to standard error."""
    dropflow = f"{sys.executable} -m dropflow unroll {NESTED} --set Rows.num_of_copies=2000 --format {form}"
    shell = ["bash", "-c", f"{dropflow} | head -c 9 >/dev/null; echo ${{PIPESTATUS[0]}}"]
    done = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)

    assert (done.stdout.strip(), done.stderr) == ("141", "")


@pytest.mark.slow
def test_a_closed_standard_output_is_no_internal_error() -> None:
    """The exit status is that of the command: 0, or 2 for a bad graph."""
    for arguments, status in (("--version", 0), ("check nothing.graph", 2)):
        command = f"{sys.executable} -m dropflow {arguments} >&-"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)

        assert (done.returncode, "DF900" in done.stderr) == (status, False)
