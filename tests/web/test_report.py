"""Reports of sessions: complete, self-contained and of bounded size."""

import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.api.drop_queries import order_of
from dropflow.api.drop_records import DropInfo, DropQuery
from dropflow.api.session_records import FailureInfo
from dropflow.formatting import format_count
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import DropState
from dropflow.times.attempts import attempts_of
from dropflow.times.moments import moments_of
from dropflow.times.octets import NodeReceipts, PeerReceipts
from dropflow.web.cause_groups import causes
from dropflow.web.report import report_page, session_report
from dropflow.web.times import drops_at
from tests.fake_manager import FakeManager
from tests.regular_graphs import fan
from tests.strategies import graphs
from tests.times.made_times import executed, sections_of

_HOSTILE = "<script>alert('x')</script>\"'&"


class _Addresses(HTMLParser):
    """Collects tags, and what they refer to."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses |= {value or "" for name, value in attrs if name in ("src", "href", "srcset", "action", "data")}


def _page(graph: PhysicalGraph, *, has_times: bool = True) -> str:
    manager = FakeManager(nodes=("n0", "n1"), role="island")
    manager.add(graph, "s")
    manager.fail("s", 1, f"no value {_HOSTILE}", also=(21,))
    manager.complete("s")
    if has_times:
        manager.set_times("s", sections_of(executed(graph, 1)))
    return report_page(session_report(manager, "s")).decode()


@pytest.mark.parametrize("has_times", [True, False])
def test_a_report_refers_to_nothing_and_has_no_script(has_times: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """It has no address of another file, no script, and text of a failure is only text."""
    page = _page(fan(40), has_times=has_times)
    found = _Addresses()
    found.feed(page)

    assert found.addresses == {"data:,"}
    assert not found.tags & {"script", "iframe", "object", "img", "form"}
    assert "url(" not in page
    assert "@import" not in page
    assert "no value &lt;script&gt;" in page


def test_a_report_has_all_its_sections() -> None:
    """Summary, failures, graph, timeline, times, critical path, parameters and versions, in this order."""
    heads = re.findall("<h2[^>]*>([^<]*)</h2>", _page(fan(40)))

    assert heads == [
        *("Summary", "Failures by root cause", "Graph", "Logical nodes", "Timeline", "Times by logical node"),
        *("Critical path", "Parameters", "Versions"),
    ]


def test_a_report_tells_how_many_rows_of_a_list_it_lacks() -> None:
    """It has the first 50 notes and causes."""
    manager = FakeManager()
    manager.add(fan(60), "s")
    for drop in range(1, 61):
        manager.fail("s", drop, f"no value {'x' * drop}")
    report = session_report(manager, "s")
    detail = msgspec.structs.replace(report.detail, notes=tuple(f"note {number}" for number in range(60)))
    page = report_page(msgspec.structs.replace(report, detail=detail)).decode()

    assert "note 49<" in page
    assert "note 50<" not in page
    assert "and 10 notes more." in page
    assert "and 10 causes more." in page


def test_moved_bytes_that_are_not_counted_are_named() -> None:
    """What a node received that does not answer is not in the sums, and the report says so."""
    manager = FakeManager(nodes=("n0", "n1"), role="island")
    manager.add(fan(4), "s")
    moved = NodeReceipts(node="n0", received=(PeerReceipts(node="n1", contents=1, size=7),))
    counted, silent = sections_of([[{"drop": 0}], []])
    replace = msgspec.structs.replace
    manager.set_times("s", [replace(counted, received=moved), replace(silent, missing="it did not answer")])

    page = report_page(session_report(manager, "s")).decode()

    assert "transfers to <bdi>n1</bdi> are not known" in page


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_size_does_not_grow_with_the_drops() -> None:
    """The report of 100,001 drops is smaller than that of 2,001, whose attempts are drawn one by one."""
    small, large = _page(fan(2000)), _page(fan(100_000))

    assert format_count(50_000) in large
    assert len(large) < len(small) < 1_000_000


# The list of drops as it was at a moment.


_SORTS = ["", *(sign + name for sign in ("", "-") for name in ("row", "id", "name", "state", "node", "attempt"))]


def _all(graph: PhysicalGraph, seed: int, share: float, **filters: Any) -> tuple[list[DropInfo], float, Any]:
    attempts = attempts_of(sections_of(executed(graph, seed)))
    moments = moments_of(graph, attempts, np.full(graph.drops, DropState.COMPLETED, np.uint8))
    time = max(moments.start + share * (moments.end - moments.start), 1.0)
    found, total = [], 1
    while len(found) < total:
        page = drops_at(graph, attempts, moments, DropQuery(time=time, offset=len(found), limit=3, **filters))
        assert page.total == len(page.drops) or len(page.drops) == 3 or len(found) + len(page.drops) == page.total
        found, total = found + list(page.drops), page.total
    return found, time, (attempts, moments)


@pytest.mark.slow
@settings(max_examples=30)
@given(graphs(), st.integers(0, 1000), st.floats(0, 1), st.sampled_from(_SORTS), st.sampled_from(list(DropState)))
def test_the_list_is_that_of_the_moment(
    graph: PhysicalGraph, seed: int, share: float, sort: str, state: DropState
) -> None:
    """Each drop has its state, its last attempt and the node of that; pages, filters, orders as of the list."""
    found, time, (attempts, moments) = _all(graph, seed, share)
    assert [DropState[one.state] for one in found] == moments.at(time).tolist()
    for one in found:
        mine = [at for at in range(len(attempts)) if attempts.drop[at] == one.drop and attempts.ready[at] <= time]
        last = max(mine, key=lambda at: attempts.attempt[at], default=None)
        assert one.attempt == (1 if last is None else attempts.attempt[last])
        if last is not None:
            assert one.node == attempts.nodes[attempts.node[last]]
            if one.is_running is not None:
                assert one.is_running == (attempts.began[last] <= time < attempts.ended[last])
    in_state, _, _ = _all(graph, seed, share, state=state.name)
    assert in_state == [one for one in found if one.state == state.name]
    if sort:
        key, is_reversed = order_of(sort)
        assert _all(graph, seed, share, sort=sort)[0] == sorted(found, key=key, reverse=is_reversed)
    some = found[len(found) // 2]
    assert _all(graph, seed, share, oid=some.oid)[0] == [some]
    assert _all(graph, seed, share, node=some.node)[0] == [
        one for one in found if one.node == some.node or not some.node
    ]


# Causes: failures with the same text.


def failure(drop: int, name: str, text: str, count: int) -> FailureInfo:
    """Return a failure of a drop."""
    return FailureInfo(drop=str(drop), name=name, node="n", code="DF105", kind="E", text=text, count=count)


@given(
    st.lists(
        st.tuples(st.integers(0, 99), st.sampled_from("ab"), st.sampled_from("xy"), st.integers(1, 9)), max_size=30
    )
)
def test_nothing_is_lost_and_the_worst_comes_first(rows: list[tuple[int, str, str, int]]) -> None:
    """Each failure is in exactly one cause, those of a cause have the same text, and the largest cause is first."""
    failures = [failure(*row) for row in rows]
    found = causes(failures)
    members = [member for cause in found for member in (cause.first, *cause.rest)]

    assert sorted(members, key=repr) == sorted(failures, key=repr)
    assert len(found) == len({(name, text) for _, name, text, _ in rows})
    assert [cause.count for cause in found] == sorted((cause.count for cause in found), reverse=True)
    assert sum(cause.count for cause in found) == sum(count for *_, count in rows)


def test_each_lost_node_is_a_cause() -> None:
    """Two lost nodes are two causes, although their texts are the same."""
    lost = failure(1, "a", "silent for 12 s", 5)
    nodes = [msgspec.structs.replace(lost, drop="", node=node) for node in ("n1", "n2")]

    assert len(causes(nodes)) == 2


def test_texts_that_differ_in_numbers_are_one_cause() -> None:
    """The cause has the text of all, with a placeholder for each number that differs, and those that are equal."""
    texts = [f"antenna {n} flagged: 18 drops of {n * 0.5e-3:g} Jy at -{n}.5" for n in (3, 4, 1_000)]
    (found,) = causes([failure(n, "a", text, 1) for n, text in enumerate(texts)])

    assert found.text == "antenna {n} flagged: 18 drops of {n} Jy at {n}"
    assert found.first.text == texts[0]
    assert [one.text for one in found.rest] == texts[1:]
    assert found.is_varied


def test_failures_of_logical_nodes_that_are_numbered_are_one_cause() -> None:
    """A program that writes a physical graph names a node per drop: the cause has the name without its number."""
    found = causes(
        [failure(n, name, f"antenna {n} flagged", 2) for n, name in enumerate(["flag 1 of x", "flag 2 of x", "fit"])]
    )

    assert [(cause.name, cause.text, cause.count) for cause in found] == [
        ("flag {n} of x", "antenna {n} flagged", 4),
        ("fit", "antenna 2 flagged", 2),
    ]


@pytest.mark.parametrize(
    ("one", "other", "are_alike"),
    [
        ("no file 7", "no file 7", True),
        ("1,024 bytes", "12 bytes", True),
        ("-3.2e-5 Jy", "1 Jy", True),
        ("<a at 0x7f3a>", "<a at 0x11>", True),
        ("shape (1, 2)", "shape (1, 2, 3)", False),
        ("file a1.ms", "file b1.ms", False),
        ("7", "seven", False),
    ],
)
def test_only_numbers_may_differ(one: str, other: str, *, are_alike: bool) -> None:
    """Texts with different words, or more numbers, are different causes, and equal texts are shown as they are."""
    found = causes([failure(1, "a", one, 1), failure(2, "a", other, 1)])

    assert (len(found) == 1) is are_alike
    assert found[0].is_varied is (are_alike and one != other)
    assert (found[0].text == one) is (one == other or not are_alike)


@pytest.mark.slow
@given(st.text(), st.text())
def test_any_text_can_be_grouped(one: str, other: str) -> None:
    """Texts may have any characters, such as digits of other scripts and the placeholder itself."""
    assert all(cause.text for cause in causes([failure(1, "a", one or "x", 1), failure(2, "a", other or "x", 1)]))
