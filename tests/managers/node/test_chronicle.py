import logging

import pytest

from dropflow.engine.events import Assembled, Failed, Finished
from dropflow.failure import Failure
from dropflow.testing.drawing import draw
from managers.node.chronicle import Chronicle

BOOM = Failure(code="DF105", kind="ValueError", text="boom")


def test_failures_are_logged_with_session_drop_and_attempt(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever reads the log of a node finds which attempt of which drop of which session failed, and why."""
    with caplog.at_level(logging.INFO):
        Chronicle(draw("A -> b"), "s").on_events([Finished(0, 1), Failed(0, 2, BOOM), Assembled(1, BOOM)])
    told = [(record.session, record.drop, record.attempt) for record in caplog.records]  # type: ignore[attr-defined]

    assert told == [("s", "drawing_A_0", 2), ("s", "drawing_b_0", 1)]
    assert all("DF105 boom" in record.getMessage() for record in caplog.records)


def test_a_log_is_not_flooded(caplog: pytest.LogCaptureFixture) -> None:
    """After a hundred failures the log says once that there are more."""
    chronicle = Chronicle(draw("A"), "s")
    with caplog.at_level(logging.INFO):
        for _ in range(50):
            chronicle.on_events([Failed(0, 1, BOOM)] * 10)

    assert len(caplog.records) == 101
    assert "more drops failed" in caplog.records[-1].getMessage()
