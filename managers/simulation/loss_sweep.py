"""Run trials of `managers.simulation.random_losses` with many seeds: ``python -m managers.simulation.loss_sweep``."""

import argparse
import logging
import secrets
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from managers.simulation.random_losses import LossTrial, TrialOutcome

__all__ = ["Figures", "sweep"]

_SHOWN = 50


class Figures(msgspec.Struct, frozen=True):
    """What trials found.

    Attributes
    ----------
    seeds, sessions, survived, losses : int
        Number of trials, sessions in them, those that went on after a loss, and nodes that were lost.
    failing : int or None
        The first seed with a violation.
    text : str
        What happened with that seed.
    """

    seeds: int = 0
    sessions: int = 0
    survived: int = 0
    losses: int = 0
    failing: int | None = None
    text: str = ""

    def __str__(self) -> str:
        counts = f"{self.seeds} seeds: {self.survived} of {self.sessions} sessions went on after {self.losses} losses"
        return counts if self.failing is None else f"{counts}\nseed {self.failing} fails:\n{self.text}"


def sweep(seeds: Iterable[int]) -> Figures:
    """Run one trial for each seed, up to the first that finds a violation."""
    figures = Figures()
    for seed in seeds:
        outcome, _ = _run(seed, keep_trace=False)
        figures = msgspec.structs.replace(
            figures,
            seeds=figures.seeds + 1,
            sessions=figures.sessions + outcome.sessions,
            survived=figures.survived + outcome.survived,
            losses=figures.losses + outcome.losses,
        )
        if outcome.violations:
            return msgspec.structs.replace(figures, failing=seed, text=_report(seed))
    return figures


def _run(seed: int, *, keep_trace: bool) -> tuple[TrialOutcome, list[str]]:
    with tempfile.TemporaryDirectory() as directory:
        trial = LossTrial(seed, Path(directory), keep_trace=keep_trace)
        return trial.run(), trial.decisions


def _report(seed: int) -> str:
    """Run a trial again, and return its faults, its last decisions and what it found."""
    outcome, decisions = _run(seed, keep_trace=True)
    shown = decisions[-_SHOWN:]
    return "\n".join(f"  {line}" for line in (*outcome.faults, *shown, *outcome.violations))


def main() -> int:
    """Run the trials that the command line asks for."""
    parser = argparse.ArgumentParser(description="Lose nodes of simulated clusters, and check how sessions end.")
    parser.add_argument("--seeds", type=int, default=100, help="number of trials (default %(default)s)")
    parser.add_argument("--first", type=int, default=None, help="the first seed; by default another one each time")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    first = secrets.randbelow(10**9) if arguments.first is None else arguments.first
    sys.stdout.write(f"seeds {first} to {first + arguments.seeds - 1}\n")
    sys.stdout.flush()
    figures = sweep(range(first, first + arguments.seeds))
    sys.stdout.write(f"{figures}\n")
    return 0 if figures.failing is None else 1


if __name__ == "__main__":
    sys.exit(main())
