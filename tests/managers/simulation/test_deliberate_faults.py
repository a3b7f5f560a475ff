"""The simulated losses find faults that are put into the product on purpose: `deliberate_faults` has the list."""

import logging
from pathlib import Path

import pytest

from managers.simulation.random_losses import LossTrial
from tests.managers.simulation.deliberate_faults import FAULTS

_MOST_SEEDS = 150
"""About a minute of processor time."""


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_deliberate_faults_are_found(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Within a minute of trials, one has a violation."""
    caplog.set_level(logging.CRITICAL)
    FAULTS[name](monkeypatch)
    assert any(_fails(seed, tmp_path) for seed in range(1, _MOST_SEEDS + 1))


def _fails(seed: int, home: Path) -> bool:
    directory = home / str(seed)
    directory.mkdir()
    return bool(LossTrial(seed, directory).run().violations)
