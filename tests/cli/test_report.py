"""``dropflow times --format html``."""

import errno
from pathlib import Path

import pytest

from dropflow.cli.times import replacing
from dropflow.errors import BadFileError
from tests.cli.answers import Command

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_a_run_has_a_report(command: Command, tmp_path: Path) -> None:
    """The report of a directory has its failures, and says how it ended."""
    command("run", _EXAMPLES / "error-threshold.graph", "--keep", tmp_path / "run", "--runner", "inline")
    answer = command("times", tmp_path / "run", "-o", tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()

    assert "html of run, which is finished" in answer.text
    assert "target 3 is below the horizon" in page
    assert "2 failed, 2 taken along" in page


def test_a_session_has_a_report(ask: Command, tmp_path: Path) -> None:
    """The report of a session of a manager is the same kind of file."""
    answer = ask("times", "failed", "-o", tmp_path / "x.html", "--output", "json")

    assert answer.json["size"] == (tmp_path / "x.html").stat().st_size
    assert "no value 1" in (tmp_path / "x.html").read_text()


def test_bad_runs_and_files_are_refused(command: Command, tmp_path: Path) -> None:
    """A directory without a run, one where nothing has run, another form, and a place that cannot be written."""
    assert "there is no run in this directory" in command("times", f"{tmp_path}/none", "--format", "html").err
    assert "end it with .svg, .html" in command("times", f"{tmp_path}/none", "-o", "x.pdf").err
    command("run", _EXAMPLES / "hello.graph", "--keep", tmp_path / "run", "--runner", "inline")
    assert "no such directory" in command("times", tmp_path / "run", "-o", f"{tmp_path}/no/x.html").err
    (tmp_path / "run/journal.dfj").unlink()
    answer = command("times", tmp_path / "run", "--format", "html")
    assert (answer.status, "nothing has run" in answer.err) == (2, True)


def test_a_file_that_cannot_be_written_whole_stays_as_it_is(tmp_path: Path) -> None:
    """On a full disk the earlier report is kept, nothing is left beside it, and the error names the file."""
    report = tmp_path / "day.html"
    report.write_text("earlier")

    def write_half() -> None:
        with replacing(report) as stream:
            stream.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(BadFileError, match="No space left on device") as caught:
        write_half()

    assert (caught.value.where, caught.value.hint) == (str(report), "make room, or name another file")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("day.html", "earlier")]
