"""Streaming links, in one process: consumers read data while they are written, with the same results."""

import random
import signal
import subprocess
import sys
import threading
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.execution.journal import replay
from dropflow.execution.session import Session
from dropflow.execution.statistics import SessionResult
from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import save
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.local_run import RunHooks
from dropflow.states import SessionState
from tests.nightly import nightly
from tests.processes import gone
from tests.strategies import graphs, pipelines
from tests.streaming_apps import fields

pytestmark = pytest.mark.slow

FILE = "dlg.data.drops.file.FileDROP"
MEMORY = "dlg.data.drops.memory.InMemoryDROP"
RUNNERS = ("threads", "processes")

WAITS_FOR_ITS_CONSUMER = """
echo one
while ! test -e {folder}/seen; do sleep 0.02; done
echo two
"""
READS = "read line; echo $line; touch {folder}/seen; cat"


def bash(builder: GraphBuilder, name: str, command: str, *, kind: str = "BashShellApp", **more: Any) -> None:
    """Return a shell command as an application."""
    arguments = (Argument(name="command", value=command, parameter_type="ComponentParameter"),)
    component = f"dlg.apps.bash_shell_app.{kind}"
    builder.app(name, component=component, category="BashShellApp", arguments=arguments, **more)


def chain(*commands: str, data: str = FILE, tries: tuple[int, ...] = (), **last: Any) -> PhysicalGraph:
    """Return a chain of commands with streaming links between them, and the output of the last one.

    `last` are more fields of the last application.
    """
    builder = GraphBuilder("chain")
    for number, command in enumerate(commands):
        kind = "StreamingInputOutputBashApp" if number else "StreamingOutputBashApp"
        more = last if number == len(commands) - 1 else {}
        bash(builder, f"A{number}", command, kind=kind, tries=tries[number] if tries else 1, **more)
        builder.data(f"d{number}", component=data)
        builder.connect(f"A{number}", f"d{number}")
        if number:
            builder.connect(f"d{number - 1}", f"A{number}", streaming=True)
    return builder.build()


def between(producer: dict[str, Any], consumer: dict[str, Any], *, data: str = MEMORY, **more: Any) -> PhysicalGraph:
    """Return two applications with a stream between them, and a memory drop after the second."""
    builder = GraphBuilder("between")
    builder.app("A", **producer).data("x", component=data, **more).app("B", **consumer).data("y")
    builder.connect("A", "x").connect("x", "B", streaming=True).connect("B", "y")
    return builder.build()


def run(graph: PhysicalGraph, directory: Path, runner: str, workers: int = 3, **hooks: Any) -> SessionResult:
    """Run a graph, with checks after each step and for temporary files at the end."""
    prepared = local_run.prepare_directory(directory, overwrite=True)
    options = RunOptions(runner=runner, workers=workers, check=True)
    found = local_run.run(graph, prepared, options, hooks=RunHooks(**hooks))
    assert not list(directory.glob("tmp/*"))
    return found


def result(directory: Path, name: str) -> bytes:
    """Return the content of each leaf, by the name of its node."""
    (found,) = directory.glob(f"*/*_{name}_*")
    return found.read_bytes()


def states(directory: Path, graph: PhysicalGraph) -> dict[str, str]:
    """Return the final state of each drop, by the name of its node."""
    core = replay(graph, directory / "journal.dfj").core
    return {graph.templates[graph.template[drop]].name: core.drops.state(drop).name for drop in range(graph.drops)}


def wait_for_end(*paths: Path) -> None:
    """Wait until the processes have ended whose ids these files contain; zombies count as ended."""
    found = [psutil.Process(int(path.read_text())) for path in paths if psutil.pid_exists(int(path.read_text()))]
    assert gone(found)


@pytest.fixture
def meet(tmp_path: Path) -> Path:
    """Return a directory for signals between applications."""
    found = tmp_path / "meet"
    found.mkdir()
    return found


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let worker processes import the applications of the tests."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[1]))


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("data", [FILE, MEMORY])
def test_a_consumer_reads_while_its_producer_writes(tmp_path: Path, meet: Path, runner: str, data: str) -> None:
    """A consumer reads the first half of the output while its producer waits for a signal from it."""
    graph = chain(WAITS_FOR_ITS_CONSUMER.format(folder=meet), READS.format(folder=meet), data=data)
    found = run(graph, tmp_path / "session", runner)

    assert found.status is SessionState.FINISHED, found.failures
    assert result(tmp_path / "session", "d1") == b"one\ntwo\n"


FAILS_ONCE = """
echo {word}
while ! test -e {folder}/seen; do sleep 0.02; done
test -e {folder}/again && echo end && exit
touch {folder}/again
{how}
"""


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_retried_producer_is_read_again(tmp_path: Path, meet: Path, runner: str) -> None:
    """If a producer is retried, its consumer starts over and reads only the second attempt."""
    producer = FAILS_ONCE.format(folder=meet, word=f"there was: $(ls {meet})", how="exit 1")
    graph = chain(producer, READS.format(folder=meet), tries=(2, 1))
    found = run(graph, tmp_path / "session", runner)

    assert found.status is SessionState.FINISHED, found.failures
    assert result(tmp_path / "session", "d1") == b"there was: again seen\nend\n"


def test_the_worker_of_a_producer_is_killed(tmp_path: Path, meet: Path) -> None:
    """If the worker of a producer is killed, its commands end, it is repeated, and the consumer reads that."""
    how = f"sleep 1000 & echo $! > {meet}/left; kill -9 $PPID; sleep 1000"
    producer = FAILS_ONCE.format(folder=meet, word="one", how=how)
    graph = chain(producer, READS.format(folder=meet), tries=(1, 1))
    found = run(graph, tmp_path / "session", "processes")

    assert found.status is SessionState.FINISHED, found.failures
    assert result(tmp_path / "session", "d1") == b"one\nend\n"
    wait_for_end(meet / "left")


@pytest.mark.parametrize("how", ["exit 3", "kill -9 $PPID"])
def test_the_worker_of_a_consumer_fails_or_is_killed(tmp_path: Path, meet: Path, how: str) -> None:
    """If a consumer fails or its worker is killed, it runs again and reads all again; its producer goes on."""
    consumer = f"read line; touch {meet}/seen; test -e {meet}/2 && echo $line && cat && exit; touch {meet}/2; {how}"
    graph = chain(WAITS_FOR_ITS_CONSUMER.format(folder=meet), consumer, tries=(1, 2))
    found = run(graph, tmp_path / "session", "processes")

    assert found.status is SessionState.FINISHED, found.failures
    assert result(tmp_path / "session", "d1") == b"one\ntwo\n"


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_producer_that_fails_is_the_cause(tmp_path: Path, meet: Path, runner: str) -> None:
    """If a producer fails, its consumers end in ERROR with it as cause, as without streams."""
    producer = f"echo one; while ! test -e {meet}/seen; do sleep 0.02; done; exit 7"
    graph = chain(producer, READS.format(folder=meet), "cat", tries=(2, 1, 1))
    found = run(graph, tmp_path / "session", runner)

    assert [(report.name, report.count, report.attempts) for report in found.failures] == [("A0", 6, 2)]
    assert "status 7" in found.failures[0].text
    assert not list((tmp_path / "session" / "files").iterdir())


def test_a_consumer_that_tolerates_a_failed_input_runs_without_it(tmp_path: Path, meet: Path) -> None:
    """A consumer with a threshold of 100 % starts over and runs without the failed input."""
    producer = f"echo one; while ! test -e {meet}/seen; do sleep 0.02; done; exit 7"
    graph = chain(producer, f"touch {meet}/seen; echo got; cat", error_threshold=100.0)
    found = run(graph, tmp_path / "session", "threads")

    assert found.states == {"COMPLETED": 2, "ERROR": 2, "SKIPPED": 0}
    assert result(tmp_path / "session", "d1") == b"got\n"


def test_a_consumer_that_fails_is_the_cause_of_its_own_failure(tmp_path: Path, meet: Path) -> None:
    """If a consumer fails, it is the cause, and its producer completes."""
    graph = chain(WAITS_FOR_ITS_CONSUMER.format(folder=meet), f"touch {meet}/seen; exit 3")
    found = run(graph, tmp_path / "session", "threads")

    assert [(report.name, report.count) for report in found.failures] == [("A1", 2)]
    assert states(tmp_path / "session", graph) == {"A0": "COMPLETED", "d0": "COMPLETED", "A1": "ERROR", "d1": "ERROR"}


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_consumer_may_stop_reading(tmp_path: Path, runner: str) -> None:
    """A consumer that reads only the first line ends, and its producer writes to the end."""
    graph = chain("seq 200000", "head -1")
    found = run(graph, tmp_path / "session", runner)
    (stream,) = (tmp_path / "session").glob("files/*_d0_*")

    assert found.status is SessionState.FINISHED, found.failures
    assert result(tmp_path / "session", "d1") == b"1\n"
    assert len(stream.read_bytes()) == 1288895


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("workers", [1, *nightly(2, 4)])
def test_a_chain_may_be_longer_than_there_are_workers(tmp_path: Path, runner: str, workers: int) -> None:
    """A chain that has more applications than workers ends: as many run at a time as there are workers."""
    graph = chain("seq 1 3000", *["sed s/$/x/"] * 5)
    found = run(graph, tmp_path / "session", runner, workers)

    assert found.status is SessionState.FINISHED, found.failures
    assert result(tmp_path / "session", "d5") == b"".join(b"%dxxxxx\n" % number for number in range(1, 3001))


def test_an_inline_runner_ignores_streaming(tmp_path: Path) -> None:
    """In an inline runner, streaming links have no effect."""
    found = run(chain("seq 1 3000", "sed s/$/x/", "tail -1"), tmp_path / "session", "inline")

    assert found.status is SessionState.FINISHED, found.failures
    assert result(tmp_path / "session", "d2") == b"3000x\n"


@pytest.mark.parametrize("runner", RUNNERS)
def test_consumers_of_all_sorts(tmp_path: Path, meet: Path, runner: str) -> None:
    """Consumers that read a stream, and those that wait for complete data, get the same content."""
    builder = GraphBuilder("fan")
    bash(builder, "A", WAITS_FOR_ITS_CONSUMER.format(folder=meet), kind="StreamingOutputBashApp")
    builder.data("x", component=FILE).connect("A", "x")
    for name, kind, command, streaming in (
        ("live", "StreamingInputOutputBashApp", READS.format(folder=meet), True),
        ("late", "StreamingInputOutputBashApp", "cat", False),
        ("whole", "BashShellApp", "cat %i0 > %o0", True),
    ):
        bash(builder, name, command, kind=kind)
        builder.data(f"y{name}").connect("x", name, streaming=streaming).connect(name, f"y{name}")
    builder.app("copy", component="dlg.apps.simple.CopyApp").data("z")
    builder.connect("x", "copy", streaming=True).connect("x", "copy", streaming=False).connect("copy", "z")
    builder.app("crc", component="dlg.apps.crc.CRCApp").data("c").connect("x", "crc", streaming=True).connect(
        "crc", "c"
    )
    found = run(builder.build(), tmp_path / "session", runner)

    assert found.status is SessionState.FINISHED, found.failures
    for name in ("ylive", "ylate", "ywhole"):
        assert result(tmp_path / "session", name) == b"one\ntwo\n"
    assert result(tmp_path / "session", "z") == b"one\ntwo\n" * 2
    assert result(tmp_path / "session", "c") == str(zlib.crc32(b"one\ntwo\n")).encode()


def test_one_application_reads_a_stream_at_two_ports(tmp_path: Path, meet: Path) -> None:
    """An application that reads one stream at two ports gets all of it at both."""
    builder = GraphBuilder("twice")
    builder.app("A", **fields("Beginner", begin="one ", sign=f"{meet}/seen", rest="two ")).data("x").connect("A", "x")
    builder.app("B", **fields("Reader", how="open", sign=f"{meet}/seen")).data("y").connect("B", "y")
    builder.connect("x", "B", streaming=True, target_port="p").connect("x", "B", streaming=True, target_port="q")
    run(builder.build(), tmp_path / "session", "threads")

    assert result(tmp_path / "session", "y") == b"one two one two "


@pytest.mark.parametrize("runner", RUNNERS)
def test_an_open_stream_may_be_skipped(tmp_path: Path, meet: Path, runner: str) -> None:
    """A stream whose producer skips that output at the end is skipped, with everything downstream."""
    builder = GraphBuilder("skip")
    builder.app("A", **fields("Skipper", sign=f"{meet}/seen"))
    for name in ("lost", "won"):
        builder.data(name).connect("A", name)
        builder.app(f"B{name}", **fields("Reader", how="open", sign=f"{meet}/seen"))
        builder.data(f"y{name}").connect(name, f"B{name}", streaming=True).connect(f"B{name}", f"y{name}")
    graph = builder.build()
    found = run(graph, tmp_path / "session", runner)
    ended = states(tmp_path / "session", graph)

    assert found.status is SessionState.FINISHED, found.failures
    assert [name for name, state in ended.items() if state == "SKIPPED"] == ["lost", "Blost", "ylost"]
    assert result(tmp_path / "session", "ywon") == b"begun"


@pytest.mark.parametrize("data", [FILE, MEMORY])
@pytest.mark.parametrize(
    ("how", "got"),
    [(how, b"one two") for how in ("open", "read", "view", "raw", "text", "path", "url")]
    + [("size", b"7"), ("kind", b"7 True False {}")],
)
def test_python_applications_read_streams(tmp_path: Path, meet: Path, data: str, how: str, got: bytes) -> None:
    """Python applications run while their input is written: a stream is read as it grows, values when complete."""
    producer = fields("Beginner", begin="one ", sign=f"{meet}/seen", rest="two")
    graph = between(producer, fields("Reader", how=how, sign=f"{meet}/seen"), data=data)
    found = run(graph, tmp_path / "session", "threads")

    assert found.status is SessionState.FINISHED, found.failures
    assert result(tmp_path / "session", "y") == got.replace(b"{}", str(data == MEMORY).encode())


@pytest.mark.parametrize(
    ("rest", "suffix", "whole"),
    [
        ("\u00e9nd", ".txt", "b\u00e9gun \u00e9nd".encode()),
        ([0xFF, 0xFE], ".dat", "b\u00e9gun ".encode() + b"\xff\xfe"),
    ],
)
def test_text_stays_text(tmp_path: Path, meet: Path, rest: str | list[int], suffix: str, whole: bytes) -> None:
    """A copy of a stream is text if all of it is text; one that only begins as text is copied as bytes."""
    producer = fields("Beginner", begin="b\u00e9gun ", sign=f"{meet}/seen", rest=rest)
    builder = GraphBuilder("text")
    builder.app("A", **producer).data("x").connect("A", "x")
    builder.app("B", **fields("Reader", how="open", sign=f"{meet}/seen")).connect("x", "B", streaming=True)
    builder.app(
        "C", component="dlg.apps.simple.CopyApp", arguments=(Argument(name="bufsize", value=2, type="Integer"),)
    )
    builder.data("y").connect("x", "C", streaming=True).connect("C", "y")
    found = run(builder.build(), tmp_path / "session", "threads")
    (copy,) = (tmp_path / "session" / "results").iterdir()

    assert found.status is SessionState.FINISHED, found.failures
    assert copy.read_bytes() == whole
    assert copy.suffix == suffix


def test_a_file_elsewhere_is_read_while_it_is_written(tmp_path: Path, meet: Path) -> None:
    """A file outside of the session directory can be read while it is written, and has its name when complete."""
    target = tmp_path / "elsewhere" / "out.txt"
    arguments = (Argument(name="filepath", value=str(target)),)
    producer = fields("Beginner", begin="one ", sign=f"{meet}/seen", rest="two")
    consumer = fields("Reader", how="path", sign=f"{meet}/seen")
    graph = between(producer, consumer, data=FILE, arguments=arguments)
    run(graph, tmp_path / "session", "processes")

    assert result(tmp_path / "session", "y") == target.read_bytes() == b"one two"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("runner", RUNNERS)
def test_fifty_streams_over_two_workers(tmp_path: Path, runner: str) -> None:
    """Fifty streams complete with two workers."""
    builder = GraphBuilder("wide")
    for number in range(50):
        bash(builder, f"A{number}", f"seq {number}", kind="StreamingOutputBashApp")
        bash(builder, f"B{number}", "wc -l", kind="StreamingInputOutputBashApp")
        builder.data(f"x{number}").data(f"y{number}")
        builder.connect(f"A{number}", f"x{number}").connect(f"x{number}", f"B{number}", streaming=True)
        builder.connect(f"B{number}", f"y{number}")
    found = run(builder.build(), tmp_path / "session", runner, 2)

    assert found.status is SessionState.FINISHED, found.failures
    assert [int(result(tmp_path / "session", f"y{number}")) for number in range(50)] == list(range(50))


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_cancel_in_mid_stream(tmp_path: Path, meet: Path, runner: str) -> None:
    """A cancel ends writers, readers and their commands, and leaves no temporary file."""
    producer = f"echo $$ > {meet}/a; echo one; while ! test -e {meet}/never; do sleep 0.02; done"
    graph = chain(producer, f"echo $$ > {meet}/b; read line; touch {meet}/seen; cat", "cat")

    def cancel_it(session: Session) -> None:
        def wait() -> None:
            while not (meet / "seen").exists():
                threading.Event().wait(0.01)
            session.cancel("enough")

        threading.Thread(target=wait, daemon=True).start()

    found = run(graph, tmp_path / "session", runner, on_session=cancel_it)

    assert found.status is SessionState.CANCELLED
    wait_for_end(meet / "a", meet / "b")


def test_ctrl_c_in_mid_stream(tmp_path: Path, meet: Path) -> None:
    """After Ctrl-C the command exits as without streams, and no process is left."""
    producer = f"echo $$ > {meet}/a; echo one; sleep 1000"
    save(chain(producer, f"echo $$ > {meet}/b; read line; touch {meet}/seen; cat"), tmp_path / "g.dfg")
    command = [sys.executable, "-m", "dropflow", "run", "g.dfg", "--keep", "out", "--workers", "2"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (meet / "seen").exists():
            threading.Event().wait(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130

    assert "CANCELLED" in (tmp_path / "out" / "summary.json").read_text()
    assert not list((tmp_path / "out").glob("tmp/*"))
    wait_for_end(meet / "a", meet / "b")


def test_large_streams_take_no_memory(tmp_path: Path) -> None:
    """For a stream of 120 MB, no process needs more than a few MB of memory."""
    builder = GraphBuilder("flood")
    for number in range(3):
        builder.app(f"A{number}", **fields("Flood", megabytes=0 if number else 120))
        builder.data(f"x{number}", component=FILE).data(f"m{number}")
        builder.connect(f"A{number}", f"x{number}").connect(f"A{number}", f"m{number}")
        if number:
            builder.connect(f"x{number - 1}", f"A{number}", streaming=True)
    found = run(builder.build(), tmp_path / "session", "processes", 3)

    assert found.status is SessionState.FINISHED, found.failures
    assert {path.stat().st_size for path in tmp_path.glob("session/files/*")} == {120 << 20}
    assert all(int(result(tmp_path / "session", f"m{number}")) < 150_000 for number in range(3))


@settings(max_examples=25)
@given(graph=graphs() | pipelines(), seed=st.integers(0, 2**32))
def test_streams_change_no_result(graph: PhysicalGraph, seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With streaming links and without, every drop ends in the same state and every leaf with the same content."""
    chance = random.Random(seed)
    templates = [
        msgspec.structs.replace(
            template, effective_inputs=-1, **fields("Mixer", fails=chance.random() < 0.2, skips=_some(chance))
        )
        if template.kind
        else msgspec.structs.replace(template, component=chance.choice([FILE, MEMORY]))
        for template in graph.templates
    ]
    links = [msgspec.structs.replace(link, streaming=chance.random() < 0.8) for link in graph.links]
    streamed = replace(graph, templates=tuple(templates), links=tuple(links))
    plain = replace(streamed, links=graph.links)
    base = tmp_path_factory.mktemp("same")
    ended = [run(each, base / name, "threads") for each, name in ((streamed, "with"), (plain, "without"))]

    assert ended[0].states == ended[1].states
    assert states(base / "with", streamed) == states(base / "without", plain)
    assert _contents(base / "with") == _contents(base / "without")


def _some(chance: random.Random) -> list[int]:
    return [number for number in range(2) if chance.random() < 0.1]


def _contents(directory: Path) -> dict[str, bytes]:
    found = (path for folder in ("files", "results") for path in (directory / folder).iterdir())
    return {path.name: path.read_bytes() for path in found}
