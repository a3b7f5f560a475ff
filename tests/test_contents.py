"""What becomes of contents in whole graphs, from the file to the result."""

from io import BytesIO
from pathlib import Path

import pytest

from dropflow import local
from dropflow.engine.reports import SessionResult
from dropflow.graph import codec
from dropflow.graph.interchange import write_pg
from dropflow.states import SessionState
from tests.drawn_graphs import construct, data, draw, function
from translator.pipeline import translate


def run(source: Path | bytes, directory: Path, *, runner: str = "inline") -> SessionResult:
    """Translate and run a graph."""
    graph = translate(source, name="g").graph
    return local.run(graph, directory=local.prepare_directory(directory), runner=runner, workers=2)


def written(directory: Path, name: str = "out.txt") -> str:
    """A text file that a run left."""
    return (directory / "files" / name).read_text(encoding="utf-8")


@pytest.fixture
def gathering(tmp_path: Path) -> Path:
    """375 pieces of which 69 fail, which is 18.4 %, gathered with that threshold."""
    bad = "def Check(input):\n    if input[0] < 69:\n        raise ValueError('bad')\n    return input[0]\n"
    nodes = [
        function("Make", "def Make():\n    return [[i] for i in range(375)]\n"),
        data("made"),
        construct("Split", "Scatter", size=375, dropclass="dlg.apps.simple.GenericScatterApp", element=True),
        data("piece", inside="Split"),
        function("Check", bad, inside="Split"),
        data("checked", inside="Split"),
        construct("Collect", "Gather", dropclass="dlg.apps.simple.ArrayGatherApp", input_error_threshold=18.4),
        data("all"),
        function("Count", "def Count(input):\n    return str(len(input))\n", encoding="utf-8"),
        data("count", "File", filepath="out.txt"),
    ]
    chain = "Make > made > Split > piece > Check > checked > Collect > all > Count > count"
    return draw(tmp_path / "g.graph", nodes, chain)


@pytest.mark.parametrize("form", ["logical", "physical", "container"])
def test_a_share_of_errors_that_equals_the_threshold_is_tolerated(gathering: Path, tmp_path: Path, form: str) -> None:
    """A threshold with decimals is the same number in every form of a graph, and 18.4 % is not more than 18.4."""
    source: Path | bytes = gathering
    graph = translate(gathering, name="g").graph
    if form == "physical":
        stream = BytesIO()
        write_pg(graph, stream)
        source = stream.getvalue()
    elif form == "container":
        source = b"".join(codec.dump(graph))

    assert run(source, tmp_path / "run").status is SessionState.FINISHED
    assert written(tmp_path / "run") == "306"
