"""The plan of a graph, with which timelines compare what is executed."""

import dataclasses
from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import BadFileError
from dropflow.graph.codec import digest, dump, parse
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.times.attempts import attempts_of
from dropflow.times.executed import executed_picture, executed_trace, opentelemetry_trace
from dropflow.times.octets import RUNNING, NodeReceipts, PeerReceipts, TimesSection, pack_times, read_sections
from dropflow.times.statistics import NodeTraffic
from dropflow.times.timeline import analyse, statistics_of
from dropflow.times.timeline_files import LANE, TimelinePicture, write_svg
from dropflow.times.traffic import planned_traffic, traffic_of, uncounted_nodes
from dropflow.web.views import traffic_grid
from tests.graph.shapes import slice_by_place
from tests.regular_graphs import chains, fan
from tests.times.made_times import executed, records_of, sections_of
from translator.plan.judge import simulate, with_schedule
from translator.plan.machines import equal_machines
from translator.plan.task_graph import work_of


def _timed(drops: int = 40) -> PhysicalGraph:
    graph = fan(drops)
    part = (np.arange(graph.drops) % 2).astype(np.int32)
    templates = [
        msgspec.structs.replace(template, weight=2.5 if template.kind is Kind.APP else 1.0)
        for template in graph.templates
    ]
    return replace(graph, templates=tuple(templates), part=part, places=("a", "b"))


def test_the_plan_is_the_simulated_run() -> None:
    """Its columns have the begin and the end of each application, and pass through files; slices have none."""
    graph, machines = _timed(), equal_machines(2, cores=2)
    found = with_schedule(graph, machines)
    run = simulate(work_of(graph), machines, graph.part)
    assert found.planned is not None
    is_app = graph.template == 1
    for column, times in zip(found.planned, (run.start, run.end), strict=True):
        assert column[is_app] == pytest.approx(times[: graph.drops][is_app])
        assert np.isnan(column[~is_app]).all()

    again = parse(b"".join(dump(found)))
    assert again.planned is not None
    assert all(np.array_equal(one, two, equal_nan=True) for one, two in zip(again.planned, found.planned, strict=True))
    assert parse(b"".join(dump(graph))).planned is None
    assert digest(found) == digest(graph)
    assert all(piece.graph.planned is None for piece in slice_by_place(found).values())
    short = replace(found, planned=(found.planned[0][1:], found.planned[1]))
    with pytest.raises(BadFileError, match="column planned_begin has 40 rows, not 41"):
        parse(b"".join(dump(short)))


def test_there_is_no_plan_without_times_and_machines() -> None:
    """If no application has a declared or measured time, or parts have no machine."""
    graph = _timed()
    untimed = replace(graph, templates=fan(40).templates)
    assert with_schedule(untimed, equal_machines(2)).planned is None
    assert with_schedule(replace(untimed, weight=np.ones(graph.drops)), equal_machines(2)).planned is not None
    assert with_schedule(graph, equal_machines(1)).planned is None


@pytest.mark.parametrize("seed", range(5))
def test_lanes_are_compared_with_the_plan(seed: int) -> None:
    """Each lane has the time between its last end and the last planned end of its attempts; None without a plan."""
    graph = with_schedule(_timed(), equal_machines(2))
    assert graph.planned is not None
    attempts = attempts_of(sections_of(executed(graph, seed)))
    found = analyse(graph, attempts)
    for lane, use in enumerate(statistics_of(found).lanes):
        mine = np.flatnonzero(found.lanes.lane == lane)
        planned = max(float(graph.planned[1][attempts.drop[one]]) for one in mine)
        ended = max(float(attempts.ended[one]) for one in mine) - attempts.start
        assert use.late == pytest.approx(ended - planned, abs=1e-5)
    without = statistics_of(analyse(replace(graph, planned=None), attempts))
    assert {use.late for use in without.lanes} == {None}


def test_attempts_that_run_are_sent_beside_those_that_have_ended() -> None:
    """They are read as they were, and sections without them have no such columns."""
    running = np.array([(3, 1, 2, 1e9), (4, 1, 0, 0.0)], RUNNING)
    section = TimesSection(node="a", total=1, records=records_of([{"drop": 1}]), running=running, now=1e9 + 5)
    (found,) = read_sections([pack_times(section)])
    assert found.running.tolist() == running.tolist()
    assert found.now == 1e9 + 5
    assert b"running" not in pack_times(msgspec.structs.replace(section, running=running[:0]))


# The timeline of a session as it was executed, as traces and as a picture.


def test_nodes_without_attempts_are_shown_with_the_reason() -> None:
    """Each node has a place of its own, in the picture and in the trace; none with attempts has a reason."""
    first, *others = sections_of([[{"drop": 1, "ready": 1e6, "ran": 1.0}], [], [], []])
    fields: tuple[dict[str, Any], ...] = ({"missing": "no answer"}, {"busy_with": ("one", "two")}, {})
    silent = [msgspec.structs.replace(one, **field) for one, field in zip(others, fields, strict=True)]
    found = analyse(fan(4), attempts_of([first, *silent]))
    reasons = {
        "n1": "it does not answer",
        "n2": "its workers are busy with sessions one, two",
        "n3": "no attempt of this session has run there",
    }

    picture, stream = executed_picture(found), BytesIO()
    write_svg(picture, stream)
    rows = sorted(picture.rows, key=lambda row: row.top)
    assert {row.name: row.note for row in rows} == {"n0": "", **reasons}
    assert all(after.top - before.top > LANE for before, after in pairwise(rows))
    assert all(text in stream.getvalue().decode() for text in reasons.values())

    events = msgspec.json.decode(b"".join(executed_trace(found)))["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {names[event["pid"]]: event["name"] for event in events if event["ph"] == "i"} == reasons
    assert {names[event["pid"]] for event in events if event["ph"] == "X"} == {"n0"}


def test_a_picture_of_names_with_control_characters_is_xml() -> None:
    """What XML cannot have is shown as U+FFFD."""
    stream = BytesIO()
    write_svg(TimelinePicture("a\0\x1b<\ud800\uffff", 1, 1, ()), stream)

    assert "a\ufffd\ufffd&lt;\ufffd\ufffd<" in stream.getvalue().decode()


def test_a_trace_is_one_that_opentelemetry_reads() -> None:
    """It has its own protocol buffers' fields: each attempt is a span of its node below the session's."""
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    json_format = pytest.importorskip("google.protobuf.json_format")
    rows = [
        [{"drop": 1, "ready": 1e6, "ran": 1.0, "attempt": -1}, {"drop": 1, "ready": 1e6 + 1, "ran": 2.0, "attempt": 2}],
        [{"drop": 3, "ready": 1e6, "ran": 1.5}],
    ]
    found = analyse(fan(4), attempts_of(sections_of(rows)))

    text = b"".join(opentelemetry_trace(found)).decode()
    read = json_format.Parse(text, service.ExportTraceServiceRequest())  # fails for a field that is not there
    nodes = {span.resource.attributes[1].value.string_value: span.scope_spans[0].spans for span in read.resource_spans}
    (session, failed, repeated), (other,) = nodes["n0"], nodes["n1"]
    seconds = [(one.end_time_unix_nano - one.start_time_unix_nano) / 1e9 for one in (session, failed, repeated, other)]
    assert seconds == pytest.approx([3.0, 1.0, 2.0, 1.5])
    assert [one.status.code for one in (session, failed, repeated, other)] == [1, 2, 1, 1]
    assert {one.parent_span_id for one in (failed, repeated, other)} == {session.span_id}
    assert [link.span_id for link in repeated.links] == [failed.span_id]
    raw = msgspec.json.decode(text)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert [(len(one["traceId"]), len(one["spanId"])) for one in raw] == [(32, 16)] * 3  # hexadecimal, 16 and 8 bytes


# Bytes moved between nodes, as nodes counted them and as planned, against one content at a time.


_VOLUME = 1000.0


def _placed(graph: PhysicalGraph, nodes: int, seed: int) -> PhysicalGraph:
    """Return the graph with volumes, and with each drop in one of more parts than there are nodes."""
    part = np.random.default_rng(seed).integers(0, nodes + 2, graph.drops).astype(np.int32)
    templates = tuple(
        msgspec.structs.replace(one, weight=_VOLUME + row) if one.kind is Kind.DATA else one
        for row, one in enumerate(graph.templates)
    )
    places = tuple(f"n{row % nodes}" for row in range(nodes + 2))
    return dataclasses.replace(graph, templates=templates, part=part, places=places)


def _slow(graph: PhysicalGraph) -> dict[tuple[str, str], int]:
    out, into = graph.successors, graph.predecessors
    found: dict[tuple[str, str], int] = {}
    for drop in np.flatnonzero(graph.kinds[graph.template] == Kind.DATA).tolist():
        home = int(graph.part[drop])
        makers = {int(graph.part[one]) for one in into.neighbour[into.ptr[drop] : into.ptr[drop + 1]]}
        users = {int(graph.part[one]) for one in out.neighbour[out.ptr[drop] : out.ptr[drop + 1]]}
        for source, target in {(maker, home) for maker in makers} | {(home, user) for user in users}:
            pair = graph.places[source], graph.places[target]
            if pair[0] != pair[1]:
                found[pair] = found.get(pair, 0) + int(graph.templates[graph.template[drop]].weight)
    return found


@given(st.integers(0, 1), st.integers(1, 4), st.integers(0, 99))
def test_the_plan_is_the_sum_over_single_contents(which: int, nodes: int, seed: int) -> None:
    """Each content counts once for each part that has a producer or a consumer of it, on another node."""
    graph = _placed((fan(30), chains(36, 6))[which], nodes, seed)

    assert planned_traffic(graph) == _slow(graph)


def test_without_declared_volumes_nothing_is_planned() -> None:
    """The weight of new nodes is no estimate."""
    graph = dataclasses.replace(_placed(fan(30), 2, 1), templates=fan(30).templates)

    assert planned_traffic(graph) == {}


def _section(node: str, *received: PeerReceipts) -> TimesSection:
    receipts = NodeReceipts(node=node, received=received)
    return TimesSection(node=node, records=records_of([{"drop": 0}]), received=receipts)


def test_counts_of_nodes_are_put_together_with_the_plan() -> None:
    """They are part of the times that managers send; a node that did not answer has neither counts nor a plan."""
    graph = _placed(fan(30), 3, 5)
    sections = [
        _section("n0", PeerReceipts(node="n1", contents=2, size=70, shared_contents=1, shared_size=5)),
        _section("n1", PeerReceipts(node="n0", contents=1, size=80)),
        TimesSection(node="n2", records=records_of([]), missing="it did not answer", busy_with=("other",)),
    ]
    sent = list(read_sections([pack_times(section) for section in sections]))
    assert [section.busy_with for section in sent] == [(), (), ("other",)]
    assert uncounted_nodes(sent) == ("n2",)
    assert uncounted_nodes([*sent[:2], _section("n3", PeerReceipts(node="killed", contents=1, size=1))]) == ("killed",)
    found = {(one.source, one.target): one for one in traffic_of(graph, sent)}
    planned = planned_traffic(graph)

    one, other = found["n1", "n0"], found["n0", "n1"]
    assert (one.size, one.contents, one.shared_size, one.shared_contents) == (70, 2, 5, 1)
    assert (other.size, other.total) == (80, 80)
    assert {pair: each.planned for pair, each in found.items()} == {
        pair: planned[pair] for pair in planned if pair[1] != "n2"
    }
    assert [each.total for each in traffic_of(graph, sent)] == sorted(each.total for each in found.values())[::-1]


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 20), st.integers(0, 20)), st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1
    ),
    st.integers(2, 30),
)
def test_the_table_adds_up(pairs: dict[tuple[int, int], tuple[int, int]], most: int) -> None:
    """Also if nodes have one row together, because there are too many."""
    traffic = [
        NodeTraffic(source=f"n{one}", target=f"n{other}", size=size, shared_size=shared, contents=1)
        for (one, other), (size, shared) in pairs.items()
    ]
    grid = traffic_grid(traffic, most)
    cells = [cell for _, row, _ in grid.rows for cell in row if cell is not None]

    assert len(grid.nodes) <= most
    total = sum(size + shared for size, shared in pairs.values())
    assert grid.whole.total == total == sum(sent for _, _, sent in grid.rows) == sum(grid.received)
    assert sum(cell.contents for cell in cells) == len(pairs)
    assert all(1 <= grid.shade(cell.total, grid.most) <= 8 for cell in cells)
