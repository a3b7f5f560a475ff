"""``dropflow times``, and files that commands write."""

import errno
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from dropflow.cli.times import TimesReply, replacing
from dropflow.errors import BadFileError
from dropflow.testing.drawing import fan
from dropflow.times.attempts import attempts_of
from dropflow.times.statistics import NodeTraffic
from dropflow.times.timeline import analyse, statistics_of
from tests.cli.answers import Command
from tests.times.made_times import sections_of

NESTED = Path(__file__).resolve().parents[2] / "examples" / "nested-scatter-gather.graph"


def test_a_run_has_times(command: Command, tmp_path: Path) -> None:
    """Attempts of all logical nodes and of all workers add up, and the critical path fills the time of the run."""
    command("run", NESTED, "--keep", tmp_path / "run", "--runner", "inline")
    found = command("times", tmp_path / "run", "--output", "json", "--slowest", "2").json["statistics"]

    assert found["attempts"] == sum(node["attempts"] for node in found["templates"]) > 0
    assert found["attempts"] == sum(lane["attempts"] for lane in found["lanes"])
    assert len(found["slowest"]) == 2
    assert 0 < found["critical_ran"] + found["critical_waited"] <= found["ended"] - found["began"]
    assert "critical path:" in command("times", tmp_path / "run").text


def test_moved_bytes_that_are_not_counted_are_named() -> None:
    """What these nodes received is not in the sums, which are shown above."""
    found = analyse(fan(4), attempts_of(sections_of([[{"drop": 0}]])))
    traffic = (NodeTraffic(source="n1", target="n0", contents=1, size=7),)
    statistics = statistics_of(found, traffic=traffic, uncounted=("n1", "n2"))
    lines = list(TimesReply(run="s", statistics=statistics).lines())

    sums = lines.index("these sums are incomplete: what n1, n2 received is not known")
    (moved,) = (at for at, line in enumerate(lines) if line.startswith("moved between nodes: 7"))
    assert moved < sums < lines.index("workers:")


def test_several_sessions_are_refused(command: Command) -> None:
    """Only directories of one session are read together."""
    answer = command("times", "one", "two")

    assert answer.status != 0
    assert "2 sessions are named" in answer.err


def test_directories_of_two_sessions_are_refused(command: Command, tmp_path: Path) -> None:
    """The error names the directory whose attempts do not fit."""
    small = Path(__file__).resolve().parents[2] / "examples" / "hello.graph"
    command("run", small, "--keep", tmp_path / "small", "--runner", "inline")
    command("run", NESTED, "--keep", tmp_path / "large", "--runner", "inline")
    answer = command("times", tmp_path / "small", tmp_path / "large")

    assert answer.status != 0
    assert "large: these directories are not of one session" in answer.err


def test_the_timeline_of_a_run_is_written(command: Command, tmp_path: Path) -> None:
    """The trace has an event for each attempt, those of one thread do not overlap, and the picture has their boxes."""
    command("run", NESTED, "--keep", tmp_path / "run", "--runner", "threads")
    files = tmp_path / "trace.json", tmp_path / "picture.svg"
    command("times", tmp_path / "run", "--format", "trace", "-o", files[0])
    answer = command("times", tmp_path / "run", "-o", files[1], "--output", "json").json
    attempts = msgspec.json.decode(command("times", tmp_path / "run", "--format", "json").out)["statistics"]["attempts"]
    spans = [one for one in msgspec.json.decode(files[0].read_bytes())["traceEvents"] if one["ph"] == "X"]

    assert attempts == len(spans) == files[1].read_text().count("<rect")
    assert (answer["form"], answer["size"]) == ("svg", files[1].stat().st_size)
    for lane in {(one["pid"], one["tid"]) for one in spans}:
        mine = sorted((one["ts"], one["ts"] + one["dur"]) for one in spans if (one["pid"], one["tid"]) == lane)
        assert all(before[1] <= after[0] + 1e-3 for before, after in pairwise(mine))


def test_unknown_forms_of_files_are_refused(command: Command, tmp_path: Path) -> None:
    """The error lists the endings that are known."""
    answer = command("times", tmp_path, "-o", tmp_path / "x.txt")

    assert answer.status != 0
    assert "end it with .svg, .html, .htm, .json, .npz" in answer.err


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
