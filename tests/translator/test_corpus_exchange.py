"""Graphs of the community are unrolled, written, read and partitioned."""

import io

import pytest

from dropflow.errors import DropflowError
from dropflow.graph.codec import digest, dump, parse
from dropflow.graph.daliuge_write import read_pg_stream, write_pg
from dropflow.graph.physical import PhysicalGraph, faults
from dropflow.graph.text_ids import oids
from tests.corpus import corpus_files, needs_corpus
from tests.graph.shapes import edges_of
from translator.options import PartitionOptions
from translator.pipeline import translate
from translator.plan.quality import quality_of
from translator.plan.registry import partition

_MOST_DROPS = 2_000


def _graphs() -> dict[str, PhysicalGraph]:
    """Every graph of the corpus that can be translated and is not large."""
    found = {}
    for path in corpus_files():
        try:
            graph = translate(path).graph
        except DropflowError:
            continue
        if 1 < graph.drops <= _MOST_DROPS:
            found[path.name] = graph
    return found


def _by_name(graph: PhysicalGraph) -> list[tuple[str, str, str, str]]:
    names = oids(graph, range(graph.drops))
    links = graph.links
    return sorted(
        (names[source], names[target], links[link].source_port, links[link].target_port)
        for source, link, target in edges_of(graph)
    )


@needs_corpus
@pytest.mark.slow
def test_graphs_of_the_community_round_trip_and_are_partitioned() -> None:
    """Each unrolled graph is valid, equal after both kinds of files, and partitioned without an empty part."""
    checked = 0
    for name, graph in _graphs().items():
        stream = io.BytesIO()
        write_pg(graph, stream)
        stream.seek(0)
        again = read_pg_stream(stream, name=name)
        assert faults(graph) == faults(again) == [], name
        assert _by_name(again) == _by_name(graph), name
        assert digest(parse(b"".join(dump(graph)))) == digest(graph), name
        for algorithm in ("blocks", "metis"):
            quality = quality_of(partition(graph, PartitionOptions(algorithm=algorithm, parts=2)))
            assert min(quality.drops) > 0, name
        checked += 1

    assert checked
