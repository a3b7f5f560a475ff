"""Merged reports of several children equal the report of one manager with all the drops."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.drop_records import DropQuery
from dropflow.api.requests import FailureList, FailureQuery
from dropflow.api.session_records import FailureInfo, LogicalNodeInfo, PartEnd, SessionDetail
from dropflow.execution.decisions.events import Lost
from dropflow.failure import Failure
from dropflow.graph.drop_counts import DropCounts
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import DropState
from managers.composite.log_merging import KnownCauses
from managers.composite.merging import (
    Freshness,
    SessionPart,
    as_info,
    merge,
    merge_failures,
    merge_logical,
    row_ranges,
    unrecorded_nodes,
)
from tests.execution.decisions.core_cluster import CoreCluster
from tests.managers.composite.core_reports import begin, failing_cluster, report
from tests.managers.composite.filled_records import fields_with_defaults, filled
from tests.strategies import graphs

_KEYS = ("a", "b", "c")
_NODES = ("n1", "n2", "n3")
Row = tuple[str, str, str, str]
"""Of one drop: node, key of its logical node, state, and the root cause if it failed."""
_rows = st.lists(
    st.tuples(
        st.sampled_from(_NODES),
        st.sampled_from(_KEYS),
        st.sampled_from([state.name for state in DropState]),
        st.sampled_from(["r1", "r2", "r3"]),
    ),
    min_size=1,
    max_size=40,
)


def _report(rows: Sequence[Row]) -> SessionDetail:
    """Return the report of a manager with these drops, computed in the slow and obvious way."""
    unsettled = [row for row in rows if row[2] in ("INITIALIZED", "WRITING")]
    failed = [row for row in rows if row[2] == "ERROR"]
    if unsettled:
        status = "RUNNING"
    elif failed:
        status = "FAILED"
    else:
        status = "CANCELLED" if any(row[2] == "CANCELLED" for row in rows) else "FINISHED"
    counts = Counter(row[3] for row in failed)
    return SessionDetail(
        session="s",
        graph="g",
        status=status,
        drops=len(rows),
        settled=len(rows) - len(unsettled),
        running=sum(row[2] == "WRITING" for row in rows),
        states=dict(Counter(row[2] for row in rows)),
        created=1.0,
        started=2.0,
        finished=0.0 if unsettled else 9.0,
        seconds=3.0,
        rate=0.0 if unsettled else len(rows) / 3.0,
        nodes=tuple(sorted({row[0] for row in rows})),
        logical=tuple(
            LogicalNodeInfo(
                key=key,
                name=key,
                category="x",
                is_app=False,
                artificial=False,
                drops=sum(row[1] == key for row in rows),
                states=dict(Counter(row[2] for row in rows if row[1] == key)),
            )
            for key in dict.fromkeys(row[1] for row in rows)
        ),
        failures=tuple(
            FailureInfo(drop=root, name=root, node="n", code="DF105", kind="E", text=root, count=count)
            for root, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        ),
    )


def _sorted(detail: SessionDetail) -> SessionDetail:
    return msgspec.structs.replace(detail, logical=tuple(sorted(detail.logical, key=lambda node: node.key)), version=0)


def _parts(rows: Sequence[Row]) -> list[SessionPart]:
    return [SessionPart(node, _report(own)) for node in _NODES if (own := [row for row in rows if row[0] == node])]


@given(_rows)
def test_merged_parts_equal_the_report_of_one_manager(rows: list[Row]) -> None:
    """For any distribution of drops, the merged session is that of one manager with all drops."""
    assert _sorted(merge(_parts(rows), version=0)) == _sorted(_report(rows))


@given(_rows)
def test_merging_in_steps_equals_merging_at_once(rows: list[Row]) -> None:
    """A master of islands reports what one island with all nodes would report."""
    parts = _parts(rows)
    island = SessionPart("island", merge(parts[:2], version=7))

    assert _sorted(merge([island, *parts[2:]], version=0)) == _sorted(merge(parts, version=0))


_going = st.builds(
    lambda quiet, remaining: SessionDetail(
        session="s",
        graph="g",
        status="RUNNING",
        quiet=quiet,
        usual_quiet=10.0,
        remaining=None if quiet > 10 else remaining,
    ),
    st.sampled_from([0.0, 5.0, 20.0, 60.0]),
    st.none() | st.sampled_from([1.0, 30.0]),
)


@given(st.lists(_going, min_size=1, max_size=4))
def test_a_session_is_quiet_if_all_its_nodes_are(details: list[SessionDetail]) -> None:
    """The time left is that of the nodes where drops settle; without such nodes, it is shown for how long none did."""
    parts = [SessionPart(str(number), detail) for number, detail in enumerate(details)]
    merged = merge(parts, version=0)
    moving = [detail.remaining for detail in details if not detail.is_quiet]

    assert merged.is_quiet == (not moving)
    assert merged.quiet == min(detail.quiet for detail in details)
    assert merged.remaining == (None if not moving or None in moving else max(moving))
    assert merged.time_left.startswith("no drop settled for") == (not moving)
    island = SessionPart("island", merge(parts[:2], version=7))
    assert merge([island, *parts[2:]], version=0) == merged


def test_a_failure_is_told_with_its_reason() -> None:
    """A part to which a failure has spread may report it first: while the session runs, it waits for the reason."""
    running = SessionDetail(session="s", graph="g", status="RUNNING", drops=2, whole=4)
    reason = FailureInfo(drop="x", name="x", node="n1", code="DF105", kind="E", text="no sky", count=1, row=0)
    spread = FailureInfo(
        drop="x", name="x", node="", code="", kind="", text="it failed on another node", count=1, row=0
    )
    first = SessionPart("n2", msgspec.structs.replace(running, failures=(spread,)))
    late = SessionPart("n1", running)
    then = SessionPart("n1", msgspec.structs.replace(running, failures=(reason,)))

    assert merge([first, late], version=1).failures == ()
    assert [(failure.text, failure.count) for failure in merge([first, then], version=2).failures] == [("no sky", 2)]
    assert merge([first], version=1).failures == (spread,)  # the reason is at another manager
    assert merge([first, replace(late, freshness=Freshness.LOST)], version=1).failures[-1] == spread


@given(_rows, st.randoms())
def test_the_order_of_children_does_not_matter(rows: list[Row], random: object) -> None:
    """The merged session does not depend on the order of the answers."""
    parts = _parts(rows)
    shuffled = list(parts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert _sorted(merge(shuffled, version=0)) == _sorted(merge(parts, version=0))


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ("FINISHED FINISHED", "FINISHED"),
        ("FINISHED CANCELLED", "CANCELLED"),
        ("CANCELLED FAILED", "FAILED"),
        ("FAILED RUNNING", "RUNNING"),
        ("CANCELLING RUNNING", "CANCELLING"),
        ("PAUSED PAUSED", "PAUSED"),
        ("PAUSED FINISHED", "PAUSED"),
        ("PAUSED RUNNING", "RUNNING"),
        ("PAUSED DEPLOYING", "RUNNING"),
        ("PAUSED CANCELLING", "CANCELLING"),
        ("CANCELLED CANCELLING", "CANCELLING"),
        ("FINISHED DEPLOYING", "RUNNING"),
        ("BUILDING DEPLOYING", "DEPLOYING"),
        ("DEPLOYING DEPLOYING", "DEPLOYING"),
    ],
)
def test_a_session_is_over_when_all_parts_are(parts: str, whole: str) -> None:
    """As long as one node has work the session runs; then the worst end counts."""
    reported = [
        SessionPart(f"n{at}", SessionDetail(session="s", graph="g", status=status))
        for at, status in enumerate(parts.split())
    ]

    assert merge(reported, version=1).status == whole


def test_a_node_that_lost_its_part_fails_the_session_and_is_named() -> None:
    """Its unsettled drops are lost: the session is FAILED, with the node as a root cause and the number of drops."""
    detail = SessionDetail(session="s", graph="g", status="RUNNING", drops=10, settled=4, running=2, nodes=("n2",))
    over = SessionDetail(session="s", graph="g", status="FAILED", drops=5, settled=5, nodes=("n1",))

    merged = merge([SessionPart("n1", over), SessionPart("n2", detail, Freshness.LOST, "was started again")], version=1)

    assert (merged.status, merged.running, merged.drops, merged.nodes) == ("FAILED", 0, 15, ("n1", "n2"))
    assert merged.text == "node n2 is lost: was started again; 6 of its 10 drops were not settled"
    assert [(failure.name, failure.drop, failure.count) for failure in merged.failures] == [("n2", "", 6)]


def test_a_silent_node_that_its_peers_report_as_lost_is_lost() -> None:
    """The nodes that needed it have ended the session as FAILED and report the loss; its drops count for it."""
    lost = SessionDetail(session="s", graph="g", status="RUNNING", drops=10, settled=4, nodes=("n2",))
    reported = FailureInfo(drop="", name="n2", node="n1", code="DF220", kind="NodeLost", text="n2 is lost", count=3)
    other = SessionDetail(session="s", graph="g", status="FAILED", text="n2 is lost", failures=(reported,))

    merged = merge([SessionPart("n1", other), SessionPart("n2", lost, Freshness.STALE, "is silent")], version=1)

    counted = msgspec.structs.replace(reported, count=3 + 6)
    assert (merged.status, merged.failures, merged.unknown) == ("FAILED", (counted,), ())
    assert merged.text == "n2 is lost; n2: 6 of its 10 drops were not settled"


def test_the_last_report_of_a_silent_part_is_used() -> None:
    """A node that is silent for a moment does not fail the session; a note says that its numbers are old."""
    detail = SessionDetail(session="s", graph="g", status="RUNNING", drops=10, settled=4, running=2)

    merged = merge([SessionPart("n2", detail, missing="does not answer")], version=1)

    assert (merged.status, merged.running, merged.notes) == ("RUNNING", 2, ("n2: does not answer",))


def test_a_silent_node_whose_part_had_ended_changes_nothing() -> None:
    """A part that had ended before the node became silent keeps its state."""
    detail = SessionDetail(session="s", graph="g", status="FINISHED", drops=3, settled=3)

    assert merge([SessionPart("n", detail, Freshness.STALE, "does not answer")], version=1).status == "FINISHED"


@pytest.mark.parametrize(("view", "status"), [(1, "FINISHED"), (2, "RUNNING")])
def test_a_session_that_is_over_is_not_taken_back_by_a_node_that_has_not_heard_it(view: int, status: str) -> None:
    """Its nodes have agreed on the end of their view. If one is in a later view, the session was tried again.

    While all answer, a session is not over before the last of them is.
    """
    ends = tuple(
        PartEnd(node=node, status="FINISHED", counts=DropCounts(completed=2), states={}) for node in _NODES[:2]
    )
    over = SessionDetail(session="s", graph="g", status="FINISHED", nodes=("n1",), view=1, ends=ends)
    late = SessionDetail(session="s", graph="g", status="RUNNING", nodes=("n2",), view=view, drops=2, settled=2)

    answered = merge([SessionPart("n1", over), SessionPart("n2", late)], version=1)
    assert answered.status == "RUNNING"
    silent = SessionPart("n2", msgspec.structs.replace(late, view=1), Freshness.STALE, "does not answer")
    before = merge([SessionPart("n1", over), silent], version=2)
    assert before.status == "FINISHED"
    assert merge([SessionPart("n1", over), SessionPart("n2", late)], version=3, before=before).status == status


def test_a_session_keeps_its_end_if_a_node_has_lost_its_record() -> None:
    """A note counts the drops that no member knows, and the results of the node are missing."""
    ends = tuple(
        PartEnd(node=node, status="FINISHED", counts=DropCounts(completed=3), states={"COMPLETED": 3})
        for node in _NODES[:2]
    )
    kept = SessionDetail(
        session="s",
        graph="g",
        status="FINISHED",
        nodes=("n1",),
        members=_NODES[:2],
        states={"COMPLETED": 3},
        ends=ends,
    )
    loss = FailureInfo(drop="", name="n2", node="n2", code="DF203", kind="NodeLost", text="it ended", hint="", count=2)
    lost = SessionDetail(
        session="s",
        graph="g",
        status="FAILED",
        nodes=("n2",),
        drops=3,
        settled=3,
        counts=DropCounts(completed=1, cancelled=2),
        text="it ended",
        failures=(loss,),
    )
    parts = [SessionPart("n1", kept), SessionPart("n2", lost)]
    merged = merge(parts, version=1)

    assert (merged.status, merged.states, merged.failures) == ("FINISHED", {"COMPLETED": 6}, ())
    assert merged.notes == ("n2 has no record of 2 completed drops any more: it ended",)
    assert unrecorded_nodes(parts) == ("n2",)
    alone = [SessionPart("n1", msgspec.structs.replace(kept, ends=())), parts[1]]
    assert (merge(alone, version=1).status, unrecorded_nodes(alone)) == ("FAILED", ())


def test_a_part_that_is_cancelling_is_not_over() -> None:
    """A node that has cancelled its part does not know of the others, whose nodes answer that they still stop."""
    members = _NODES[:3]
    end = PartEnd(node="n1", status="CANCELLED", counts=DropCounts(cancelled=2), states={"CANCELLED": 2})
    cancelling = SessionDetail(
        session="s", graph="g", status="CANCELLED", nodes=("n1",), members=members, ends=(end,), drops=2
    )
    island = SessionDetail(session="s", graph="g", status="CANCELLING", nodes=members, members=members, drops=6)
    island = msgspec.structs.replace(island, ends=(end,))

    assert merge([SessionPart("n1", cancelling), SessionPart("i", island)], version=1).status == "CANCELLING"
    silent = merge([SessionPart("i", island, Freshness.STALE, "does not answer")], version=1)
    assert (silent.status, silent.drops) == ("UNKNOWN", 6)


@pytest.mark.parametrize(("cancelled", "status"), [(2, "CANCELLED"), (1, "UNKNOWN")])
def test_a_cancelled_session_is_over_while_nodes_are_silent_that_cannot_go_on(cancelled: int, status: str) -> None:
    """More than half of the members have cancelled it. The silent one has never answered this manager."""
    members = _NODES[:3]
    ends = tuple(
        PartEnd(node=node, status=what, counts=DropCounts(cancelled=2), states={})
        for node, what in zip(members, ["CANCELLED"] * cancelled + ["FINISHED"], strict=False)
    )
    known = SessionDetail(
        session="s", graph="g", status="CANCELLED", nodes=members[:2], members=members, ends=ends, drops=4, whole=9
    )

    assert merge([SessionPart("n1", known)], version=1, silent=["http://n3:8000"]).status == status


_NOT_OVER = SessionDetail(session="s", graph="g", status="RUNNING", drops=10, settled=4, running=2)


@pytest.mark.parametrize(
    ("other", "whole"),
    [
        ("FINISHED", "UNKNOWN"),
        ("FAILED", "UNKNOWN"),
        ("CANCELLED", "UNKNOWN"),
        ("UNKNOWN", "UNKNOWN"),
        ("RUNNING", "RUNNING"),
        ("DEPLOYING", "DEPLOYING"),
    ],
)
def test_an_unfinished_part_of_a_silent_node_makes_the_session_unknown(other: str, whole: str) -> None:
    """With unsettled drops on a silent node, the session is RUNNING if another node reports that, else UNKNOWN."""
    reported = SessionDetail(session="s", graph="g", status=other, nodes=("n1",))
    silent = msgspec.structs.replace(_NOT_OVER, nodes=("n2",))

    since = "2026-11-22 03:00:00 UTC"
    merged = merge(
        [SessionPart("n1", reported), SessionPart("n2", silent, Freshness.STALE, "does not answer", since)], version=1
    )

    assert (merged.status, merged.unknown, merged.finished) == (whole, ("n2",), 0.0)
    assert (
        merged.text
        == f"n2 is unavailable (does not answer): its part was RUNNING at {since}, when 4 of its 10 drops were settled"
    )
    assert not merged.is_over


def test_a_node_that_is_given_up_below_another_island_is_known_to_be_lost() -> None:
    """An island with a silent node reports UNKNOWN; a master to which a peer reported the loss reports FAILED."""
    silent = msgspec.structs.replace(_NOT_OVER, nodes=("n2",))
    east = merge([SessionPart("n2", silent, Freshness.STALE, "does not answer")], version=1)
    lost = FailureInfo(drop="", name="n2", node="n1", code="DF220", kind="NodeLost", text="node n2 is lost")
    west = SessionDetail(session="s", graph="g", status="FAILED", failures=(lost,), nodes=("n1",))

    assert east.status == "UNKNOWN"
    assert merge([SessionPart("east", east), SessionPart("west", west)], version=1).status == "FAILED"


@given(_rows, st.sets(st.sampled_from(_NODES)))
def test_silence_never_ends_a_session(rows: list[Row], silent: set[str]) -> None:
    """With any silent nodes, an end is reported only if every part was over in its last report; then it is right."""
    parts = _parts(rows)
    seen = [replace(part, freshness=Freshness.STALE, missing="x") if part.child in silent else part for part in parts]
    whole, merged = merge(parts, version=0), merge(seen, version=0)
    hidden = {part.child for part in parts if part.child in silent and not part.detail.is_over}

    assert set(merged.unknown) == hidden
    assert merged.is_over == whole.is_over
    assert merged.status == whole.status or (merged.status == "UNKNOWN" and hidden)


@given(_rows, st.sets(st.sampled_from(_NODES)))
def test_merging_in_steps_hides_no_silence(rows: list[Row], silent: set[str]) -> None:
    """A master of islands reports as many silent nodes as one island with all nodes would."""
    parts = [
        replace(part, freshness=Freshness.STALE, missing="x") if part.child in silent else part for part in _parts(rows)
    ]
    island = SessionPart("island", merge(parts[:2], version=7))
    stepwise, at_once = merge([island, *parts[2:]], version=0), merge(parts, version=0)

    assert (stepwise.status, stepwise.unknown) == (at_once.status, at_once.unknown)


def test_failures_with_one_root_cause_are_merged() -> None:
    """The counts of a root cause are added, and the report of the node that has its log is kept."""
    plain = FailureInfo(drop="d", name="d", node="n1", code="DF105", kind="E", text="x", count=3)
    own = msgspec.structs.replace(plain, count=2, has_log=True, detail="Traceback")
    other = msgspec.structs.replace(plain, drop="e", count=4)

    merged = merge_failures([plain, other, own])

    assert [(failure.drop, failure.count, failure.has_log) for failure in merged] == [("d", 5, True), ("e", 4, False)]


def test_every_field_of_a_session_is_merged() -> None:
    """No field is lost at an island: what a new one is made of is to be told here."""
    two, three = (
        filled(SessionDetail, number, status="RUNNING", states={"COMPLETED": number}, view=1, usual_quiet=100.0)
        for number in (2, 3)
    )
    of_newest = {
        name: getattr(three, name) for name in ("session", "graph", "epoch", "joined_by", "request_id", "user")
    }
    sums = ("drops", "settled", "running", "queued", "ready", "recomputed", "computed", "reused", "rate")
    of_both = {
        name: getattr(two, name) + getattr(three, name) for name in ("nodes", "unknown", "logical", "ends", "notes")
    }

    assert msgspec.structs.asdict(merge([SessionPart("n2", two), SessionPart("n3", three)], version=7)) == {
        **of_newest,
        **dict.fromkeys(sums, 5),
        **of_both,
        "status": "RUNNING",
        "version": 7,
        "counts": filled(DropCounts, 5),
        "states": {"COMPLETED": 5},
        "created": 2.0,
        "started": 2.0,
        "finished": 0.0,  # it runs
        "seconds": 3.0,
        "remaining": 3.0,
        "quiet": 2.0,
        "usual_quiet": 100.0,
        "text": "text 2; text 3",
        "whole": 3,
        "silent_children": (),  # all answer
        "view": 1,
        "members": three.members,
        "lacks_witness": True,
        "failures": (*three.failures, *two.failures),
    }


def test_every_field_of_a_logical_node_and_of_a_failure_is_merged() -> None:
    """What children count is added; what is the same on all of them, or known by one of them only, is kept."""
    same: dict[str, Any] = {"key": "k", "name": "n", "category": "c", "order": 1}
    (node,) = merge_logical(filled(LogicalNodeInfo, number, states={"ERROR": number}, **same) for number in (2, 3))
    own, other = (filled(FailureInfo, number, row=1) for number in (3, 2))

    assert node == filled(LogicalNodeInfo, 5, states={"ERROR": 5}, **same)
    assert merge_failures([other, own]) == (
        msgspec.structs.replace(own, count=5, took_along=5, drops=(*other.drops, *own.drops)),
    )


def test_as_info_keeps_every_field_of_the_list() -> None:
    """The record in the list has the same values as the detail."""
    detail = filled(SessionDetail, 1)

    assert msgspec.structs.asdict(as_info(detail)).items() <= msgspec.structs.asdict(detail).items()
    assert fields_with_defaults(as_info(detail)) == {"epoch"}


@given(
    st.lists(st.integers(0, 7), max_size=5),
    st.integers(0, 30),
    st.integers(1, 12),
)
def test_row_ranges_select_a_slice_of_all_rows(totals: list[int], offset: int, limit: int) -> None:
    """The rows that `row_ranges` requests from the nodes are a slice of the concatenated rows of all nodes."""
    rows = [(child, row) for child, total in enumerate(totals) for row in range(total)]

    ranges = [
        (rows_wanted.child, row)
        for rows_wanted in row_ranges(totals, DropQuery(offset=offset, limit=limit))
        for row in range(rows_wanted.offset, rows_wanted.offset + rows_wanted.limit)
    ]

    assert ranges == rows[offset : offset + limit]


# Figures of a session agree, on each node and merged: every drop in ERROR is counted for exactly one cause.


_GONE = Failure(code="DF220", kind="NodeLost", text="node n0 is lost")


def _run(graph: PhysicalGraph, seed: int, nodes: int, steps: int | None) -> CoreCluster:
    """Return a cluster after `steps` events, or at its end."""
    if steps is not None:
        return begin(graph, seed, nodes, steps)
    cluster = failing_cluster(graph, seed, nodes)
    cluster.run()
    return cluster


def _drops_of(failures: tuple[FailureInfo, ...]) -> tuple[int, int]:
    """Return the numbers of drops that failed because of causes, and of losses."""
    causes = sum(failure.count for failure in failures if failure.drop)
    return causes, sum(failure.count for failure in failures if not failure.drop)


@given(graphs(), st.integers(0, 2**32), st.integers(1, 4), st.none() | st.integers(0, 30))
def test_causes_add_up_to_the_drops_in_error(graph: PhysicalGraph, seed: int, nodes: int, steps: int | None) -> None:
    """At any moment, on each node and merged, the counts of all causes add up to the drops in ERROR."""
    cluster = _run(graph, seed, nodes, steps)
    parts = [report(name, node, []) for name, node in cluster.nodes.items()]
    merged = merge([SessionPart(name, part) for name, part in zip(cluster.nodes, parts, strict=True)], version=1)

    for detail in (*parts, merged):
        assert _drops_of(detail.failures) == (detail.states.get("ERROR", 0), 0)
    assert len({failure.row for failure in merged.failures}) == len(merged.failures)


@given(graphs(), st.integers(0, 2**32), st.integers(2, 4), st.integers(0, 30))
def test_losses_add_up_to_the_drops_that_were_given_up(graph: PhysicalGraph, seed: int, nodes: int, steps: int) -> None:
    """The count of a loss is the number of drops that were not settled, on the lost node and on the others."""
    cluster = _run(graph, seed, nodes, steps)
    parts = []
    for name, node in cluster.nodes.items():
        lost = []
        if name != "n0" and not node.core.status.is_terminal:
            lost.append(Lost("n0", _GONE))
            node.core.handle(lost)
        freshness = Freshness.LOST if name == "n0" else Freshness.CURRENT
        parts.append(SessionPart(name, report(name, node, lost), freshness))
    merged = merge(parts, version=1)
    states = Counter(merged.states)

    assert _drops_of(merged.failures) == (
        states["ERROR"],
        states["CANCELLED"] + states["INITIALIZED"] + states["WRITING"],
    )


# Root causes of several children, merged by columns of numbers.


def _failure(row: int, count: int, along: int) -> FailureInfo:
    drop, name = (f"d_{row}", "d") if row >= 0 else ("", "n")
    return FailureInfo(
        drop=drop, name=name, node="n", code="", kind="", text="t", count=count, took_along=along, row=row
    )


_FAILURES = st.builds(_failure, st.integers(-1, 12), st.integers(0, 4), st.integers(0, 3))
_CHILDREN = st.lists(st.lists(_FAILURES, max_size=10, unique_by=lambda failure: failure.row), max_size=4)


@given(children=_CHILDREN, silent=_CHILDREN, offset=st.integers(0, 14), limit=st.integers(1, 6))
def test_a_page_is_that_of_all_records(
    children: list[list[FailureInfo]], silent: list[list[FailureInfo]], offset: int, limit: int
) -> None:
    """Each page has what it has if all records of all children are merged; only its records are asked for."""
    answers = [FailureList.of(merge_failures(child), FailureQuery(columns=True)) for child in children]
    remembered = [failure for failures in silent for failure in failures]
    every = merge_failures([*(failure for child in children for failure in child), *remembered])
    requested: list[int] = []

    def records(rows: Sequence[int]) -> list[FailureInfo]:
        requested.extend(rows)
        query = FailureQuery(rows=",".join(map(str, rows)))
        return [failure for child in children for failure in FailureList.of(child, query).failures] if rows else []

    known = KnownCauses(answers, remembered)
    page = known.page(FailureQuery(offset=offset, limit=limit), records)

    assert known.total == len(every)
    assert page == every[offset : offset + limit]
    assert len(requested) <= limit


@given(children=_CHILDREN)
def test_managers_above_merge_columns_of_managers_below(children: list[list[FailureInfo]]) -> None:
    """Columns that were merged in two steps are those that were merged in one."""
    answers = [FailureList.of(merge_failures(child), FailureQuery(columns=True)) for child in children]
    once = KnownCauses(answers, ())
    below = [KnownCauses(part, ()) for part in (answers[:2], answers[2:])]
    lists = [FailureList(failures=causes.lost, total=causes.total, columns=causes.columns) for causes in below]
    twice = KnownCauses(lists, ())

    assert msgspec.json.encode(twice.columns) == msgspec.json.encode(once.columns)
    assert twice.lost == once.lost
