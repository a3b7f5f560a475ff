"""Graphs as tables of comma-separated values, read again by the parser of the standard library."""

import csv
from io import BytesIO, StringIO

from hypothesis import given

from dropflow.graph.exports import DROP_COLUMNS, EDGE_COLUMNS, Writer, write_csv_drops, write_csv_edges
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oids
from dropflow.testing.drawing import draw, fan
from tests.graph.exports.export_graphs import graphs


def _read(write: Writer, graph: PhysicalGraph) -> list[list[str]]:
    stream = BytesIO()
    write(graph, stream)
    return list(csv.reader(StringIO(stream.getvalue().decode(), newline=""), strict=True))


@given(graphs())
def test_every_value_is_read_again(graph: PhysicalGraph) -> None:
    """The table of drops has one line for each, with what exists, and that of edges the text ids of their ends."""
    names, is_planned = oids(graph, range(graph.drops)), graph.priority is not None
    is_parted = graph.parts > 1 or bool(graph.places) or is_planned
    drops = []
    for row, name in enumerate(names):
        template, part = graph.templates[graph.template[row]], int(graph.part[row])
        is_app = template.kind is Kind.APP
        priority = str(graph.priority[row]) if is_app and graph.priority is not None else ""
        kind, node = "application" if is_app else "data", graph.places[part] if graph.places else ""
        first = [name, kind, template.name, template.component, repr(template.weight)]
        drops.append([*first, str(part) if is_parted else "", node, priority])
    links = [graph.links[link] for link in graph.successors.link]
    edges = [
        [names[one.source], names[one.target], one.source_port, one.target_port, str(one.streaming).lower()]
        for one in links
    ]

    assert _read(write_csv_drops, graph) == [list(DROP_COLUMNS), *drops]
    assert _read(write_csv_edges, graph) == [list(EDGE_COLUMNS), *edges]


def test_lines_end_as_the_standard_says() -> None:
    """RFC 4180: lines end in carriage return and line feed."""
    stream = BytesIO()
    write_csv_drops(draw("A"), stream)

    assert (
        stream.getvalue().splitlines(keepends=True)[1]
        == b"drawing_A_0,application,A,dlg.apps.simple.NullBarrierApp,1.0,,,\r\n"
    )


def test_graphs_of_several_blocks_are_whole() -> None:
    """Drops and edges are written in blocks; none is lost or repeated between them."""
    graph = fan(40_000)
    drops, edges = _read(write_csv_drops, graph)[1:], _read(write_csv_edges, graph)[1:]

    assert [line[0] for line in drops] == oids(graph, range(graph.drops))
    assert len({(line[0], line[1]) for line in edges}) == len(edges) == graph.edges
