import logging

import pytest

from dropflow.engine.events import Assembled, Failed, Finished
from dropflow.failure import Failure
from dropflow.testing.drawing import draw
from managers.node.failure_log import FailureLog

BOOM = Failure(code="DF105", kind="ValueError", text="boom")


def test_failures_are_logged_with_session_drop_and_attempt(caplog: pytest.LogCaptureFixture) -> None:
    """The log of a node names the session, drop and attempt of each failure, and its cause."""
    with caplog.at_level(logging.INFO):
        FailureLog(draw("A -> b"), "s").on_events([Finished(0, 1), Failed(0, 2, BOOM), Assembled(1, BOOM)])
    logged = [(record.session, record.drop, record.attempt) for record in caplog.records]  # type: ignore[attr-defined]

    assert logged == [("s", "drawing_A_0", 2), ("s", "drawing_b_0", 1)]
    assert all("DF105 boom" in record.getMessage() for record in caplog.records)


def test_a_log_has_a_limited_number_of_failures(caplog: pytest.LogCaptureFixture) -> None:
    """After a hundred failures the log notes once that there are more."""
    log = FailureLog(draw("A"), "s")
    with caplog.at_level(logging.INFO):
        for _ in range(50):
            log.on_events([Failed(0, 1, BOOM)] * 10)

    assert len(caplog.records) == 101
    assert "more drops failed" in caplog.records[-1].getMessage()
