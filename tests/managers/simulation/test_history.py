"""The checker of histories finds each kind of violation, and nothing in histories without one."""

from typing import Any

import pytest

from managers.simulation.history import (
    Acknowledged,
    Committed,
    Found,
    Gone,
    Promised,
    Read,
    Record,
    Revoked,
    check_history,
)


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
