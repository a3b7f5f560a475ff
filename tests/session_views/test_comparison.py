"""The comparison of two sessions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dropflow.errors import NotFoundError
from dropflow.graph.differences import Difference
from dropflow.graph.notes import note_planning
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.testing.drawing import fan
from dropflow.testing.fake_manager import FakeManager
from dropflow.web.comparison import Comparison, comparison_of
from dropflow.web.report import session_report
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
    assert [(one.subject, one.what, one.ratio) for one in found.times.rows] == [
        ("app", "in all", 2.0),
        ("app", "median", 2.0),
        ("app", "attempts", 1.0),
    ]
    assert {one.subject: one.ratio for one in found.totals.rows}["attempts, running in all"] == 2.0


def test_what_differs_is_found() -> None:
    """Parameters, numbers of drops, plan and times of each logical node, those that took most first."""
    second = note_planning(_with_level(fan(12), 5.5), {"algorithm": "heft"})
    found = _compared(_with_level(fan(8), 3.5), second)

    assert not found.is_same_graph
    assert found.verdict == "The graphs differ: 5 differences."
    assert ("app", "level", "3.5", "5.5") in [_row(one) for one in found.graph.rows]
    assert [_row(one) for one in found.settings.rows] == [("algorithm", "plan", None, "heft")]
    assert [_row(one)[1:] for one in found.times.rows] == [
        ("in all", 4.0, 12.0),
        ("median", 1.0, 2.0),
        ("attempts", 4, 6),
    ]
    assert {one.subject: (one.left, one.right) for one in found.totals.rows}["bytes read"] == (400.0, 600.0)


def test_a_node_of_one_session_has_no_ratio() -> None:
    """It is listed with the times that it has; the sum of the other session is not taken for 0."""
    other = fan(8)
    app = msgspec.structs.replace(other.templates[1], key="z", name="better")
    found = _compared(fan(8), replace(other, templates=(other.templates[0], app, other.templates[2])))

    assert [(one.subject, one.left is None, one.right is None, one.ratio) for one in found.times.rows[::3]] == [
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

    texts = [(str(one.what), one.left, one.right) for one in found.failures.rows]
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
