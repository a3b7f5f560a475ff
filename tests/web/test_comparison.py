"""The comparison of two sessions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dropflow.api.drop_records import PageQuery
from dropflow.api.requests import ResultList
from dropflow.errors import NotFoundError
from dropflow.graph.differences import Difference
from dropflow.graph.notes import SOFTWARE as META
from dropflow.graph.notes import note_planning, note_software
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.web.comparison import Comparison, comparison_of
from dropflow.web.origin import origin_of
from dropflow.web.report import SessionReport, session_report
from dropflow.web.signature import signature
from tests.fake_manager import FakeManager
from tests.regular_graphs import chain, fan
from tests.times.made_times import records_of, sections_of


def _with_level(graph: PhysicalGraph, level: float) -> PhysicalGraph:
    app = msgspec.structs.replace(graph.templates[1], arguments=(Argument(name="level", value=level),))
    return replace(graph, templates=(graph.templates[0], app, graph.templates[2]))


def _row(one: Difference) -> tuple[object, ...]:
    return one.subject, one.what, one.left, one.right


def _rows(graph: PhysicalGraph, seconds: float) -> list[list[dict[str, float]]]:
    apps = range(1, 1 + graph.drops // 2)
    return [[{"drop": drop, "ready": 1e6, "ran": seconds, "read": 100, "written": 50} for drop in apps]]


def _compared(
    first: PhysicalGraph,
    second: PhysicalGraph,
    *,
    seconds: tuple[float, float] = (1.0, 2.0),
    prepare: Callable[[FakeManager], Any] = lambda _: None,
) -> Comparison:
    manager = FakeManager(nodes=("n0",))
    for name, graph, ran in zip("ab", (first, second), seconds, strict=True):
        manager.add(graph, name)
        manager.set_times(name, sections_of(_rows(graph, ran)))
    prepare(manager)
    for name in "ab":
        manager.complete(name)
    return comparison_of(session_report(manager, "a"), session_report(manager, "b"))


def test_the_same_session_twice_has_no_difference() -> None:
    """Nothing differs but the times, whose ratio is that of the second to the first."""
    found = _compared(fan(8), fan(8))

    assert found.is_same_graph
    assert found.verdict == "Both ran the same graph with the same parameters."
    assert (found.graph.total, found.settings.total, found.results.total, found.failures.total) == (0, 0, 0, 0)
    assert [(row.subject, row.what, row.ratio) for row in found.times.rows] == [
        ("app", "in all", 2.0),
        ("app", "median", 2.0),
        ("app", "attempts", 1.0),
    ]
    assert {row.subject: row.ratio for row in found.totals.rows}["attempts, running in all"] == 2.0


def test_what_differs_is_found() -> None:
    """Parameters, numbers of drops, plan and times of each logical node, those that took most first."""
    second = note_planning(_with_level(fan(12), 5.5), {"algorithm": "heft"})
    found = _compared(_with_level(fan(8), 3.5), second)

    assert not found.is_same_graph
    assert found.verdict == "The graphs differ: 5 differences."
    assert ("app", "level", "3.5", "5.5") in [_row(row) for row in found.graph.rows]
    assert [_row(row) for row in found.settings.rows] == [("algorithm", "plan", None, "heft")]
    assert [_row(row)[1:] for row in found.times.rows] == [
        ("in all", 4.0, 12.0),
        ("median", 1.0, 2.0),
        ("attempts", 4, 6),
    ]
    assert {row.subject: (row.left, row.right) for row in found.totals.rows}["bytes read"] == (400.0, 600.0)


def test_a_node_of_one_session_has_no_ratio() -> None:
    """It is listed with the times that it has; the sum of the other session is not taken for 0."""
    other = fan(8)
    app = msgspec.structs.replace(other.templates[1], key="z", name="better")
    found = _compared(fan(8), replace(other, templates=(other.templates[0], app, other.templates[2])))

    assert [(row.subject, row.left is None, row.right is None, row.ratio) for row in found.times.rows[::3]] == [
        ("better", True, False, None),
        ("app", False, True, None),
    ]


def test_causes_are_new_gone_or_the_same() -> None:
    """Causes that differ only in paths and numbers are the same, with both texts; new ones come first."""

    def fail(manager: FakeManager) -> None:
        manager.fail("a", 1, "no space in /tmp/a/7 for 3 bytes", also=(5,))
        manager.fail("b", 2, "no space in /data/b/9 for 4 bytes")
        manager.fail("a", 3, "the clock is wrong")
        manager.fail("b", 3, "the antenna is down")

    found = _compared(fan(8), fan(8), prepare=fail)

    texts = [(str(row.what), row.left, row.right) for row in found.failures.rows]
    assert [(text.partition(" ")[2], *counts) for text, *counts in texts] == [
        ("the antenna is down", None, 1),
        ("the clock is wrong", 1, None),
        ("no space in /data/b/9 for 4 bytes (first: no space in /tmp/a/7 for 3 bytes)", 2, 1),
    ]


def test_what_is_missing_is_said() -> None:
    """A node that does not answer, a session that is not over, and causes that are too many."""
    manager = FakeManager(nodes=("n0",))
    graph = fan(8)
    for name in "ab":
        manager.add(graph, name)
    manager.set_times(
        "a", [msgspec.structs.replace(sections_of([[]])[0], missing="it is lost", records=records_of([]))]
    )
    report = session_report(manager, "a")
    counts = msgspec.structs.replace(report.detail.counts, failed=5)
    crowded = msgspec.structs.replace(report, detail=msgspec.structs.replace(report.detail, counts=counts))
    found = comparison_of(crowded, session_report(manager, "b"))

    assert found.warnings == (
        "a is not over: its numbers are those of now.",
        "Node n0 of a did not answer: its attempts are missing.",
        "Causes of 5 drops in error of a are not compared: there are too many causes.",
        "b is not over: its numbers are those of now.",
    )


@pytest.mark.slow
def test_the_size_does_not_grow_with_the_drops() -> None:
    """The comparison of sessions of 5,001 drops is as large as that of 201, but for the digits of numbers."""
    small, large = (
        len(msgspec.json.encode(_compared(fan(drops), _with_level(fan(2 * drops), 2)))) for drops in (200, 5_000)
    )

    assert large < small + 200


def test_a_session_that_is_unknown_is_refused() -> None:
    """The error names it."""
    manager = FakeManager()
    with pytest.raises(NotFoundError, match="none"):
        session_report(manager, "none")


# Signatures of sessions, the comparison of their results, and the origin of drops.


def _report(graph: PhysicalGraph, contents: dict[int, bytes], *, nodes: tuple[str, ...] = ("n0",)) -> SessionReport:
    manager = FakeManager(nodes=nodes)
    manager.add(graph, "s")
    rows = [{"drop": 2, "attempt": -1, "ready": 1e6, "ran": 1.0}, {"drop": 2, "attempt": 2, "ready": 1e6, "ran": 3.0}]
    manager.set_times("s", [msgspec.structs.replace(sections_of([[]])[0], records=records_of(rows))])
    manager.complete("s")
    for drop, content in contents.items():
        manager.write("s", drop, content)
    return session_report(manager, "s", has_results=True)


def _signature_compared(*graphs: PhysicalGraph, contents: tuple[bytes, bytes] = (b"x", b"x")) -> Comparison:
    one, two = (_report(graph, {5: content}) for graph, content in zip(graphs, contents, strict=True))
    return comparison_of(one, two)


@pytest.mark.parametrize(
    ("graphs", "contents", "levels"),
    [
        ((fan(8), fan(8)), (b"x", b"x"), ("same", "same", "unknown", "same")),
        ((note_software(fan(8)), note_software(fan(8))), (b"x", b"y"), ("same", "same", "same", "different")),
        ((_with_level(fan(8), 1), _with_level(fan(8), 2)), (b"x", b"x"), ("same", "different", "unknown", "same")),
        (
            (note_software(fan(8)), replace(fan(8), meta={META: '{"dropflow": "0.0.1"}'})),
            (b"x", b"x"),
            ("same", "same", "different", "same"),
        ),
        ((fan(8), fan(12)), (b"x", b"x"), ("different", "different", "unknown", "different")),
    ],
)
def test_levels_at_which_two_sessions_are_the_same(
    graphs: tuple[PhysicalGraph, PhysicalGraph], contents: tuple[bytes, bytes], levels: tuple[str, ...]
) -> None:
    """Graph, parameters, software and contents, each by itself; what was not recorded is unknown."""
    assert msgspec.structs.astuple(_signature_compared(*graphs, contents=contents).levels) == levels


@pytest.mark.parametrize(
    ("graphs", "contents", "different", "unknown"),
    [
        ((note_software(fan(8)), note_software(fan(8))), (b"x", b"x"), "", ""),
        (
            (note_software(fan(8)), note_software(fan(8))),
            (b"x", b"y"),
            "REPRODUCE REPLICATE_SCI REPLICATE_COMP REPLICATE_TOTAL",
            "",
        ),
        (
            (note_software(_with_level(fan(8), 1)), note_software(_with_level(fan(8), 2))),
            (b"x", b"x"),
            "REPEAT RECOMPUTE REPLICATE_COMP REPLICATE_TOTAL",
            "",
        ),
        ((fan(8), fan(8)), (b"x", b"x"), "", "RECOMPUTE REPLICATE_COMP"),
        (
            (note_software(fan(8)), replace(fan(8), meta={META: '{"dropflow": "0.0.1"}'})),
            (b"x", b"x"),
            "RECOMPUTE REPLICATE_COMP",
            "",
        ),
    ],
)
def test_modes_of_reproducibility(
    graphs: tuple[PhysicalGraph, PhysicalGraph], contents: tuple[bytes, bytes], different: str, unknown: str
) -> None:
    """A mode of DALiuGE is the same if all that it compares is, in the comparison and in the digests of both."""
    found = _signature_compared(*graphs, contents=contents)
    one, two = found.first.signature.modes, found.second.signature.modes

    assert [mode for mode, state in found.modes.items() if state == "different"] == different.split()
    assert [mode for mode, state in found.modes.items() if state == "unknown"] == unknown.split()
    assert list(found.modes) == list(one) == list(two)
    assert [mode for mode in one if one[mode] != two[mode]] == different.split()
    assert [mode for mode, digest in one.items() if not digest] == unknown.split()


def test_results_that_differ_are_listed() -> None:
    """A result with another checksum is named with both, and one that only one session has with one."""
    found = _signature_compared(fan(8), fan(8), contents=(b"x", b"y")).results.rows

    assert [(one.subject, one.left != one.right) for one in found] == [("data 0", True)]
    one, two = _report(fan(8), {5: b"x", 6: b"z"}), _report(fan(8), {5: b"x"})
    only = comparison_of(one, two).results.rows
    assert [(row.subject, row.right) for row in only] == [("data 1", None)]


def test_contents_without_a_checksum_are_not_guessed() -> None:
    """There is no digest of the contents, and the names of those that are not known; sizes that differ still differ."""
    report = _report(fan(8), {5: b"x", 6: b"y"})
    unknown = tuple(msgspec.structs.replace(result, checksum=None) for result in report.results.results[:1])
    partly = msgspec.structs.replace(report, results=ResultList(results=(*unknown, *report.results.results[1:])))
    found = signature(partly.graph, partly.results)

    assert (found.contents, found.contents_note) == ("", "1 of 2 results have no checksum: data 0")
    assert comparison_of(partly, report).levels.contents == "unknown"
    longer = tuple(msgspec.structs.replace(one, size=99) for one in unknown)
    other = msgspec.structs.replace(report, results=ResultList(results=(*longer, *report.results.results[1:])))
    assert comparison_of(partly, other).levels.contents == "different"


def test_results_of_a_silent_node_are_not_missed() -> None:
    """What the node may have is not reported as a difference; contents are unknown, and a note names the node."""
    report = _report(fan(8), {5: b"x", 6: b"y"})
    silent = msgspec.structs.replace(report, results=ResultList(results=report.results.results[:1], missing=("n7",)))
    found = comparison_of(report, silent)

    assert (found.levels.contents, found.results.total) == ("unknown", 0)
    assert "Node n7 of s did not answer: its results are missing." in found.warnings
    assert "n7" in found.second.signature.contents_note


def test_a_signature_does_not_depend_on_nodes() -> None:
    """The same graph on other nodes, with the same contents, has the same signature."""
    one, two = (_report(fan(8), {5: b"x"}, nodes=nodes) for nodes in (("n0",), ("m1", "m2", "m3")))

    assert signature(one.graph, one.results) == signature(two.graph, two.results)


def test_the_origin_of_a_result() -> None:
    """Logical nodes with parameters and attempts, the nearest first, and the drops with their attempts and digests."""
    report = _report(note_software(_with_level(fan(8), 2.5)), {6: b"image"})
    found = origin_of(report, "data 1")

    assert (found.name, found.total, found.roots, found.size) == ("data 1", 3, 1, 5)
    assert [(row.name, row.away, row.drops, row.all_drops) for row in found.nodes.rows] == [
        ("data", 0, 1, 4),
        ("app", 1, 1, 4),
        ("root", 2, 1, 1),
    ]
    app = found.nodes.rows[1]
    assert (app.attempts, app.failed, app.seconds, app.nodes) == (2, 1, 4.0, ("n0",))
    assert app.parameters == (("level", "2.5"),)
    assert [(drop.drop, drop.away) for drop in found.drops] == [(6, 0), (2, 1), (0, 2)]
    assert [(attempt.attempt, attempt.failed, attempt.ran) for attempt in found.drops[1].attempts] == [
        (1, True, 1.0),
        (2, False, 3.0),
    ]
    assert found.parameters == found.drops[0].digest
    assert found.software["dropflow"]


def test_an_origin_is_paged() -> None:
    """Pages have all drops once, in order, and each is bounded; the logical nodes are on each page."""
    report = _report(chain(500), {})
    pages = [origin_of(report, "chain_d_0-249", PageQuery(offset=offset, limit=200)) for offset in (0, 200, 400, 600)]

    assert [len(page.drops) for page in pages] == [200, 200, 100, 0]
    assert [drop.away for page in pages for drop in page.drops] == list(range(500))
    assert {page.nodes.total for page in pages} == {2}
    with pytest.raises(NotFoundError, match="no drop 'none'"):
        origin_of(report, "none")
