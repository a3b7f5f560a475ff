"""The examples have the described results with every runner."""

import importlib.util
import json
import zlib
from collections.abc import Callable
from itertools import combinations, pairwise
from math import hypot
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.builder.draft import WantedPlace, circles
from dropflow.execution.decisions.events import Opened
from dropflow.execution.journal import read
from dropflow.execution.statistics import SessionResult
from dropflow.failure import Severity
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.states import SessionState
from tests.eagle_rules import far_edges, near_nodes, wrong_edges, wrong_nodes
from tests.nightly import nightly
from translator.pipeline import examine, translate

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GRAPHS = sorted(EXAMPLES.glob("*.graph"))


def run(name: str, directory: Path, *, runner: str = "inline", settings: tuple[str, ...] = ()) -> SessionResult:
    """Translate and run an example."""
    translation = translate(EXAMPLES / f"{name}.graph", settings=settings)
    return local_run.run(
        translation.graph,
        local_run.prepare_directory(directory / "run"),
        RunOptions(runner=runner, workers=2, check=runner == "inline"),
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


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["threads", *nightly("inline", "processes")])
@pytest.mark.parametrize("name", sorted(CHECKS))
def test_the_example_has_the_described_results(name: str, runner: str, tmp_path: Path) -> None:
    """Each example runs to its end with the described values, with every kind of runner."""
    result = run(name, tmp_path, runner=runner)

    assert result.status is SessionState.FINISHED, result.failures
    CHECKS[name](result, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.stem)
def test_the_example_has_no_findings(graph: Path) -> None:
    """Examples have no findings, and each has a test of its results."""
    problems = examine(graph).problems

    assert [found for found in problems if found.severity is not Severity.INFO] == []
    assert graph.stem in CHECKS


@pytest.mark.slow
def test_fewer_channels_find_the_same_sources(tmp_path: Path) -> None:
    """A parameter set from outside changes the graph, not the result."""
    result = run("imaging", tmp_path, settings=("Channels.num_of_copies=4",))

    assert result.drops == 35
    assert text(tmp_path, "catalogue.txt").endswith("all 7 sources found\n")


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_graphs_are_those_of_the_script() -> None:
    """The files are what ``python examples/draw.py`` and ``python examples/estimate_pi.py`` write."""
    drawn = _script("draw").files() | {"estimate-pi.graph": _script("estimate_pi").pi().document()}

    assert drawn == {graph.name: graph.read_bytes() for graph in GRAPHS}


# The examples and palettes keep the rules that EAGLE checks when it loads a file, and draws without overlaps.


ROOT = Path(__file__).resolve().parents[2]
EAGLE_RULES_GRAPHS = sorted((ROOT / "examples").rglob("*.graph"))
PALETTES = sorted((ROOT / "palettes").glob("*.palette"))


def document(path: Path) -> dict[str, Any]:
    """Return a file, parsed."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("path", [*EAGLE_RULES_GRAPHS, *PALETTES], ids=lambda path: path.name)
def test_nodes_have_the_fields_that_eagle_demands(path: Path) -> None:
    """Each category has its fields, each field all attributes and a known encoding, and names and ids are unique."""
    assert wrong_nodes(document(path)["nodeDataArray"]) == []


@pytest.mark.parametrize("path", [*EAGLE_RULES_GRAPHS, *PALETTES], ids=lambda path: path.name)
def test_files_and_nodes_are_described(path: Path) -> None:
    """EAGLE's checks ask for both descriptions of a file; nodes of palettes have one, too, and no place or parent."""
    content = document(path)
    about = content["modelData"]

    assert about["shortDescription"]
    assert about["detailedDescription"]
    assert about["numLGNodes"] == len(content["nodeDataArray"])
    if path in PALETTES:
        placed = [node["name"] for node in content["nodeDataArray"] if {"x", "y", "parentId"} & set(node)]
        assert placed == []
        assert [node["name"] for node in content["nodeDataArray"] if not node["description"]] == []


@pytest.mark.parametrize("path", EAGLE_RULES_GRAPHS, ids=lambda path: path.name)
def test_edges_join_an_application_and_data_at_ports(path: Path) -> None:
    """Edges start at output ports and end at input ports of the same type, once each, between unlike nodes."""
    assert wrong_edges(document(path)) == []


@pytest.mark.parametrize("path", EAGLE_RULES_GRAPHS, ids=lambda path: path.name)
def test_eagle_does_not_warn_about_edges(path: Path) -> None:
    """No edge crosses the border of a construct past its applications, but for that to a GroupBy, which has to."""
    expected = [("Sample", "By channel")] if path.name == "corner-turn.graph" else []

    assert far_edges(document(path)) == expected


@pytest.mark.parametrize("path", EAGLE_RULES_GRAPHS, ids=lambda path: path.name)
def test_nodes_do_not_overlap(path: Path) -> None:
    """No two nodes are so near each other that EAGLE's icons or names would overlap, and all places are positive."""
    nodes = document(path)["nodeDataArray"]

    assert near_nodes(nodes) == []
    assert min(node["x"] for node in nodes) > 0


_TREES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(0, 1, exclude_max=True)), min_size=1, max_size=20
)


@given(_TREES)
def test_circles_enclose_their_nodes_and_no_others(drawn: list[tuple[int, int, float]]) -> None:
    """For any tree of constructs and any wanted places: children are inside, siblings are apart."""
    names = [str(number) for number in range(len(drawn))]
    wanted = {}
    for number, (column, row, share) in enumerate(drawn):
        parents = ["", *names[:number]]
        wanted[names[number]] = WantedPlace(column, row, parents[int(share * len(parents))])
    found = circles(wanted)
    for one, other in combinations(names, 2):
        distance = hypot(found[one].x - found[other].x, found[one].y - found[other].y)
        if wanted[one].inside == wanted[other].inside:
            assert distance > found[one].radius + found[other].radius
    for name in names:
        outer = wanted[name].inside
        if outer:
            distance = hypot(found[name].x - found[outer].x, found[name].y - found[outer].y)
            assert distance + found[name].radius < found[outer].radius
