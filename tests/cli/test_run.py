"""``dropflow run``: its answer and its exit status."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
import psutil
import pytest

from dropflow.cli.common_options import Duration, parse_walltime
from dropflow.cli.exit_status import Exit
from dropflow.cli.run import RunReply, exit_of_run
from dropflow.execution.content_location import Handle
from dropflow.execution.statistics import SessionResult, with_results
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.local_run import RunHooks, resume
from dropflow.sessions.stopped import StoppedRun
from dropflow.states import SessionState
from dropflow.testing import drawing
from tests.cli.answers import Command
from tests.drawn_graphs import data, draw, function
from tests.virtual_clock import VirtualClock

FAILING = """def f():
    raise ValueError("the telescope is parked")
"""


@pytest.fixture
def graph(tmp_path: Path) -> Callable[[str], Path]:
    """Write a graph with one function of the given code."""

    def write(code: str) -> Path:
        return draw(tmp_path / "one.graph", [function("Work", code, func_name="f"), data("result")], "Work > result")

    return write


@pytest.mark.slow
def test_the_json_answer_is_one_object(dropflow: Command, examples: Path, tmp_path: Path) -> None:
    """The object has the end of the run and the directory of the results; `summary.json` there is the same."""
    done = dropflow("run", examples / "hello.graph", "--output", "json", "--keep", "here", "--runner", "inline")
    answer = done.json

    assert done.status == 0
    assert answer.keys() >= {"ok", "session", "status", "drops", "states", "seconds", "failures", "output"}
    assert (answer["ok"], answer["status"], answer["drops"]) == (True, "FINISHED", 2)
    assert answer["states"] == {"COMPLETED": 2, "ERROR": 0, "SKIPPED": 0}
    assert Path(answer["output"]) == tmp_path / "here"
    assert json.loads((tmp_path / "here" / "summary.json").read_text()) == answer


def test_a_graph_without_drops_is_refused(command: Command, tmp_path: Path) -> None:
    """As managers do; no directory is made for it."""
    (tmp_path / "none.json").write_text("[]")

    done = command("run", tmp_path / "none.json", "--keep", tmp_path / "kept")

    assert (done.status, "the graph has no drops" in done.err) == (2, True)
    assert not (tmp_path / "kept").exists()


def test_a_value_that_is_no_text_is_refused(command: Command, examples: Path) -> None:
    """The shell may give any bytes, and a graph has text."""
    done = command("run", examples / "hello.graph", "--set", "Greet.greet=W\udcf6rld")

    assert (done.status, "is not text in UTF-8" in done.err) == (2, True)


@pytest.mark.slow
def test_results_go_below_dropflow_runs(dropflow: Command, examples: Path, tmp_path: Path) -> None:
    """Without --keep, each run has a directory of its own."""
    first, second = (dropflow("run", examples / "hello.graph", "--output", "json").json["output"] for _ in range(2))

    assert first != second
    assert Path(first).parent == tmp_path / "dropflow-runs"
    assert (Path(first) / "files" / "hello.txt").read_text() == "Hello World"


@pytest.mark.slow
def test_a_second_run_replaces_the_first_only_if_asked(dropflow: Command, examples: Path, tmp_path: Path) -> None:
    """The same --keep is refused with exit status 2; with --overwrite, the results of the first run are removed."""
    dropflow("run", examples / "error-threshold.graph", "--keep", "here")
    refused = dropflow("run", examples / "hello.graph", "--keep", "here")
    done = dropflow("run", examples / "hello.graph", "--keep", "here", "--overwrite")

    assert refused.status == 2
    assert "--overwrite" in refused.err
    assert done.status == 0
    assert [path.name for path in (tmp_path / "here" / "files").iterdir()] == ["hello.txt"]


@pytest.mark.parametrize(
    "words",
    [("explain", ".", "x"), ("log", "."), ("times", "."), ("replay", ".", "x"), ("resume", "."), ("retry", ".")],
)
@pytest.mark.parametrize("name", ["there", "none"])
def test_a_directory_without_a_run_is_named_by_all_commands_alike(
    dropflow: Command, tmp_path: Path, words: Sequence[str], name: str
) -> None:
    """It gets no lock file, and the status is that of bad input."""
    (tmp_path / "there").mkdir()
    answer = dropflow(*(f"{tmp_path}/{name}" if word == "." else word for word in words))

    assert answer.status == 2
    assert answer.err.startswith("error DF107")
    assert (
        "there is no run in" in answer.err or "there is no such directory" in answer.err or "has no run" in answer.err
    )
    assert not [*(tmp_path / "there").iterdir()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "text"), [("mine/thesis.tex", "has files that are not of a session"), ("mine", "a file, not a directory")]
)
def test_files_of_the_user_are_not_removed(
    dropflow: Command, examples: Path, tmp_path: Path, file: str, text: str
) -> None:
    """--keep is refused if the directory has other files, or is a file, which stay."""
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("precious")
    done = dropflow("run", examples / "hello.graph", "--keep", "mine")

    assert done.status == 2
    assert text in done.err
    assert path.read_text() == "precious"


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["inline", "threads", "processes"])
def test_a_failed_run_names_the_drop_the_reason_and_the_log(
    dropflow: Command, graph: Callable[[str], Path], runner: str
) -> None:
    """A failure has its root cause and the number of drops in error because of it; the exit status is 1."""
    done = dropflow("run", graph(FAILING), "--output", "json", "--runner", runner)
    (failure,) = done.json["failures"]

    assert done.status == 1
    assert done.json["status"] == "FAILED"
    assert failure["name"] == "Work"
    assert failure["text"] == "ValueError: the telescope is parked"
    assert failure["count"] == 2
    assert "the telescope is parked" in Path(failure["log"]).read_text()


@pytest.mark.slow
def test_a_missing_module_is_named_with_what_to_do(dropflow: Command, graph: Callable[[str], Path]) -> None:
    """The drop fails, and the message says what to install."""
    done = dropflow("run", graph("def f():\n    import casa_of_the_future\n"))

    assert done.status == 1
    assert "casa_of_the_future" in done.out.decode()
    assert "install" in done.out.decode()


@pytest.mark.slow
def test_output_of_functions_goes_to_their_log(process: Command, graph: Callable[[str], Path]) -> None:
    """Standard output stays one JSON object."""
    code = "def f():\n    import os\n    print('noise')\n    os.write(1, b'more noise')\n    return 1\n"
    done = process("run", graph(code), "--output", "json")

    assert done.json["ok"]
    logs = Path(done.json["output"]) / "logs"
    assert any("noise" in log.read_text() for log in logs.iterdir())


def test_quiet_prints_nothing_after_success(dropflow: Command, examples: Path) -> None:
    """The exit status is the answer."""
    done = dropflow("run", examples / "hello.graph", "--output", "quiet", "--runner", "inline")

    assert (done.status, done.out, done.err) == (0, b"", "")


@pytest.mark.slow
def test_retry_says_that_it_uses_the_code_of_the_run(dropflow: Command, graph: Callable[[str], Path]) -> None:
    """After a function in the source of the graph was edited, retry names the command that takes the new code."""
    dropflow("run", graph(FAILING), "--keep", "here", "--runner", "inline")
    graph(FAILING.replace("raise ValueError", "return str"))
    again = dropflow("retry", "here", "--runner", "inline")

    assert again.status == 1
    assert "the code that the run began with" in again.err
    assert "--new-code FILE" in again.err


SCRIPT = """
from math import sqrt
from dropflow import Graph, app

FACTOR = 2 * 10

def times(value):
    return value * FACTOR

@app
def first(start: int):
    return start

@app
def second(value):
    return times(value)

@app
def third(value):
    return str(int(sqrt(value)))

graph = Graph("script")
with graph:
    third(second(first(3))).save("out.txt")
graph.run(directory="ran", runner="inline")
"""


@pytest.mark.slow
def test_retry_takes_new_code_of_a_script(process: Command, tmp_path: Path) -> None:
    """Functions that differ run again with what depends on them; the graph that the script runs at its end does not."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, check=True, capture_output=True)
    command = ("retry", "ran", "--new-code", "script.py", "--runner", "inline")
    script.write_text(SCRIPT.replace("times(value)\n", "times( value )  # the same\n").replace("str(int", "str(round"))
    same = process(*command)
    script.write_text(SCRIPT.replace("2 * 10", "3").replace("return start", "return start + 1"))
    changed = process(*command, "--from", "Second", "--output", "json")
    all_changed = process(*command)

    assert "Third has new code: return str(round(sqrt(value)))" in same.err, same.err
    assert "Second" not in same.err
    assert changed.status == 0, changed.err
    assert "Second has new code: FACTOR = 3" in changed.err
    assert "First keeps its code, because its results stay: run it again with --from 'First'" in changed.err
    assert all_changed.status == 0
    assert "Second" not in all_changed.err
    assert (tmp_path / "ran" / "files" / "out.txt").read_text() == "3"  # the root of (3 + 1) * 3
    assert [*tmp_path.glob("dropflow-runs")] == []


@pytest.mark.slow
def test_new_code_of_a_graph_is_for_drops_that_failed(dropflow: Command, graph: Callable[[str], Path]) -> None:
    """A function that was corrected in its graph; a file without functions of the graph is refused."""
    dropflow("run", graph(FAILING), "--keep", "here", "--runner", "inline")
    corrected = graph(FAILING.replace("raise ValueError", "return str"))
    again = dropflow("retry", "here", "--new-code", corrected, "--runner", "inline")
    (corrected.parent / "other.py").write_text("def g():\n    pass\n")
    other = dropflow("retry", "here", "--new-code", corrected.parent / "other.py")

    assert again.status == 0, again.err
    assert "Work has new code" in again.err
    assert other.status == 2
    assert "no function of the graph is in" in other.err


@pytest.mark.slow
def test_settings_change_parameters(dropflow: Command, examples: Path, tmp_path: Path) -> None:
    """--set changes a parameter of a node by its name."""
    dropflow("run", examples / "hello.graph", "--set", "Greet.greet=Sky", "--keep", "here")

    assert (tmp_path / "here" / "files" / "hello.txt").read_text() == "Hello Sky"


@pytest.mark.slow
def test_an_unknown_setting_is_refused(dropflow: Command, examples: Path) -> None:
    """The message has the unknown name and a similar one that exists."""
    done = dropflow("run", examples / "hello.graph", "--set", "Greeet.greet=Sky")

    assert done.status == 2
    assert "Greet" in done.err


@pytest.mark.slow
def test_commands_can_be_piped(dropflow: Command, examples: Path) -> None:
    """One command writes to standard output, the next one reads from it. The number of parts changes no result."""
    for form, parts in (("json", 1), ("dfg", 3)):
        unrolled = dropflow("unroll", examples / "nested-scatter-gather.graph", "-o", "-", "--format", form)
        done = dropflow("run", "-", "-n", parts, "--output", "json", "--runner", "inline", stdin=unrolled.out)

        assert done.json["states"]["COMPLETED"] == 67


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hosts", "named"),
    [("far-1,far-2:8000:1111:2222", "far-1, far-2:8000:1111:2222"), ("localhost,localhost:8001", "")],
)
def test_a_graph_that_names_other_hosts_runs_here_with_a_note(
    dropflow: Command, examples: Path, tmp_path: Path, hosts: str, named: str
) -> None:
    """One note in the answer and on standard error names the other hosts."""
    placed = tmp_path / "placed.json"
    dropflow("map", examples / "nested-scatter-gather.graph", "--nodes", hosts, "-o", placed)
    done = dropflow("run", placed, "--output", "json")
    expected = f"the graph names other hosts ({named}): everything runs on this machine"

    assert done.json["states"]["COMPLETED"] == 67
    assert done.json["notes"] == ([expected] if named else [])
    assert done.err.count("everything runs on this machine") == bool(named)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runner", "number", "status"),
    [
        ("processes", signal.SIGINT, 130),
        ("inline", signal.SIGTERM, 143),
        *(
            pytest.param(runner, number, status, marks=pytest.mark.exhaustive)
            for runner, number, status in (
                ("inline", signal.SIGINT, 130),
                ("threads", signal.SIGINT, 130),
                ("threads", signal.SIGTERM, 143),
                ("processes", signal.SIGTERM, 143),
            )
        ),
    ],
)
def test_a_signal_cancels_the_run(
    graph: Callable[[str], Path], tmp_path: Path, runner: str, number: signal.Signals, status: int
) -> None:
    """Ctrl-C cancels the drops, stops the workers, prints the answer and ends with 130 (SIGTERM: 143)."""
    code = "def f():\n    import pathlib, threading\n    pathlib.Path(r'{}').touch()\n    threading.Event().wait(50)\n"
    path = graph(code.format(tmp_path / "started"))
    process = subprocess.Popen(
        [sys.executable, "-m", "dropflow", "run", path, "--output", "json", "--runner", runner],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _wait_for(tmp_path / "started", process)
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=60)

    assert process.returncode == status, err
    assert json.loads(out)["status"] == "CANCELLED"
    assert [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []


def _wait_for(path: Path, process: "subprocess.Popen[bytes]") -> None:
    """Wait until the application in the other process has made `path`."""
    for _ in range(2400):
        if path.exists():
            return
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(process.communicate())
    raise AssertionError("the application did not start")


# ``run --until``: forms of a walltime, and runs that are stopped at one.


_NOW = datetime(2027, 1, 31, 23, 0)  # noqa: DTZ001 - local, see the fixture


@pytest.fixture
def central_europe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the local time of Central Europe."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


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
@pytest.mark.usefixtures("central_europe")
def test_walltimes_have_several_forms(text: str, seconds: float) -> None:
    """A time of day is the next one; a date without a zone is local."""
    assert parse_walltime(text, _NOW) - _NOW.timestamp() == seconds


@pytest.mark.parametrize(
    ("now", "text", "hours"),
    [
        (datetime(2026, 10, 24, 22), "06:00", 9),  # noqa: DTZ001 - local
        (datetime(2027, 3, 27, 22), "06:00", 7),  # noqa: DTZ001 - local
        (datetime(2026, 10, 25, 1), "2026-10-25T06:00", 6),  # noqa: DTZ001 - local
        (datetime(2026, 10, 24, 22), "8h", 8),  # noqa: DTZ001 - local
    ],
)
@pytest.mark.usefixtures("central_europe")
def test_a_walltime_behind_a_change_of_the_clocks_is_by_the_clock_of_then(
    now: datetime, text: str, hours: float
) -> None:
    """Six in the morning is when clocks show it, in the nights to and from summer time, too."""
    assert parse_walltime(text, now) - now.timestamp() == 3600 * hours


@pytest.mark.parametrize(
    ("text", "seconds"), [("3", 3), ("3s", 3), ("0.5", 0.5), ("1e3", 1000), ("10m", 600), ("1.5h", 5400)]
)
def test_durations_are_seconds_unless_they_have_a_unit(text: str, seconds: float) -> None:
    """All options for a duration read it so."""
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["soon", "", "3 s", "-1", "-1s", "nan", "inf", "2h"])
def test_other_texts_are_no_durations(text: str) -> None:
    """Neither is one beyond the bounds of the option."""
    with pytest.raises(click.BadParameter, match=r"is not a duration; give seconds|is not in the range 0<=x<=3600"):
        Duration(max=3600).convert(text, None, None)


@pytest.mark.parametrize("text", ["soon", "", "25:00", "-5s", "2027-01-31T22:10", "3600", "0001-01-01T00:00"])
@pytest.mark.usefixtures("central_europe")
def test_other_texts_are_no_walltimes(text: str) -> None:
    """A time in the past is none, either."""
    with pytest.raises(ValueError, match=r"has passed|Invalid isoformat|must be in|out of range"):
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
    result = local_run.run(_graph(), tmp_path, RunOptions(runner=runner, workers=1, until=until, check=True))
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
        _graph(),
        tmp_path,
        RunOptions(runner="inline", until=datetime.now(UTC).timestamp() + 1e6),
        hooks=RunHooks(clock=clock),
    )

    assert result.status is SessionState.FINISHED


@pytest.mark.parametrize("place", ["in", "out"])
def test_final_results_are_listed_first_wherever_they_are(place: str, tmp_path: Path) -> None:
    """Files of data that others read come after them; if no file is in the directory of the run, the answer says so."""
    base = tmp_path / "out" if place == "out" else Path()
    builder = GraphBuilder("chain")
    names = {"first": "a.txt", "last": "z.txt"}
    for name, path in names.items():
        fields = (Argument(name="filepath", value=str(base / path)), Argument(name="persist", value=True))
        builder.data(name, component="dlg.data.drops.file.FileDROP", arguments=fields)
    for name, command in (("MAKE", "echo 1 > %o0"), ("TAKE", "cp %i0 %o0")):
        value = (Argument(name="command", value=command),)
        builder.app(name, component="dlg.apps.bash_shell_app.BashShellApp", arguments=value)
    for ends in (("MAKE", "first"), ("first", "TAKE"), ("TAKE", "last")):
        builder.connect(*ends)
    directory = tmp_path / "run"
    lines = [*RunReply.of(local_run.run(builder.build(), directory, RunOptions(runner="inline"))).lines()]
    where = directory / "files" if place == "in" else base

    head = lines.index(f"results {'in' if place == 'in' else 'outside of'} {directory}")
    assert lines[head + 1 : head + 3] == [f"  {where / 'z.txt'}", f"  {where / 'a.txt'}"]
    of_leaves = (str(where / "z.txt"), str(where / "a.txt"))[: 1 if place == "in" else 2]
    assert StoppedRun.read(directory).result().results == of_leaves


def test_all_results_are_counted_and_a_directory_stands_for_its_files(tmp_path: Path) -> None:
    """The first ones are listed; the others are counted, also those outside that the summary does not have."""
    made = tmp_path / "run" / "files" / "made"
    made.mkdir(parents=True)
    for name in ("one", "two"):
        (made / name).write_text(name)
    (made.parent / "three.txt").write_text("3")
    contents = {row: Handle(kind="file", location=f"/~/{row:03}.txt") for row in range(1, 151)}
    contents |= {151: Handle(kind="directory", location=str(made)), 0: Handle(kind="bytes", body=b"")}
    graph = drawing.draw(", ".join(f"A -> x{row}" for row in range(1, 152)))
    result = SessionResult(
        session="s",
        status=SessionState.FINISHED,
        drops=152,
        states={},
        seconds=1.0,
        failures=(),
        directory=str(tmp_path / "run"),
    )
    reply = RunReply.of(with_results(result, graph, contents))
    lines = [*reply.lines()]
    listed = [line.strip() for line in lines if line.startswith("  ")]

    assert (len(reply.results), reply.more_results) == (100, 51)
    assert (len(listed), listed.count(str(made)), listed[-1]) == (13, 1, "... and 140 more")
    assert str(made / "one") not in "".join(lines)
