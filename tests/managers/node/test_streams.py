"""Streams across nodes: data are read on one node while they are written on another."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dropflow.graph.builder import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.rest.schema import Download
from tests.managers.node.conftest import Cluster

Make = Callable[..., Cluster]

FILE = "dlg.data.drops.file.FileDROP"
MEMORY = "dlg.data.drops.memory.InMemoryDROP"


def bash(kind: str, command: str, **fields: object) -> dict[str, object]:
    """Fields of a shell command."""
    arguments = (Argument(name="command", value=command, type="String"),)
    return {"component": f"dlg.apps.bash_shell_app.{kind}", "arguments": arguments, **fields}


def line(make: str, take: str, places: tuple[int, int, int], *, data: str = FILE, tries: int = 1) -> PhysicalGraph:
    """MAKE -> data -> TAKE -> result, over a streaming link; the first three on these nodes, the result with TAKE."""
    drawing = GraphBuilder("line")
    drawing.app("MAKE", part=places[0], **bash("StreamingOutputBashApp", make, tries=tries))  # type: ignore[arg-type]
    drawing.data("data", component=data, part=places[1])
    drawing.app("TAKE", part=places[2], **bash("StreamingInputOutputBashApp", take))  # type: ignore[arg-type]
    drawing.data("result", part=places[2])
    drawing.connect("MAKE", "data").connect("data", "TAKE", streaming=True).connect("TAKE", "result")
    return drawing.build()


def content(download: Download) -> bytes:
    """All of it."""
    return b"".join(download.chunks)


PLACES = [(0, 0, 1), (0, 1, 1), (1, 0, 1), (0, 1, 0), (0, 1, 2)]


@pytest.mark.parametrize("data", [FILE, MEMORY])
@pytest.mark.parametrize("places", PLACES)
def test_a_consumer_elsewhere_reads_while_its_producer_writes(
    places: tuple[int, int, int], data: str, make_cluster: Make, tmp_path: Path
) -> None:
    """A producer that waits for a sign of its consumer on another node gets it, wherever the data live."""
    sign = tmp_path / "sign"
    make = f"echo one; until test -e {sign}; do sleep 0.05; done; echo two"
    cluster = make_cluster(max(places) + 1)
    ended = cluster.run(line(make, f"read word; touch {sign}; echo $word; cat", places, data=data))

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert content(cluster["abc"[places[2]]].data("s", "line_result_0")) == b"one\ntwo\n"
    for name in cluster.nodes:
        assert not list((tmp_path / name).glob("sessions/s/tmp/*"))


@pytest.mark.parametrize("places", PLACES)
def test_a_consumer_starts_over_with_its_producer(
    places: tuple[int, int, int], make_cluster: Make, tmp_path: Path
) -> None:
    """What a failed attempt had written reaches no result: the consumer elsewhere begins again with the next one."""
    sign, failed = tmp_path / "sign", tmp_path / "failed"
    make = f"""
    if test -e {failed}; then echo right; exit 0; fi
    echo wrong; until test -e {sign}; do sleep 0.05; done; touch {failed}; exit 3
    """
    cluster = make_cluster(max(places) + 1)
    ended = cluster.run(line(make, f"read word; touch {sign}; echo $word; cat", places, tries=2))

    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
    assert content(cluster["abc"[places[2]]].data("s", "line_result_0")) == b"right\n"
