"""``run --until``: forms of a walltime, and runs that are stopped at one."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from dropflow.cli.exit_status import Exit
from dropflow.cli.option_types import parse_walltime
from dropflow.cli.run import RunReply, exit_of_run
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.sessions import local_run
from dropflow.sessions.local_run import resume
from dropflow.sessions.options import RunOptions
from dropflow.states import SessionState
from dropflow.testing.fake_manager import VirtualClock

_NOW = datetime(2027, 1, 31, 23, 0, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3600s", 3600),
        ("90m", 5400),
        ("1.5h", 5400),
        ("1d", 86400),
        ("23:30", 1800),
        ("02:30", 12600),
        ("2027-01-31T23:10", 600),
        ("2027-01-31T22:10Z", 600),
    ],
)
def test_walltimes_have_several_forms(text: str, seconds: float) -> None:
    """A time of day is the next one; a date without a zone is local."""
    assert parse_walltime(text, _NOW) - _NOW.timestamp() == seconds


@pytest.mark.parametrize("text", ["soon", "", "25:00", "-5s", "2027-01-31T22:10", "3600"])
def test_other_texts_are_no_walltimes(text: str) -> None:
    """A time in the past is none, either."""
    with pytest.raises(ValueError, match=r"has passed|Invalid isoformat|must be in"):
        parse_walltime(text, _NOW)


def _graph() -> PhysicalGraph:
    """Return an application that is short, and one behind it that takes an hour."""
    builder = GraphBuilder("night")
    for name, seconds in (("short", 1.0), ("long", 3600.0)):
        fields = (Argument(name="execution_time", value=seconds, type="Float"),)
        builder.app(name, component="dlg.apps.simple.NullBarrierApp", arguments=fields)
        builder.data(f"{name}-out", component="dlg.data.drops.memory.InMemoryDROP")
        builder.connect(name, f"{name}-out")
    return builder.connect("short-out", "long").build()


@pytest.mark.parametrize("runner", ["inline", "threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_a_run_starts_nothing_that_cannot_end_by_its_walltime(runner: str, tmp_path: Path) -> None:
    """It is PAUSED, says how to go on, and is resumed to its end."""
    until = datetime.now(UTC).timestamp() + 1800
    result = local_run.run(_graph(), directory=tmp_path, runner=runner, workers=1, until=until, check=True)
    reply = RunReply.of(result)
    again = resume(tmp_path, RunOptions(runner="inline"))

    assert (result.status, result.states["COMPLETED"]) == (SessionState.PAUSED, 2)
    assert not reply.ok
    assert "stopped at walltime: 2 of 4 drops are settled; go on with dropflow resume" in "\n".join(reply.lines())
    assert exit_of_run(result.status, 0) is Exit.PAUSED
    assert again.status is SessionState.FINISHED


def test_a_walltime_that_is_far_away_changes_nothing(tmp_path: Path) -> None:
    """The run ends as without one."""
    clock = VirtualClock()
    result = local_run.run(
        _graph(), directory=tmp_path, runner="inline", clock=clock, until=datetime.now(UTC).timestamp() + 1e6
    )

    assert result.status is SessionState.FINISHED
