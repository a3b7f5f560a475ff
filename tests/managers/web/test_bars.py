"""Parts of pages: bars of states, plots, previews, and the comparison of sessions."""

import random
import re
from collections.abc import Iterator
from importlib import resources
from itertools import pairwise, product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.contents_answer import Download
from dropflow.api.node_records import Load, LoadSample, NodeHistory
from dropflow.api.requests import QUEUED, RUNNING
from dropflow.api.session_records import FailureInfo
from dropflow.errors import LinkError
from dropflow.formatting import format_brief, format_count, format_duration, format_rate
from dropflow.graph.drop_counts import DropCounts, failed_words
from dropflow.states import DropState, SessionState
from dropflow.web.cause_groups import causes
from dropflow.web.views import GROUPS, grouped, segments, session_style, state_style, state_word
from managers.web.logs import read_start, tail_of
from managers.web.session_pages import CompareView, OriginView
from managers.web.views import plots_of
from tests.browser import needs_chromium
from tests.fake_manager import FakeManager, manager_with_sessions
from tests.managers.web.hostile_graph import HOSTILE, hostile_graph
from tests.managers.web.reading import Page, ask, read
from tests.regular_graphs import fan
from tests.times.made_times import executed, sections_of

STATES = [state.name for state in DropState]


def test_every_state_is_in_one_group() -> None:
    """Each state of a drop is in exactly one group of the bar; drops and sessions have the styles of groups."""
    assert sorted(state for group in GROUPS for state in group.states) == sorted(STATES)
    assert {state_style(state) for state in STATES} == {group.style for group in GROUPS} - {"queued", "lost"}
    assert sorted(name for group in GROUPS for name in group.counted) == sorted(DropCounts.__struct_fields__)
    assert {session_style(status.name) for status in SessionState} <= {group.style for group in GROUPS}


def test_the_script_of_the_graph_has_the_groups_of_bars() -> None:
    """Its groups are those of bars in order, but for lost and unknown drops, and it sorts each state as bars do."""
    source = resources.files("dropflow.web").joinpath("static/graph_model.js").read_text(encoding="utf-8")
    groups = re.findall(r'\{ style: "(\w+)", word: "([\w ]+)" \}', source)
    [names] = re.findall(r"export const \[([\w, ]+)\] = GROUPS\.keys\(\)", source)
    [of_states] = re.findall(r"GROUP_OF\.set\(\[([\w, ]+)\]\)", source)

    assert groups == [(each.style, each.word) for each in GROUPS if each.style != "lost"] + [("unknown", "unknown")]
    assert names.lower().split(", ") == [style for style, _ in groups]
    found = dict(zip(STATES, of_states.lower().split(", "), strict=True))
    # Applications in WRITING come as running or queued; data in WRITING wait for the rest of their contents.
    assert found == {state: state_style(state) for state in STATES} | {"WRITING": "waiting"}
    assert {name: int(sign) for name, sign in re.findall(r"const SIGN_(\w+) = (\d+);", source)} == {
        "RUNNING": RUNNING,
        "QUEUED": QUEUED,
    }


COUNTS = st.builds(DropCounts, **dict.fromkeys(DropCounts.__struct_fields__, st.integers(0, 10**9)))


@given(COUNTS)
def test_a_bar_is_full_and_shows_every_group_that_occurs(counts: DropCounts) -> None:
    """Segments fill the bar without gaps, one drop among a billion is visible, and groups add up to all drops."""
    numbers = grouped(counts)
    bars = segments(numbers)

    assert sum(numbers.values()) == counts.total
    for left, right in pairwise(bars):
        assert left.start + left.width == pytest.approx(right.start, abs=0.03)
    for part in bars:
        assert (part.width >= 0.5) == (numbers[part.style] > 0)
    if sum(numbers.values()):
        assert bars[-1].start + bars[-1].width == pytest.approx(100, abs=0.05)


@given(st.builds(DropCounts, **dict.fromkeys(DropCounts.__struct_fields__, st.just(0) | st.integers(1, 50))))
def test_a_bar_is_in_proportion(counts: DropCounts) -> None:
    """Widths are shares of the total, if every group is large enough to be visible."""
    numbers = grouped(counts)
    total = sum(numbers.values())
    if not total or min(number for number in numbers.values() if number) / total < 0.008:
        return

    assert [part.width for part in segments(numbers)] == [
        pytest.approx(100 * number / total, abs=0.01) for number in numbers.values()
    ]


@needs_chromium
@pytest.mark.slow
def test_the_browser_formats_as_the_server_does(serve: Any, look: Any) -> None:
    """Bars, counts, durations, rates and numbers of failures made by the scripts are those of the server."""
    from tests.fake_manager import FakeManager  # noqa: PLC0415 - beside its only use

    chance = random.Random(20261121)
    cases = [[chance.choice((0, 1, chance.randrange(10**6))) for _ in GROUPS] for _ in range(200)]
    times = [0.0, 0.04, 9.94, 9.996, 10.2, 59.4, 59.97, 61.0, 3599.2, 3601.0, 86399.4, 86401.0, 1e6]
    brief = [0.0, 4.2e-7, 1.25e-5, 0.0009994, 0.0009999, 0.0123, 0.5, 0.9994, 0.9999, 61.0]
    rates = [0.123, 0.987, 1.26, 9.94, 10.4, 999.7, 48_123.4]
    counts = [
        DropCounts(failed=own, took_along=along, lost=lost) for own, along, lost in product((0, 1, 2_000), repeat=3)
    ]
    failures = [
        FailureInfo(drop="a", name="a", node="", code="", kind="", text="", count=n, took_along=n // 2) for n in (1, 5)
    ]
    failures.append(msgspec.structs.replace(failures[1], drop=""))
    page = look(serve(FakeManager())).page
    page.goto("/")
    bars, words = page.evaluate(
        """async ([cases, times, brief, rates, counts, failures]) => {
          const bars = await import("/static/bars.js");
          const text = await import("/static/formatting.js");
          return [
            cases.map((numbers) => bars.segments(numbers)),
            [...times.map(text.formatDuration), ...brief.map(text.formatBrief), ...rates.map(text.formatRate),
              ...cases[0].map(text.formatCount), ...counts.map(text.failedWords),
              ...failures.map((failure) => text.harmWords([failure]))],
          ];
        }""",
        [cases, times, brief, rates, *map(msgspec.to_builtins, (counts, failures))],
    )

    for numbers, drawn in zip(cases, bars, strict=True):
        named = {group.style: number for group, number in zip(GROUPS, numbers, strict=True)}
        for ours, theirs in zip(segments(named), drawn, strict=True):
            assert (ours.start, ours.width) == pytest.approx((theirs["start"], theirs["width"]), abs=0.011)
    assert words == [
        *map(format_duration, times),
        *map(format_brief, brief),
        *map(format_rate, rates),
        *map(format_count, cases[0]),
        *map(failed_words, counts),
        *(causes([failure])[0].harm for failure in failures),
    ]


def test_a_drop_is_active_unless_it_is_known_to_run_or_to_be_queued() -> None:
    """The rows of drops have the words and styles of bars, if the node knows where an attempt is."""
    assert [state_word("WRITING", is_running=known) for known in (None, True, False)] == ["active", "running", "queued"]
    assert [state_style("WRITING", is_running=known) for known in (None, True, False)] == [
        "running",
        "running",
        "queued",
    ]


# The page of a node, with plots of its load.


def test_a_plot_goes_from_zero_to_what_the_host_has() -> None:
    """The upper edge is all memory or all workers, or the greatest value; network is a rate."""
    samples = tuple(
        LoadSample(time, processor, 1 << 30, 0, received, 0, 1, 2)
        for time, processor, received in ((0.0, 0.0, 0), (5.0, 100.0, 5_000))
    )
    plots = {plot.title: plot for plot in plots_of(NodeHistory(node="n", every=5.0, samples=samples), _LOAD)}

    assert plots["Processor"].line == "0.0,48.0 300.0,1.0"
    assert plots["Network"].now == "1.0 kB/s"
    assert (plots["Attempts that run"].now, plots["Attempts that run"].most) == ("2", "4")
    assert plots_of(NodeHistory(node="n", every=5.0, samples=samples[:1]), _LOAD) == ()


_LOAD = Load(workers=4, memory=4 << 30, disk=1 << 40)


@pytest.mark.slow
def test_a_node_has_a_page(serve: Any) -> None:
    """It has all plots; one that does not exist is not found."""
    url = serve(FakeManager(role="island", nodes=("n0",)))
    text = ask(url, "/nodes/n0").text

    for title in ("Processor", "Memory", "Disk", "Network", "Sessions", "Attempts that run"):
        assert f"<span>{title}</span>" in text
    assert ask(url, "/nodes/none").status == 404


# The end of a log and the beginning of a download.


class Source:
    """Content in chunks that records how much of it was read and whether it was closed."""

    def __init__(self, content: bytes, chunk: int = 1000) -> None:
        self.taken = 0
        self.closed = False
        self.download = Download(name="x", content_type="x", size=len(content), chunks=self._chunks(content, chunk))

    def _chunks(self, content: bytes, chunk: int) -> Iterator[bytes]:
        try:
            for start in range(0, len(content), chunk):
                self.taken += len(content[start : start + chunk])
                yield content[start : start + chunk]
        finally:
            self.closed = True


@given(st.lists(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=40), max_size=20), st.integers(1, 99))
def test_a_short_log_is_shown_whole(lines: list[str], chunk: int) -> None:
    """A log within the limit is shown unchanged."""
    text = "\n".join(lines)
    tail = tail_of(Source(text.encode(), chunk).download)

    assert (tail.text, tail.is_cut, tail.is_open) == (text, False, False)


def test_of_a_long_log_the_last_lines_are_shown() -> None:
    """The shown part begins with a line."""
    lines = [f"line {number}" for number in range(50_000)]
    tail = tail_of(Source("\n".join(lines).encode()).download)
    shown = tail.text.split("\n")

    assert tail.is_cut
    assert shown == lines[-len(shown) :]
    assert 60_000 < len(tail.text) <= 65_536


def test_of_a_long_last_line_the_end_is_shown() -> None:
    """No line begins in the shown part, and yet it is not empty."""
    tail = tail_of(Source(b"first\n" + b"x" * 70_000 + b"\n").download)

    assert tail.is_cut
    assert tail.text == "x" * 65_535 + "\n"


def test_only_a_part_of_a_huge_log_is_read() -> None:
    """Reading stops after 16 MiB, and the preview records that."""
    source = Source(b"x" * (20 * 1024 * 1024), 1024 * 1024)

    assert tail_of(source.download).is_open
    assert source.taken <= 17 * 1024 * 1024
    assert source.closed


@given(st.binary(max_size=500), st.integers(0, 600), st.integers(1, 100))
def test_the_start_is_exact(content: bytes, limit: int, chunk: int) -> None:
    """The start has as many bytes as the limit or the content, whichever is smaller."""
    assert read_start(Source(content, chunk).download, limit) == content[:limit]


# The page that compares two sessions.


def _links(page: Page) -> set[str]:
    return {attributes.get("href", "") for tag, attributes in read(page)[0] if tag == "a"}


@pytest.mark.slow
def test_two_sessions_are_compared(serve: Any) -> None:
    """The page has drops, totals, times and causes of both, and its record as JSON is the same; no states are read."""
    manager = manager_with_sessions()
    manager.refuse("states", LinkError("not asked for"))
    for name in ("failed", "finished"):
        manager.set_times(name, sections_of(executed(fan(40), 3)))
    url = serve(manager)
    page = ask(url, "/sessions/failed/compare?other=finished")
    tags, text = read(page)
    twin = next(
        attributes["href"] for tag, attributes in tags if tag == "link" and attributes.get("rel") == "alternate"
    )
    view = msgspec.json.decode(ask(url, twin).body, type=CompareView)

    assert page.status == 200
    assert "Both ran the same graph with the same parameters." in text
    for title in ("Totals", "Times by logical node", "Failures by root cause", "no value 1"):
        assert title in text
    assert view.comparison is not None
    assert [report.session for report in (view.comparison.first, view.comparison.second)] == ["failed", "finished"]


@pytest.mark.slow
def test_a_session_to_compare_with_is_chosen(serve: Any) -> None:
    """Sessions of graphs of the same name come first, a text finds others, and the pages of sessions lead there."""
    manager = manager_with_sessions()
    manager.add(hostile_graph(), "apart")
    url = serve(manager)
    tags, _ = read(ask(url, "/sessions/failed/compare"))
    wanted = [attributes["href"] for tag, attributes in tags if tag == "a" and "?other=" in attributes.get("href", "")]

    assert [link.partition("other=")[2] for link in wanted] == ["running", "finished", "cancelled", "apart"]
    assert "?other=finished" not in ask(url, "/sessions/failed/compare?text=canc").text
    for path in ("/sessions/failed", "/sessions"):
        assert "/sessions/failed/compare" in _links(ask(url, path))
    assert ask(url, "/sessions/failed/compare?other=none").status == 404
    assert ask(url, "/sessions/none/compare").status == 404


def test_a_session_alone_has_nothing_to_compare_with(serve: Any) -> None:
    """The page says so, and how to get another session."""
    manager = FakeManager()
    manager.add(fan(4), "s")

    assert "There is no other session yet." in ask(serve(manager), "/sessions/s/compare").text


@pytest.mark.slow
def test_names_and_values_are_text(serve: Any) -> None:
    """Markup in names, values and causes is escaped."""
    manager = manager_with_sessions()
    manager.add(hostile_graph(), "apart")
    manager.fail("apart", 0, HOSTILE)
    page = ask(serve(manager), "/sessions/failed/compare?other=apart")

    assert page.status == 200
    assert "<script>alert" not in page.text


@pytest.mark.slow
def test_a_drop_has_an_origin(serve: Any) -> None:
    """Its page, with a twin in JSON, has the logical nodes and drops that it was made from, by pages, with states."""
    manager = manager_with_sessions()
    manager.set_times("finished", sections_of(executed(fan(40), 3)))
    url = serve(manager)
    path = "/sessions/finished/drops/fan_d_0-0/origin"
    page = ask(url, path)
    tags, text = read(page)
    twin = next(
        attributes["href"] for tag, attributes in tags if tag == "link" and attributes.get("rel") == "alternate"
    )
    view = msgspec.json.decode(ask(url, twin).body, type=OriginView)

    assert path in _links(ask(url, "/sessions/finished/drops/fan_d_0-0"))
    assert "Upstream of it are 2 drops of 3 logical nodes, back to 1 root." in text
    assert [drop.oid for drop in view.origin.drops] == ["fan_d_0-0", "fan_a_0-0", "fan_r_0"]
    assert "CRC-32" in text
    assert {drop.state for drop in view.origin.drops} == {"COMPLETED"}
    failed = msgspec.json.decode(ask(url, "/sessions/failed/drops/fan_d_0-1/origin.json").body, type=OriginView)
    assert [drop.state for drop in failed.origin.drops] == ["ERROR", "ERROR", "COMPLETED"]
    assert ">in error<" in ask(url, "/sessions/failed/drops/fan_d_0-1/origin").text
    assert ask(url, f"{path}?offset=2&limit=1").text.count("data-row=") == 1
    assert ask(url, "/sessions/finished/drops/none/origin").status == 404
