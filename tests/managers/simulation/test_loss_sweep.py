"""Trials with random graphs, faults and losses: `tests.managers.simulation.random_losses`."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.data.workspace import SHARED_MEMORY
from managers.composite import merging
from managers.simulation.history import Committed, Read, Revoked
from tests.managers.simulation.checked_history import Acknowledged, Found, Gone, Promised, Record, check_history
from tests.managers.simulation.faults import (
    BadNetwork,
    Crash,
    CrashInStep,
    CutOneWay,
    Disturbed,
    FullDisk,
    SessionRequest,
    Stop,
)
from tests.managers.simulation.loss_sweep import shrink, sweep
from tests.managers.simulation.random_losses import LossTrial
from tests.managers.simulation.trial_checks import Expected


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.slow
def test_a_session_that_is_over_elsewhere_while_it_is_executed_ends_once(tmp_path: Path) -> None:
    """One of two members ends a cancelled session before the request reaches the other one, and answers it so."""
    faults = (
        Disturbed(seconds=60.0, longest=1.0),
        BadNetwork(seconds=120.0, lose=0.02, duplicate=0.02, reorder=0.05, cut=0.005),
        SessionRequest(at=1.0, operation="cancel", session=0),
    )
    outcome = LossTrial(9025, tmp_path, faults=faults).run()
    assert (outcome.violations, outcome.sessions) == ((), 1)


@pytest.mark.slow
def test_an_attempt_that_fails_after_its_input_was_lost_waits_for_it(tmp_path: Path) -> None:
    """An attempt runs on while its input is made again; if it fails, the next one begins when the input is there."""
    faults = (
        Disturbed(seconds=60.0, longest=5.0),
        CrashInStep(seconds=30.0, step=7, count=1, is_before=True),
    )
    outcome = LossTrial(80, tmp_path, faults=faults).run()
    assert outcome.violations == ()


@pytest.mark.slow
def test_a_drop_that_could_not_get_an_input_is_taken_over_with_its_cause(tmp_path: Path) -> None:
    """Its input is complete on the only node that is left, whose engine accepts that as the cause of an error."""
    faults = (
        CrashInStep(seconds=0.5, step=6, count=1, is_before=False),
        FullDisk(at=20.1, seconds=25.0, node=35),
    )
    outcome = LossTrial(310706, tmp_path, faults=faults).run()
    assert outcome.violations == ()


@pytest.mark.slow
def test_a_view_with_a_process_that_another_session_knows_to_be_replaced(tmp_path: Path) -> None:
    """A member that decided to rebalance is started again, and is in other sessions before the view begins."""
    faults = (
        CrashInStep(seconds=3.0, step=9, count=1, is_before=True),
        SessionRequest(operation="rebalance", session=2),
    )
    outcome = LossTrial(4, tmp_path, faults=faults).run()
    assert outcome.violations == ()


@pytest.mark.slow
def test_what_an_attempt_reads_is_not_taken_from_a_former_process(tmp_path: Path) -> None:
    """An attempt has the number of one that began in a chain on its node before that was started again."""
    faults = (
        Disturbed(seconds=60.0, longest=25.0),
        CrashInStep(seconds=0.5, step=10, count=2, is_before=False),
        CutOneWay(at=5.0, seconds=40.0, nodes=(29, 62, 34, 32)),
        FullDisk(at=10.0, seconds=3.0, node=42),
    )
    outcome = LossTrial(7000158, tmp_path, faults=faults).run()
    assert outcome.violations == ()


@pytest.mark.slow
def test_a_view_reaches_a_new_member_whose_former_process_was_connected(tmp_path: Path) -> None:
    """A member that did not yet hear that another one was started again tells that one of the view that it joins in."""
    faults = (
        Disturbed(seconds=60.0, longest=1.0),
        CutOneWay(at=0.1, seconds=60.0, nodes=(56, 12, 38, 61, 43)),
        Stop(at=5.1, seconds=60.0, node=10),
        Crash(at=10.1, seconds=3.0, node=47),
    )
    outcome = LossTrial(5001026, tmp_path, faults=faults).run()
    assert outcome.violations == ()


@pytest.mark.slow
def test_a_running_drop_whose_former_error_is_tried_again_goes_on(tmp_path: Path) -> None:
    """A drop runs again since its content was lost. A retry of what its error took along does not count it anew."""
    faults = (
        FullDisk(at=0.0, seconds=25.0, node=4),
        Stop(at=0.1, seconds=40.0, node=47),
        SessionRequest(at=16.1, seconds=0.0, operation="retry", session=60),
    )
    outcome = LossTrial(6000242, tmp_path, faults=faults).run()
    assert outcome.violations == ()


@pytest.mark.slow
def test_a_finished_part_that_no_cancel_reaches_ends_with_the_others(tmp_path: Path) -> None:
    """The others have ended the session, and send nothing any more: the node with that part asks them."""
    faults = (
        SessionRequest(at=1.0, seconds=0.0, operation="cancel", session=5),
        CutOneWay(at=1.0, seconds=60.0, nodes=(44, 36, 28)),
    )
    outcome = LossTrial(7003021, tmp_path, faults=faults).run()
    assert (outcome.violations, outcome.sessions) == ((), 1)


@pytest.mark.slow
def test_trials_leave_nothing_in_shared_memory(tmp_path: Path) -> None:
    """Otherwise each trial would look through what all trials before it have left."""
    before = set(SHARED_MEMORY.glob(f"dropflow-*-{os.getpid()}-*"))
    assert LossTrial(3, tmp_path).run().violations == ()
    assert set(SHARED_MEMORY.glob(f"dropflow-*-{os.getpid()}-*")) == before


@pytest.mark.slow
def test_contents_are_compared_although_a_disk_was_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts may fail on a full disk: what has completed has the same contents, and no other state."""
    without_faults = LossTrial._without_faults

    def others(self: LossTrial) -> dict[str, Expected]:
        expected = without_faults(self)
        wrong = {name: dict.fromkeys(end.contents, b"another one") for name, end in expected.items()}
        return {
            name: msgspec.structs.replace(end, contents=wrong[name], is_noisy=False) for name, end in expected.items()
        }

    monkeypatch.setattr(LossTrial, "_without_faults", others)
    outcome = LossTrial(4, tmp_path, faults=(FullDisk(at=0.0, seconds=3.0, node=0),)).run()
    assert any(line.endswith("is another one") for line in outcome.violations)


@pytest.mark.slow
def test_what_islands_answer_is_compared_with_the_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node dies when it knows that its session is over: managers that do not learn that from others are wrong."""
    monkeypatch.setattr(merging, "ended_detail", lambda *_: None)
    outcome = LossTrial(8, tmp_path).run()
    assert any("answers UNKNOWN" in line for line in outcome.violations)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_sessions_survive_losses() -> None:
    """With fixed seeds, every session ends as it does without faults; some go on after a loss."""
    figures = sweep(range(1, 31))
    assert figures.failing is None, str(figures)
    assert figures.survived


# The fewest faults with which a trial still fails.


@given(st.integers(0, 30), st.sets(st.integers(0, 29)))
def test_only_the_needed_items_are_left(count: int, needed: set[int]) -> None:
    """If all needed items are there, only these are left, in their order."""
    needed = {item for item in needed if item < count}

    def fails(items: Sequence[int]) -> bool:
        return needed <= set(items)

    assert shrink(range(count), fails, most_runs=10_000) == tuple(sorted(needed))


def test_it_ends_after_so_many_runs() -> None:
    """With few runs, what is left still fails."""
    kept = shrink(range(100), lambda items: 0 in items and 99 in items, most_runs=3)
    assert {0, 99} <= set(kept)


# The checker of histories finds each kind of violation, and nothing in histories without one.


def _at(kind: type[Any], time: float, node: str = "n1", *, view: int = 0, digest: str = "1") -> Record:
    record: Record = kind(time=time, node=node, session="s", view=view, drop="d", digest=digest)
    return record


_GOOD: dict[str, list[Record]] = {
    "read after a commit": [_at(Committed, 1), _at(Read, 2, "n2")],
    "committed again in the next view": [
        _at(Committed, 1),
        Promised(time=2, node="n1", session="s"),
        _at(Committed, 3, view=1),
        _at(Read, 4, view=1),
    ],
    "committed again after it was revoked": [_at(Committed, 1), _at(Revoked, 1), _at(Committed, 2)],
    "results are there": [_at(Committed, 1), _at(Acknowledged, 2), _at(Found, 3)],
    "the node of a result is lost": [_at(Committed, 1), _at(Acknowledged, 2), Gone(time=3, node="n1")],
    "the session is deleted": [_at(Committed, 1), _at(Acknowledged, 2), Gone(time=3, node="", session="s")],
}
_BAD: dict[str, tuple[list[Record], str]] = {
    "read before the commit": (
        [_at(Read, 1, "n2"), _at(Committed, 2)],
        "1.000 s: n2 reads a content of drop d that was not committed",
    ),
    "read of another content": (
        [_at(Committed, 1), _at(Read, 2, digest="2")],
        "2.000 s: n1 reads a content of drop d that was not committed",
    ),
    "two contents in one view": (
        [_at(Committed, 1), _at(Read, 2), _at(Committed, 3, view=1, digest="2"), _at(Read, 4, "n2", digest="2")],
        "4.000 s: n2 reads another content of drop d than n1 did in this view",
    ),
    "two commits in one view": (
        [_at(Committed, 1), _at(Committed, 2, "n2")],
        "2.000 s: n2 commits drop d in view 0, and n1 did before",
    ),
    "commit after a promise": (
        [Promised(time=1, node="n1", session="s"), _at(Committed, 2)],
        "2.000 s: n1 commits drop d in view 0, which it promised to end",
    ),
    "an acknowledged result is gone": (
        [_at(Committed, 1), _at(Acknowledged, 2)],
        "result d of session s on n1, acknowledged at 2.000 s, is gone",
    ),
    "an acknowledged result has changed": (
        [_at(Committed, 1), _at(Acknowledged, 2), _at(Found, 3, digest="2")],
        "result d of session s on n1, acknowledged at 2.000 s, is gone",
    ),
}


@pytest.mark.parametrize("name", _GOOD)
def test_nothing_is_wrong_with_good_histories(name: str) -> None:
    """What a session may do is no violation."""
    assert check_history(_GOOD[name]) == []


@pytest.mark.parametrize("name", _BAD)
def test_violations_are_found(name: str) -> None:
    """Each violation is found once, with its time and its node."""
    history, expected = _BAD[name]
    assert check_history(history) == [expected]
