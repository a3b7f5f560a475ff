"""Run trials of random losses with many seeds: ``python -m tests.managers.simulation.loss_sweep``."""

import argparse
import itertools
import logging
import multiprocessing
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from dropflow.clock import SystemClock
from managers.simulation.cluster import memory_directory
from tests.managers.simulation.faults import Fault
from tests.managers.simulation.random_losses import LossTrial, TrialOutcome

__all__ = [
    "Figures",
    "shrink",
    "sweep",
]


_SHOWN = 50
_REPORTED = 1000
"""Seeds after which a run without an end prints what it has found."""


class Figures(msgspec.Struct, frozen=True):
    """What trials found.

    Attributes
    ----------
    seeds, sessions, survived, losses, views : int
        Number of trials, sessions in them, those that went on after a loss, nodes that were lost, and changes of views.
    again, most_again : int
        Attempts that were repeated because of losses, and how many may have been at most.
    seconds : float
        Of virtual time.
    failing : int or None
        The first seed with a violation.
    text : str
        What happened with that seed.
    """

    seeds: int = 0
    sessions: int = 0
    survived: int = 0
    losses: int = 0
    views: int = 0
    again: int = 0
    most_again: int = 0
    seconds: float = 0.0
    failing: int | None = None
    text: str = ""

    def __str__(self) -> str:
        counts = (
            f"{self.seeds} seeds, {self.seconds / 3600:.1f} hours of virtual time: {self.survived} of {self.sessions} "
            f"sessions went on after {self.losses} losses, in {self.views} new views; "
            f"{self.again} attempts were repeated, of {self.most_again} that had a reason to be"
        )
        return counts if self.failing is None else f"{counts}\nseed {self.failing} fails:\n{self.text}"

    def with_outcome(self, outcome: TrialOutcome) -> "Figures":
        """Return the figures with those of one more trial."""
        return msgspec.structs.replace(
            self,
            seeds=self.seeds + 1,
            sessions=self.sessions + outcome.sessions,
            survived=self.survived + outcome.survived,
            losses=self.losses + outcome.losses,
            views=self.views + outcome.views,
            again=self.again + outcome.again,
            most_again=self.most_again + outcome.most_again,
            seconds=self.seconds + outcome.seconds,
        )


def sweep(seeds: Iterable[int], *, jobs: int = 1) -> Figures:
    """Run one trial for each seed, up to the first that finds a violation.

    Parameters
    ----------
    jobs : int
        Number of processes.
    """
    figures = Figures()
    for figures in progress(seeds, jobs=jobs):  # noqa: B007 - the last ones are the result
        pass
    return figures


def progress(seeds: Iterable[int], *, jobs: int = 1) -> Iterator[Figures]:
    """Yield the figures after each trial of `sweep`."""
    figures = Figures()
    with ExitStack() as stack:
        if jobs > 1:
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(jobs, _be_quiet))
            outcomes = pool.imap(_outcome, seeds)
        else:
            outcomes = map(_outcome, seeds)  # type: ignore[assignment]
        for seed, outcome in outcomes:
            figures = figures.with_outcome(outcome)
            if outcome.violations:
                stack.close()
                yield msgspec.structs.replace(figures, failing=seed, text=report(seed))
                return
            yield figures


def report(seed: int) -> str:
    """Run a trial again with fewer and fewer faults, and return what happens with those that are needed.

    The text has the violations, the faults, and the last events before the end.
    """
    outcome, faults, trace = _run(seed)
    kept = shrink(faults, lambda fewer: bool(_run(seed, fewer)[0].violations), most_runs=60)
    shrunk, _, shorter = _run(seed, kept, keep_trace=True)
    if shrunk.violations:
        outcome, trace = shrunk, shorter
    lines = [
        *(f"violated: {line}" for line in outcome.violations),
        f"needs {len(kept)} of {len(faults)} faults:",
        *(f"  {fault}" for fault in kept),
        *(f"  {line}" for line in outcome.notes),
        f"the last of {len(trace)} events:",
        *(f"  {line}" for line in trace[-_SHOWN:]),
    ]
    return "\n".join(f"  {line}" for line in lines)


def _outcome(seed: int) -> tuple[int, TrialOutcome]:
    return seed, _run(seed)[0]


def _run(
    seed: int, faults: Sequence[Fault] | None = None, *, keep_trace: bool = False
) -> tuple[TrialOutcome, tuple[Fault, ...], list[str]]:
    with tempfile.TemporaryDirectory(dir=memory_directory()) as directory:
        trial = LossTrial(seed, Path(directory), faults=faults, keep_trace=keep_trace)
        return trial.run(), trial.faults, trial.trace if keep_trace else []


def _be_quiet() -> None:
    logging.disable(logging.CRITICAL)


def main() -> int:
    """Run the trials that the command line asks for."""
    parser = argparse.ArgumentParser(description="Lose nodes of simulated clusters, and check how sessions end.")
    parser.add_argument(
        "--seeds", default="100", help="number of trials, or 'forever': until one fails (default %(default)s)"
    )
    parser.add_argument("--first", type=int, default=None, help="the first seed; by default another one each time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    arguments = parser.parse_args()
    if arguments.seeds != "forever" and not arguments.seeds.isdecimal():
        parser.error(f"--seeds is {arguments.seeds!r}: give a number, or 'forever'")
    _be_quiet()
    clock = SystemClock()
    began = clock.monotonic()
    first = secrets.randbelow(10**9) if arguments.first is None else arguments.first
    is_endless = arguments.seeds == "forever"
    seeds = itertools.count(first) if is_endless else range(first, first + int(arguments.seeds))
    _print(f"seeds from {first}" + ("" if is_endless else f" to {first + int(arguments.seeds) - 1}"))
    figures = Figures()
    try:
        for figures in progress(seeds, jobs=arguments.jobs):
            if is_endless and figures.seeds % _REPORTED == 0:
                _print(str(figures))
    except KeyboardInterrupt:
        _print("stopped")
    _print(f"{figures}\nin {clock.monotonic() - began:.0f} s")
    return 0 if figures.failing is None else 1


_print = partial(print, flush=True)


T = TypeVar("T")


def shrink(items: Sequence[T], fails: Callable[[Sequence[T]], bool], *, most_runs: int = 100) -> tuple[T, ...]:
    """Return a part of `items` that still fails, and does not without any one of them.

    The algorithm is ddmin without its complements of complements: leave out halves, then quarters, down to single
    items, and begin anew after each success (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing
    input", 2002).

    Parameters
    ----------
    items : sequence
        They fail together.
    fails : callable
        Whether some of them, in their order, fail.
    most_runs : int
        How often to call `fails` at most; then the result may be larger than needed.
    """
    kept, runs = tuple(items), 0
    size = len(kept)
    while size:
        start = 0
        while start < len(kept) and runs < most_runs:
            fewer = kept[:start] + kept[start + size :]
            runs += 1
            if fails(fewer):
                kept = fewer
            else:
                start += size
        size = min(size // 2, len(kept))
    return kept


if __name__ == "__main__":
    sys.exit(main())
