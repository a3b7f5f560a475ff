"""Kill processes at random moments, again and again: ``make torture KILLS=1000``. Not a test: it takes an hour.

* ``dropflow run`` and ``resume``: SIGKILL, with and without their workers; then the run continues.
* A cluster of four nodes, an island and a master with up to three sessions at a time: SIGKILL of nodes, worker
  processes, the island and the master, then a new start; nodes that are stopped for about as long as the deadline.
* ``dropflow submit``, and the managers and nodes of a deployment, in the middle of it.
* ``dropflow daemon``, with its managers and without; then ``dropflow resume SESSION``.
* Hosts in network namespaces: splits, one-way cuts, 20 % of packets lost. Only as root on Linux.

Each session must end, with the results of one that was not disturbed, and nothing of it may be left when it is deleted.
No application begins more often than it has a reason to: its tries, a view that resets it or moves it from a node that
is lost, a worker that was killed. What a killed ``run`` had committed does not run again at all. The history of each
session (commits, reads, promises, acknowledged results) is checked by `tests.managers.simulation.checked_history`. The
first violation ends it, with its seed.
"""

import argparse
import random
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Protocol, Self, TypeVar, cast

from dropflow.clock import SystemClock
from tests.e2e.network import missing
from tests.e2e.torture.clusters import TorturedCluster
from tests.e2e.torture.daemons import TorturedDaemon
from tests.e2e.torture.networks import TorturedNetwork
from tests.e2e.torture.sessions import Figures, torture_run

_TRIAL_SECONDS = 600
_SAY_SECONDS = 60.0


class _Closing(Protocol):
    def close(self) -> None:
        """Stop all processes."""
        ...


_P = TypeVar("_P", bound=_Closing)


class _Places:
    """The clusters that trials share: each is used for some trials, then a fresh one is started."""

    def __init__(self, home: Path, figures: Figures, trials: int) -> None:
        self._home = home
        self._figures = figures
        self._trials = trials
        self._made: dict[object, tuple[_Closing, int]] = {}
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for place, _count in self._made.values():
            try:
                place.close()
            except AssertionError:
                if error is None:
                    raise

    def get(self, kind: Callable[[Path, Figures], _P]) -> _P:
        """Return the place of this kind, which is started if needed."""
        made, count = self._made.get(kind, (None, 0))
        if made is not None and count >= self._trials:
            del self._made[kind]
            made.close()
            made = None
        if made is None:
            home = self._home / f"place-{self._number}"
            home.mkdir()
            self._number += 1
            made, count = kind(home, self._figures), 0
        self._made[kind] = made, count + 1
        return cast("_P", made)


def main() -> int:
    """Kill as many processes as the command line asks for."""
    parser = argparse.ArgumentParser(description="Kill processes of runs and clusters at random moments.")
    parser.add_argument("--kills", type=int, default=1000, help="number of kills (default %(default)s)")
    parser.add_argument("--only", default="", help="kinds of trials, with commas between: run, cluster...")
    parser.add_argument("--seed", type=int, default=None, help="the first seed; by default another one each time")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many minutes")
    parser.add_argument("--trials", type=int, default=40, help="trials on one cluster (default %(default)s)")
    arguments = parser.parse_args()
    seed = secrets.randbelow(10**9) if arguments.seed is None else arguments.seed
    signal.signal(signal.SIGALRM, _hang)
    figures, clock = Figures(), SystemClock()
    sys.stdout.write(f"seeds from {seed}\n")
    end, say_at = clock.monotonic() + 60.0 * arguments.minutes, 0.0
    directory = Path(tempfile.mkdtemp(prefix="dropflow-torture-"))
    try:
        with _Places(directory, figures, arguments.trials) as places:
            trials = _trials(places, directory, figures, set(filter(None, arguments.only.split(","))))
            while figures.kills.total() + figures.cuts.total() < arguments.kills and clock.monotonic() < end:
                chance = random.Random(seed)
                (kind,) = chance.choices([*trials], [weight for weight, _ in trials.values()])
                signal.alarm(_TRIAL_SECONDS)
                trials[kind][1](seed)
                signal.alarm(_TRIAL_SECONDS)  # for the end of the last cluster
                if clock.monotonic() > say_at:
                    say_at = clock.monotonic() + _SAY_SECONDS
                    sys.stdout.write(f"{figures}\n")
                    sys.stdout.flush()
                seed += 1
    except BaseException:
        sys.stdout.write(f"seed {seed} fails after {figures}; see {directory}\n")
        raise
    shutil.rmtree(directory)
    sys.stdout.write(f"{figures}\n")
    return 0


def _trials(
    places: _Places, home: Path, figures: Figures, only: set[str]
) -> dict[str, tuple[float, Callable[[int], None]]]:
    """Return the kinds of trials, each with its weight."""
    trials: dict[str, tuple[float, Callable[[int], None]]] = {
        "run": (0.45, lambda seed: torture_run(seed, home, figures)),
        "cluster": (0.35, lambda seed: places.get(TorturedCluster).torture(seed)),
        "daemon": (0.05, lambda seed: places.get(TorturedDaemon).torture(seed)),
        "deployment": (0.1, lambda seed: places.get(TorturedCluster).torture_deployment(seed)),
    }
    why_not = missing("ip", "iptables")
    if why_not:
        sys.stdout.write(f"no network failures here: {why_not}\n")
    else:
        trials["network"] = 0.05, lambda seed: places.get(TorturedNetwork).torture(seed)
    return {name: trial for name, trial in trials.items() if not only or name in only}


def _hang(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"a trial takes longer than {_TRIAL_SECONDS} s")


if __name__ == "__main__":
    sys.exit(main())
