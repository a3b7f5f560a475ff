"""What it costs to record the times of attempts: processor time of runs with and without it, in pairs.

The graph is one memory drop, then no-op applications with a memory drop each, in worker processes: the cheapest
attempts that there are, so that the share of the recording is the largest. Each pair runs in a fresh process,
alternately with the recording first and without it first, and counts the processor time of all processes. The
reference is the run without.

Usage: ``python benchmarks/attempt_times.py [DROPS [PAIRS]]``; prints JSON.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from dropflow.execution.attempt_times import AttemptTimes
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run, make_session
from tests.regular_graphs import fan

DROPS, PAIRS, WORKERS = 60_000, 15, 2


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def nothing(*_: Any, **__: Any) -> None:
    """Record nothing."""


class NoTimes(AttemptTimes):
    """Is told of attempts, and records nothing."""

    ready = given = given_ahead = ended = flush = write = nothing


def run(drops: int, *, records: bool) -> float:
    """Run a graph once; return the processor time that it took."""
    setattr(make_session, "AttemptTimes", AttemptTimes if records else NoTimes)  # noqa: B010 - mypy
    graph = fan(drops)
    with tempfile.TemporaryDirectory() as directory:
        before = processor_seconds()
        result = local_run.run(graph, Path(directory), RunOptions(runner="processes", workers=WORKERS))
        used = processor_seconds() - before
    if result.failures:
        raise SystemExit(result.failures[0].text)
    return used


def main() -> None:
    """Measure all pairs and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drops", metavar="DROPS", nargs="?", type=int, default=DROPS)
    parser.add_argument("pairs", metavar="PAIRS", nargs="?", type=int, default=PAIRS)
    parser.add_argument("--one", choices=("with", "without"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    drops, pairs = given.drops, given.pairs
    if given.one:
        first = given.one == "with"
        run(1_000, records=True)
        found = {records: run(drops, records=records) for records in (first, not first)}
        print(json.dumps({"with": found[True], "without": found[False]}))
        return
    rows = [
        json.loads(
            subprocess.check_output([sys.executable, __file__, str(drops), "--one", ("with", "without")[number % 2]])
        )
        for number in range(pairs)
    ]
    shares = [row["with"] / row["without"] - 1 for row in rows]
    extra = statistics.median(row["with"] - row["without"] for row in rows)
    print(
        json.dumps(
            {
                "benchmark": "attempt_times",
                "attempts": drops // 2,
                "pairs": pairs,
                "without_us_per_attempt": round(statistics.median(row["without"] for row in rows) / drops * 2e6, 1),
                "recording_us_per_attempt": round(extra / drops * 2e6, 2),
                "share_percent": round(statistics.median(shares) * 100, 2),
                "share_percent_quartiles": [
                    round(quantile * 100, 2) for quantile in statistics.quantiles(shares, n=4)[::2]
                ],
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
