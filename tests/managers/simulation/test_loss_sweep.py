"""Trials with random graphs, faults and losses: `managers.simulation.random_losses`."""

import logging
import secrets

import pytest

from managers.simulation.loss_sweep import sweep


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.slow
def test_sessions_survive_losses() -> None:
    """With fixed seeds, every session ends as it does without faults; some go on after a loss."""
    figures = sweep(range(1, 31))
    assert figures.failing is None, str(figures)
    assert figures.survived


@pytest.mark.slow
def test_sessions_survive_other_losses_each_time() -> None:
    """With fresh seeds, every session ends as it does without faults, with the same results."""
    first = secrets.randbelow(10**9)
    figures = sweep(range(first, first + 30))
    assert figures.failing is None, f"from seed {first}: {figures}"
