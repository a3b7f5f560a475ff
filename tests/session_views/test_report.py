"""Reports of sessions: complete, self-contained and of bounded size."""

import re
from html.parser import HTMLParser

import msgspec
import pytest

from dropflow.formatting import format_count
from dropflow.graph.physical import PhysicalGraph
from dropflow.testing.drawing import fan
from dropflow.testing.fake_manager import FakeManager
from dropflow.times.octets import NodeReceipts, PeerReceipts
from dropflow.web.report import report_page, session_report
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


def test_moved_bytes_that_are_not_counted_are_named() -> None:
    """What a node received that does not answer is not in the sums, and the report says so."""
    manager = FakeManager(nodes=("n0", "n1"), role="island")
    manager.add(fan(4), "s")
    moved = NodeReceipts(node="n0", received=(PeerReceipts(node="n1", contents=1, size=7),))
    counted, silent = sections_of([[{"drop": 0}], []])
    replace = msgspec.structs.replace
    manager.set_times("s", [replace(counted, received=moved), replace(silent, missing="it did not answer")])

    page = report_page(session_report(manager, "s")).decode()

    assert "what <bdi>n1</bdi> received is not known" in page


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_size_does_not_grow_with_the_drops() -> None:
    """The report of 100,001 drops is smaller than that of 2,001, whose attempts are drawn one by one."""
    small, large = _page(fan(2000)), _page(fan(100_000))

    assert format_count(50_000) in large
    assert len(large) < len(small) < 1_000_000
