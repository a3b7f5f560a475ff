"""The numbers of drops are the same on pages, in the REST interface, in commands and in the metrics, and add up."""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from dropflow.api.client import Client
from dropflow.api.session_records import SessionDetail, SessionInfo
from dropflow.cli.sessions.session_replies import SessionReply
from dropflow.execution.decisions.events import CancelDrop, Lost
from dropflow.failure import Failure
from dropflow.graph.drop_counts import DropCounts
from dropflow.graph.physical import PhysicalGraph
from dropflow.web.views import GROUPS
from managers.composite.merging import Freshness, SessionPart, as_info, merge
from managers.routes.handlers import api_v1_routes
from managers.routes.metrics import metrics_routes
from managers.state_hub import StateHub
from managers.web.pages import page_routes
from tests.fake_manager import FakeManager
from tests.http_server import serve
from tests.managers.composite.core_reports import begin, report
from tests.managers.web.reading import ask
from tests.strategies import graphs

_GONE = Failure(code="DF220", kind="NodeLost", text="node n0 is lost")


class _Told(FakeManager):
    """A manager that shows one session as it was told."""

    detail: SessionDetail

    def session(self, session: str) -> SessionDetail:
        """Return the session."""
        return self.detail

    def sessions(self) -> tuple[SessionInfo, ...]:
        """Return the session as a row."""
        return (as_info(self.detail),)


@pytest.fixture(scope="module")
def told() -> Iterator[tuple[_Told, str]]:
    """A manager whose `detail` a test sets, and its address."""
    with ExitStack() as stack:
        manager = _Told()
        hub = StateHub(manager)
        routes = [*api_v1_routes(manager, None, hub=hub), *page_routes(manager, hub), *metrics_routes(manager)]
        yield manager, stack.enter_context(serve(routes)).url


def _merged(graph: PhysicalGraph, seed: int, nodes: int, steps: int, *, has_loss: bool) -> SessionDetail:
    """Return what a master shows of a session in which drops fail, one is cancelled, and a node may be lost."""
    cluster = begin(graph, seed, nodes, steps)
    first = next(iter(cluster.nodes.values()))
    own = [row for row in range(first.piece.graph.drops) if first.piece.is_own[row]]
    first.core.handle([CancelDrop(tuple(own[:1]), "", 0.0)])
    parts = []
    for name, node in cluster.nodes.items():
        lost = []
        if has_loss and name != "n0" and not node.core.status.is_terminal:
            lost.append(Lost("n0", _GONE))
            node.core.handle(lost)
        is_gone = has_loss and name == "n0"
        freshness = Freshness.LOST if is_gone else Freshness.CURRENT
        parts.append(SessionPart(name, report(name, node, lost), freshness))
    return merge(parts, version=1)


def _of_page(text: str) -> dict[str, int]:
    """Return the numbers in the legend of a page."""
    legend = text[text.index('id="legend"') :]
    return {
        style: int(number.replace(",", ""))
        for style, number in re.findall(r'class="state (\w+)"[^>]*>[^<]*<b>([\d,]+)</b>', legend)[: len(GROUPS)]
    }


@pytest.mark.slow
@given(graphs(), st.integers(0, 2**32), st.integers(2, 4), st.none() | st.integers(0, 30))
@settings(max_examples=15, deadline=None)
def test_all_show_the_same_numbers(
    told: tuple[_Told, str], graph: PhysicalGraph, seed: int, nodes: int, until_loss: int | None
) -> None:
    """Of a random session that fails, page, command, REST and metrics have equal numbers, whose parts add up."""
    manager, url = told
    manager.add(graph, "s")
    steps = 30 if until_loss is None else until_loss
    manager.detail = _merged(graph, seed, nodes, steps, has_loss=until_loss is not None)
    with Client(url) as client:
        counts = client.session("s").counts
        row = client.sessions()[0].counts
    answer: Any = msgspec.json.decode(msgspec.json.encode(SessionReply.of(manager.detail, manager=url)))
    page = ask(url, "/sessions/s").text
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(ask(url, "/metrics").text)
        for sample in family.samples
    }

    numbers: Mapping[str, int] = msgspec.structs.asdict(counts)
    assert answer["session"]["counts"] == numbers
    assert row == counts
    assert {kind: samples["dropflow_drops_counted", kind] for kind in numbers} == numbers
    assert _of_page(page) == {group.style: sum(numbers[name] for name in group.counted) for group in GROUPS}
    _adds_up(manager.detail, counts, graph.drops)


def _adds_up(detail: SessionDetail, counts: DropCounts, drops: int) -> None:
    """Check the sums: over all drops, over logical nodes, and over causes."""
    assert counts.total == drops
    assert counts.in_error == detail.states.get("ERROR", 0)
    for name, number in msgspec.structs.asdict(counts).items():
        assert sum(getattr(node.counts, name) for node in detail.logical) == number, name
    causes = [failure for failure in detail.failures if failure.drop]
    assert sum(failure.count for failure in causes) == counts.in_error
    assert sum(failure.took_along for failure in causes) == counts.took_along
    assert sum(failure.count for failure in detail.failures if not failure.drop) == counts.lost
