"""Links that stream, in one process: consumers read what is still being written, and it changes no result."""

from pathlib import Path

import pytest

from dropflow import local
from dropflow.engine.reports import SessionResult
from dropflow.graph.builder import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.states import SessionState

FILE = "dlg.data.drops.file.FileDROP"
MEMORY = "dlg.data.drops.memory.InMemoryDROP"
RUNNERS = ("threads", "processes")

WAITS_FOR_ITS_CONSUMER = """
echo one
while ! test -e {folder}/seen; do sleep 0.05; done
echo two
"""
READS = "read line; echo $line; touch {folder}/seen; cat"


def bash(builder: GraphBuilder, name: str, command: str, *, kind: str = "BashShellApp", tries: int = 1) -> None:
    """A shell command as an application."""
    arguments = (Argument(name="command", value=command, parameter_type="ComponentParameter"),)
    component = f"dlg.apps.bash_shell_app.{kind}"
    builder.app(name, component=component, category="BashShellApp", arguments=arguments, tries=tries)


def chain(*commands: str, data: str = FILE, tries: tuple[int, ...] = ()) -> PhysicalGraph:
    """Commands that each read the output of the one before over a streaming link, and what the last one writes."""
    builder = GraphBuilder("chain")
    for number, command in enumerate(commands):
        kind = "StreamingInputOutputBashApp" if number else "StreamingOutputBashApp"
        bash(builder, f"A{number}", command, kind=kind, tries=tries[number] if tries else 1)
        builder.data(f"d{number}", component=data)
        builder.connect(f"A{number}", f"d{number}")
        if number:
            builder.connect(f"d{number - 1}", f"A{number}", streaming=True)
    return builder.build()


def run(graph: PhysicalGraph, directory: Path, runner: str, workers: int = 3) -> SessionResult:
    """Execute it, walking its state after each step."""
    return local.run(graph, directory=local.prepare_directory(directory), runner=runner, workers=workers, check_invariants=True)


def result(directory: Path) -> str:
    """What the last drop of a chain holds."""
    found = [*directory.glob("results/*"), *sorted(directory.glob("files/*"), key=lambda path: path.stat().st_mtime)]
    return found[-1].read_text()


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("data", [FILE, MEMORY])
def test_a_consumer_reads_while_its_producer_writes(tmp_path: Path, runner: str, data: str) -> None:
    """A producer that waits for a sign of its consumer in the middle of its output gets it."""
    (tmp_path / "meet").mkdir()
    folder = tmp_path / "meet"
    graph = chain(WAITS_FOR_ITS_CONSUMER.format(folder=folder), READS.format(folder=folder), data=data)
    found = run(graph, tmp_path / "session", runner)

    assert found.status is SessionState.FINISHED, found.failures
    assert result(tmp_path / "session") == "one\ntwo\n"
    assert not list((tmp_path / "session").glob("tmp/*"))
