"""The simulated losses find faults that are put into the product on purpose: `deliberate_faults` has the list."""

import logging
from pathlib import Path

import pytest

from tests.managers.simulation.deliberate_faults import AIM_OF, FAULTS
from tests.managers.simulation.faults import AIMS
from tests.managers.simulation.random_losses import AIMED, LossTrial

_MOST_SEEDS = 150
"""About a minute of processor time."""


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(1200)  # on a busy machine
@pytest.mark.parametrize("name", FAULTS)
def test_deliberate_faults_are_found(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Within a minute of trials, one has a violation."""
    caplog.set_level(logging.CRITICAL)
    FAULTS[name](monkeypatch)
    seeds = range(1, _MOST_SEEDS + 1)
    if name in AIM_OF:
        step = AIMED * len(AIMS)
        first = AIMED * (AIM_OF[name] + 1) - 1
        seeds = range(first, first + step * _MOST_SEEDS, step)
    assert any(_fails(seed, tmp_path) for seed in seeds)


def _fails(seed: int, home: Path) -> bool:
    directory = home / str(seed)
    directory.mkdir()
    violations = LossTrial(seed, directory).run().violations
    assert not any("InternalError" in line or "TypeError" in line for line in violations), (
        f"the fault does not fit the product: {violations}"
    )
    return bool(violations)
