"""The examples have the described results with every runner."""

import importlib.util
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from dropflow.engine.events import Opened
from dropflow.engine.journal import read
from dropflow.engine.statistics import SessionResult
from dropflow.failure import Severity
from dropflow.sessions import local_run
from dropflow.states import SessionState
from translator.pipeline import examine, translate

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GRAPHS = sorted(EXAMPLES.glob("*.graph"))


def run(name: str, directory: Path, *, runner: str = "inline", settings: tuple[str, ...] = ()) -> SessionResult:
    """Translate and run an example."""
    translation = translate(EXAMPLES / f"{name}.graph", settings=settings)
    return local_run.run(
        translation.graph,
        directory=local_run.prepare_directory(directory / "run"),
        runner=runner,
        workers=2,
        check=runner == "inline",
    )


def text(directory: Path, name: str) -> str:
    """Return a text file of a run."""
    return (directory / "run" / "files" / name).read_text(encoding="utf-8")


def _hello(result: SessionResult, directory: Path) -> None:
    assert result.states["COMPLETED"] == 2
    assert text(directory, "hello.txt") == "Hello World"


def _nested(result: SessionResult, directory: Path) -> None:
    assert result.drops == 67
    rows = (np.arange(12).reshape(3, 4) ** 2).sum(axis=1)
    expected = [f"row {number}: {value}" for number, value in enumerate(rows)]
    assert text(directory, "sums.txt").splitlines() == [*expected, f"total: {rows.sum()}"]


def _corner_turn(result: SessionResult, directory: Path) -> None:
    assert result.status is SessionState.FINISHED
    turned = np.load(directory / "run" / "files" / "by-channel.npy")
    assert (turned == (10 * np.arange(3)[:, None] + np.arange(4)).T).all()


def _array_loop(result: SessionResult, directory: Path) -> None:
    assert result.states["SKIPPED"] > 0
    lines = text(directory, "roots.txt").splitlines()
    assert lines[0] == "after 7 steps"
    for line in lines[1:]:
        number, root = map(float, line.split())
        assert root == pytest.approx(number**0.5)


def _error_threshold(result: SessionResult, directory: Path) -> None:
    assert result.states["ERROR"] == 4
    assert [failure.text for failure in result.failures] == [
        "ValueError: target 3 is below the horizon",
        "ValueError: target 7 is below the horizon",
    ]
    assert text(directory, "report.txt") == "8 of 10 measurements, 20 % lost\nmean 104.375\n"


def _imaging(result: SessionResult, directory: Path) -> None:
    assert result.states == {"COMPLETED": 55, "ERROR": 0, "SKIPPED": 0}
    assert text(directory, "catalogue.txt").endswith("all 7 sources found\n")
    assert np.load(directory / "run" / "files" / "cube.npy").shape == (8, 2, 256, 256)
    assert _picture_shape(directory / "run" / "files" / "sky.png") == (898, 1880, 3)


def _live_receiver(result: SessionResult, directory: Path) -> None:
    assert result.states == {"COMPLETED": 8, "ERROR": 0, "SKIPPED": 0}
    assert text(directory, "tone.txt").startswith("2048 samples\ntone at 0.0400 cycles a sample")
    values = [0.0, *(float(line.split()[1]) for line in text(directory, "samples.txt").splitlines())]
    filtered = "".join(f"{at} {(now + last) / 2:.6f}\n" for at, (last, now) in enumerate(pairwise(values)))
    assert text(directory, "crc.txt") == str(zlib.crc32(filtered.encode()))


def _picture_shape(path: Path) -> tuple[int, ...]:
    image = pytest.importorskip("PIL.Image")
    with image.open(path) as picture:
        picture.load()
        pixels = np.asarray(picture)
    assert pixels.max() > 200, "the sources shine"
    return tuple(pixels.shape)


def _estimate_pi(result: SessionResult, directory: Path) -> None:
    assert result.states["COMPLETED"] == 31
    assert text(directory, "pi.txt") == "pi is about 3.139\n"


CHECKS: dict[str, Callable[[SessionResult, Path], None]] = {
    "hello": _hello,
    "nested-scatter-gather": _nested,
    "corner-turn": _corner_turn,
    "array-loop": _array_loop,
    "error-threshold": _error_threshold,
    "estimate-pi": _estimate_pi,
    "imaging": _imaging,
    "live-receiver": _live_receiver,
}


@pytest.mark.parametrize("runner", ["inline", "threads", "processes"])
@pytest.mark.parametrize("name", sorted(CHECKS))
def test_the_example_has_the_described_results(name: str, runner: str, tmp_path: Path) -> None:
    """Each example runs to its end with the described values, with every kind of runner."""
    result = run(name, tmp_path, runner=runner)

    assert result.status is SessionState.FINISHED, result.failures
    CHECKS[name](result, tmp_path)


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.stem)
def test_the_example_has_no_findings(graph: Path) -> None:
    """Examples have no findings, and each has a test of its results."""
    problems = examine(graph).problems

    assert [found for found in problems if found.severity is not Severity.INFO] == []
    assert graph.stem in CHECKS


def test_fewer_channels_find_the_same_sources(tmp_path: Path) -> None:
    """A parameter set from outside changes the graph, not the result."""
    result = run("imaging", tmp_path, settings=("Channels.num_of_copies=4",))

    assert result.drops == 35
    assert text(tmp_path, "catalogue.txt").endswith("all 7 sources found\n")


def test_the_filter_reads_while_the_receiver_writes(tmp_path: Path) -> None:
    """The output of the receiver is open for its reader before it is complete."""
    result = run("live-receiver", tmp_path, runner="processes")
    events = [event for entry in read(tmp_path / "run" / "journal.dfj")[1] for event in entry.events]
    graph = translate(EXAMPLES / "live-receiver.graph").graph
    opened = {graph.templates[graph.template[event.drop]].name for event in events if isinstance(event, Opened)}

    assert result.status is SessionState.FINISHED
    assert "Samples" in opened


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_graphs_are_those_of_the_script() -> None:
    """The files are what ``python examples/draw.py`` and ``python examples/estimate_pi.py`` write."""
    drawn = _script("draw").files() | {"estimate-pi.graph": _script("estimate_pi").pi().document()}

    assert drawn == {graph.name: graph.read_bytes() for graph in GRAPHS}
